"""How stages are configured, in the new and in older spellings, and how they are counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel import zoo

from pointsman.kernel.names import Names
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.deciders import AlwaysDisaggPdDecider
from pointsman.plugins.disagg import DisaggProfileHandler
from pointsman.plugins.stages import StageCount

from .stages_kit import E1, P1, decision, handling, saying

PREFILLER: Final = "x-prefiller-host-port"
ENCODERS: Final = "x-encoder-hosts-ports"
NEW: Final = (
    "{profiles: {decode: decode, prefill: prefill, encode: encode},"
    " deciders: {prefill: always-disagg-pd-decider, encode: always-disagg-pd-decider}}"
)
OLD: Final = (
    "{decodeProfile: decode, prefillProfile: prefill, encodeProfile: encode,"
    " prefillDeciderPluginName: always-disagg-pd-decider,"
    " encodeDeciderPluginName: always-disagg-pd-decider}"
)
OLDEST: Final = "{deciderPluginName: always-disagg-pd-decider}"


@pytest.mark.parametrize(
    ("handler", "headers"),
    [(NEW, {PREFILLER, ENCODERS}), (OLD, {PREFILLER, ENCODERS}), (OLDEST, {PREFILLER})],
)
def test_older_spellings_mean_the_same(handler: str, headers: set[str]) -> None:
    wiring = handling(handler, AlwaysDisaggPdDecider)
    assert decision(wiring).upstream_headers.keys() == headers


@pytest.mark.parametrize(
    "handler",
    [
        "{profiles: {decode: encode, encode: other}}",
        "{decodeProfile: encode, encodeProfile: other}",
    ],
)
def test_profiles_can_have_other_names(handler: str) -> None:
    wiring = handling(handler, stages="encode")
    assert decision(wiring).destination.startswith(E1.host_port)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        (
            "{stageOrder: encode-first}",
            "parameters.stageOrder: must be decode-first or prefill-first, not 'encode-first'",
        ),
        (
            "{stageOrder: prefill-first, deciders: {prefill: always-disagg-pd-decider}}",
            "parameters: prefill-first leaves deciders.prefill nothing to decide",
        ),
        (
            "{profiles: {decode: d}, decodeProfile: d}",
            "parameters: decodeProfile is an older spelling: it does not go with profiles",
        ),
        (
            "{stageOrder: decode-first, deciderPluginName: always-disagg-pd-decider}",
            "deciderPluginName is an older spelling: it does not go with stageOrder",
        ),
        ("{primaryPort: 8000}", "parameters.primaryPort: unknown field"),
        ("{deciders: {decode: x}}", "parameters.deciders.decode: unknown field"),
        ('{profiles: {decode: ""}}', "parameters.profiles.decode: must not be empty"),
        ("{profiles: {decode: prefill}}", "each stage needs a profile of its own"),
        ("{decodeProfile: prefill}", "parameters: each stage needs a profile of its own"),
        ("{deciders: {prefill: nobody}}", "no plugin is named 'nobody'"),
        ("{encodeDeciderPluginName: nobody}", "no plugin is named 'nobody'"),
        ("{deciders: {prefill: disagg-profile-handler}}", "'disagg-profile-handler' is no decider"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    text = (
        "plugins: [{type: always-disagg-pd-decider},"
        f" {{type: disagg-profile-handler, parameters: {parameters}}}]\n"
        "schedulingProfiles: [{name: decode}]"
    )
    (mistake,) = zoo.refused(text, DisaggProfileHandler, AlwaysDisaggPdDecider)
    assert complaint in mistake


# -- figures ---------------------------------------------------------------------------------


def counts(wiring: Wiring) -> Mapping[tuple[str, ...], float]:
    (family,) = wiring.installed["disagg-profile-handler"].plugin.figures()
    assert (family.name, family.type) == ("llm_d_epp_disagg_decision", "counter")
    assert all(s.name == "llm_d_epp_disagg_decision_total" for s in family.samples)
    order = ("plugin_name", "plugin_type", "model_name", "decision_type")
    return {tuple(s.labels[label] for label in order): s.value for s in family.samples}


@pytest.mark.parametrize(
    ("prefill", "encode", "kind"),
    [
        (False, False, "decode-only"),
        (True, False, "prefill-decode"),
        (False, True, "encode-decode"),
        (True, True, "encode-prefill-decode"),
    ],
)
def test_decisions_are_counted_by_their_stages(prefill: bool, encode: bool, kind: str) -> None:
    wiring, _ = saying(prefill=prefill, encode=encode)
    decision(wiring)
    decision(wiring)
    name = "disagg-profile-handler"
    assert counts(wiring) == {(name, name, "m", kind): 2.0}


def test_a_request_that_goes_nowhere_is_not_counted() -> None:
    wiring, _ = saying(prefill=True)
    zoo.refusal(lambda: decision(wiring, [P1]))
    assert counts(wiring) == {}


def labels(*models: str, most: int = 2) -> list[str]:
    count = StageCount("type", Names(most))
    for model in models:
        count.note("name", model, "decode-only")
    return [sample.labels["model_name"] for sample in count.family().samples]


def test_of_many_models_the_later_ones_are_other() -> None:
    assert labels("a", "b", "c", "a", "d") == ["a", "b", "other"]
    assert labels("x" * 201, "") == ["other", ""]


@given(st.lists(st.text(max_size=3), max_size=30))
def test_the_series_are_bounded(models: list[str]) -> None:
    assert len(labels(*models)) <= 4  # two of them, none at all, and the others
