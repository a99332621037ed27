"""The older plugins for prefill and decoding, and what they still do."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.kernel import zoo

from pointsman.kernel.model import ProfileResult, SchedulingResult
from pointsman.kernel.testing import Bench, decide, endpoints, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.deciders import AlwaysDisaggPdDecider, PrefixBasedPdDecider
from pointsman.plugins.disagg import DisaggProfileHandler
from pointsman.plugins.pd import (
    DisaggHeadersHandler,
    DisaggHeadersParameters,
    PdProfileHandler,
)

from .stages_kit import D1, D2, E1, P1, Seen, decider, decision, staged

PREFILLER: Final = "x-prefiller-host-port"
ENCODERS: Final = "x-encoder-hosts-ports"
DATA_PARALLEL: Final = "x-data-parallel-host-port"


def handling(parameters: str, *classes: type[Any], peeks: Seen | None = None) -> Wiring:
    return staged(
        PdProfileHandler,
        *classes,
        parameters={"pd-profile-handler": parameters},
        stages=("prefill", "decode"),
        peeks=peeks,
    )


ALWAYS: Final = "{deciderPluginName: always-disagg-pd-decider}"


def test_prefill_runs_when_the_decider_says_so_of_whom_decodes() -> None:
    seen: Seen = []
    for answer, profiles in ((True, {"decode", "prefill"}), (False, {"decode"})):
        asked = decider("asked", seen, answer)
        made = decision(handling("{deciderPluginName: asked}", asked))
        assert made.result.profiles.keys() == profiles
    assert seen == [("asked", D1), ("asked", D1)]


def test_prefill_is_told_who_decodes() -> None:
    seen: Seen = []
    decision(handling(ALWAYS, AlwaysDisaggPdDecider, peeks=seen))
    assert seen == [("peek-decode", None), ("peek-prefill", D1)]


def test_the_prefix_based_decider_is_the_default() -> None:
    wiring = handling("{}", PrefixBasedPdDecider)
    assert wiring.installed["pd-profile-handler"].plugin.deciders == ("prefix-based-pd-decider",)


def test_when_nobody_decodes_the_request_goes_nowhere() -> None:
    wiring = handling(ALWAYS, AlwaysDisaggPdDecider)
    assert zoo.refusal(lambda: decide(wiring, pool([P1]))).status == 503


def test_without_a_primary_port_the_request_goes_to_the_chosen_endpoint() -> None:
    made = decision(handling(ALWAYS, AlwaysDisaggPdDecider))
    assert made.destination == f"{D1.host_port},{D2.host_port}"
    assert made.upstream_headers == {}


def test_with_a_primary_port_the_request_goes_there_and_says_whom_it_is_for() -> None:
    parameters = "{deciderPluginName: always-disagg-pd-decider, primaryPort: 9000}"
    made = decision(handling(parameters, AlwaysDisaggPdDecider))
    assert made.destination == "127.0.1.1:9000,127.0.1.2:9000"
    assert made.upstream_headers == {DATA_PARALLEL: "127.0.1.1:8000"}


def test_decisions_are_counted() -> None:
    wiring = handling(ALWAYS, AlwaysDisaggPdDecider)
    decision(wiring)
    (family,) = wiring.installed["pd-profile-handler"].plugin.figures()
    assert [(sample.labels, sample.value) for sample in family.samples] == [
        (
            {
                "plugin_name": "pd-profile-handler",
                "plugin_type": "pd-profile-handler",
                "model_name": "m",
                "decision_type": "prefill-decode",
            },
            1.0,
        )
    ]


def test_the_retired_parameters_are_still_accepted() -> None:
    parameters = (
        "{deciderPluginName: always-disagg-pd-decider, prefixPluginType: prefix-cache-scorer,"
        " prefixPluginName: prefix-cache-scorer, prefixMatchInfoProducerName: any}"
    )
    assert decision(handling(parameters, AlwaysDisaggPdDecider)).destination


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{primaryPort: 65536}", "parameters.primaryPort: must be from 0 to 65535, not 65536"),
        ('{deciderPluginName: ""}', "parameters.deciderPluginName: must not be empty"),
        ("{decodeProfile: prefill}", "parameters: each stage needs a profile of its own"),
        ("{deciderPluginName: nobody}", "no plugin is named 'nobody'"),
        ("{stageOrder: decode-first}", "parameters.stageOrder: unknown field"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    text = (
        "plugins: [{type: prefix-based-pd-decider},"
        f" {{type: pd-profile-handler, parameters: {parameters}}}]\n"
        "schedulingProfiles: [{name: decode}]"
    )
    (mistake,) = zoo.refused(text, PdProfileHandler, PrefixBasedPdDecider)
    assert complaint in mistake


def test_nothing_is_served_without_a_profile_for_decoding() -> None:
    text = "plugins: [{type: pd-profile-handler, parameters: {deciderPluginName: d}}, {type: d}]"
    always = type("D", (AlwaysDisaggPdDecider,), {"type_name": "d"})
    (mistake,) = zoo.refused(text, PdProfileHandler, always)
    assert "'pd-profile-handler' needs a profile named 'decode'" in mistake


def test_a_decider_that_is_not_configured_is_missed() -> None:
    (mistake,) = zoo.refused(
        "plugins: [{type: pd-profile-handler}]\nschedulingProfiles: [{name: decode}]",
        PdProfileHandler,
        PrefixBasedPdDecider,
    )
    assert "no plugin is named 'prefix-based-pd-decider' (list it under `plugins`)" in mistake


# -- headers ---------------------------------------------------------------------------------


def result(*found: str) -> SchedulingResult:
    targets = {"decode": (D1,), "prefill": (P1,), "encode": (E1, D2)}
    profiles = {
        name: ProfileResult(given, given, [0.0] * len(given)) if name in found else None
        for name, given in targets.items()
    }
    return SchedulingResult(profiles, "decode")


def headers(found: SchedulingResult, **parameters: str) -> Any:
    bench = Bench(DisaggHeadersHandler(DisaggHeadersParameters(**parameters)))
    return bench.call("before_request", None, found)


def test_the_sidecar_is_told_of_the_stages_that_found_endpoints() -> None:
    assert headers(result("decode", "prefill", "encode")) == {
        PREFILLER: "[fd00::3]:8000",
        ENCODERS: "127.0.1.4:8000,127.0.1.2:8000",
    }
    assert headers(result("decode", "encode")).keys() == {ENCODERS}
    assert headers(result("decode")) == {}


def test_the_profiles_of_the_stages_can_have_other_names() -> None:
    found = result("decode", "prefill", "encode")
    assert headers(found, prefill_profile="encode", encode_profile="prefill") == {
        PREFILLER: "127.0.1.4:8000",
        ENCODERS: "[fd00::3]:8000",
    }


def test_beside_the_disagg_handler_it_changes_nothing() -> None:
    classes = (DisaggProfileHandler, AlwaysDisaggPdDecider)
    parameters = {"disagg-profile-handler": ALWAYS}
    alone = staged(*classes, parameters=parameters)
    both = staged(*classes, DisaggHeadersHandler, parameters=parameters)
    assert decision(alone).upstream_headers == decision(both).upstream_headers != {}


def test_with_the_pd_handler_it_tells_of_the_prefill() -> None:
    wiring = handling(ALWAYS, AlwaysDisaggPdDecider, DisaggHeadersHandler)
    assert decision(wiring).upstream_headers == {PREFILLER: P1.host_port}


def test_a_blank_profile_is_refused() -> None:
    text = 'plugins: [{type: disagg-headers-handler, parameters: {prefillProfile: ""}}]'
    (mistake,) = zoo.refused(text, DisaggHeadersHandler)
    assert "parameters.prefillProfile: must not be empty" in mistake


@pytest.mark.parametrize("name", ["disagg-headers-handler", "prefill-header-handler"])
def test_the_header_plugins_are_deprecated(name: str) -> None:
    wiring = wired(f"plugins: [{{type: {name}}}]", DisaggHeadersHandler)
    told = f"plugin type {name!r} is deprecated: disagg-profile-handler sets the headers itself"
    assert told in wiring.warnings
    assert decide(wiring, pool(endpoints("a"))).decision.upstream_headers == {}


def test_the_pd_handler_is_deprecated() -> None:
    wiring = handling(ALWAYS, AlwaysDisaggPdDecider)
    told = "plugin type 'pd-profile-handler' is deprecated: write disagg-profile-handler"
    assert told in wiring.warnings
