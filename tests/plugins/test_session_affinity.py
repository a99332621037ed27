"""Sessions stay where they are. S-xx are field reports whose fault a test keeps away.

Here the client carries its endpoint, and what both ways have in common; `test_session_homes` has
the sessions that a table binds.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import in_profile, refused

from pointsman.kernel.director import Outcome
from pointsman.kernel.model import (
    REQUEST_HEADERS,
    Endpoint,
    Headers,
    PodDeleted,
    SchedulingResult,
)
from pointsman.kernel.plugin import Role
from pointsman.kernel.testing import Bench, decide, endpoint, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins import BUILT_IN
from pointsman.plugins.pickers import MaxScorePicker
from pointsman.plugins.session_affinity import (
    EncodedEndpointHeader,
    SessionAffinityFilter,
    SessionAffinityParameters,
    SessionAffinityScorer,
)
from pointsman.plugins.session_homes import decoded, encoded

from .session_kit import ABC, chose

TOKEN: Final = "x-session-token"
BOTH: Final = pytest.mark.parametrize("plugin", [SessionAffinityFilter, SessionAffinityScorer])


def token(endpoint_id: str) -> bytes:
    return b64encode(endpoint_id.encode())


def headers(**values: bytes) -> Mapping[Any, Any]:
    return {REQUEST_HEADERS: Headers({name.replace("_", "-"): v for name, v in values.items()})}


def filtering(**parameters: Any) -> Bench:
    return Bench(SessionAffinityFilter(SessionAffinityParameters(**parameters)), ABC)


def scoring(**parameters: Any) -> Bench:
    return Bench(SessionAffinityScorer(SessionAffinityParameters(**parameters)), ABC)


# -- the endpoint that a client carries ------------------------------------------------------


def test_only_the_endpoint_that_the_client_carries_stays() -> None:
    bench = filtering()
    assert bench.keep(headers(x_session_token=token("default/b"))) == [ABC[1]]


def test_the_endpoint_that_the_client_carries_gets_1_and_the_rest_0() -> None:
    bench = scoring()
    assert bench.score(headers(x_session_token=token("default/b"))) == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"!!!",
        b"default/b",
        token("default/b")[:-1],
        token("default/gone"),
        token("b"),
        token("other/b"),
        b"\xff\xfe",
        b64encode(b"\xff\xfe"),
    ],
)
def test_what_names_no_candidate_is_no_session(value: bytes) -> None:
    data = headers(x_session_token=value) if value else headers()
    assert filtering().keep(data) == list(ABC)
    assert scoring().score(data) == [0.0, 0.0, 0.0]


@given(st.text())
def test_a_token_names_what_it_was_made_of(name: str) -> None:
    assert decoded(encoded(name)) == name


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_any_text_can_come_as_a_token(text: str) -> None:
    assert isinstance(decoded(text), str)


def test_tokens_are_standard_base64_with_padding() -> None:
    assert encoded("default/ab?>") == "ZGVmYXVsdC9hYj8+"
    assert encoded("default/a") == "ZGVmYXVsdC9h"
    assert encoded("default/bc") == "ZGVmYXVsdC9iYw=="


def carried(given: SchedulingResult, **parameters: Any) -> Mapping[str, str] | None:
    """The headers that a client is given to carry."""
    found: Mapping[str, str] | None = scoring(**parameters).call("on_response_headers", None, given)
    return found


def test_a_client_is_given_the_endpoint_that_served_it() -> None:
    chosen = chose(primary="decode", decode=ABC[1], prefill=ABC[2])
    assert carried(chosen) == {TOKEN: encoded("default/b")}


def test_a_client_can_be_given_another_stage_s_endpoint() -> None:
    chosen = chose(primary="decode", decode=ABC[1], prefill=ABC[2])
    assert carried(chosen, profile_name="prefill") == {TOKEN: encoded("default/c")}


@pytest.mark.parametrize("profiles", [{}, {"prefill": None}])
def test_a_client_is_given_nothing_when_that_stage_chose_nobody(
    profiles: Mapping[str, Any],
) -> None:
    chosen = chose(primary="decode", decode=ABC[1], **profiles)
    assert carried(chosen, profile_name="prefill") is None


def test_the_header_can_have_another_name_in_any_case() -> None:
    named = EncodedEndpointHeader(header=" X-Home ")
    parameters = {"encoded_endpoint_header_config": named}
    assert carried(chose(default=ABC[0]), **parameters) == {"x-home": encoded("default/a")}
    bench = filtering(**parameters)
    assert bench.keep(headers(x_home=token("default/c"))) == [ABC[2]]
    assert bench.keep(headers(x_session_token=token("default/c"))) == list(ABC)


def test_nothing_is_kept_of_who_carries_its_own() -> None:
    bench = filtering()
    bench.keep(headers(x_session_token=token("default/b")))
    assert len(bench.state) == 0
    bench.plugin.forget(PodDeleted(ABC[1]))
    assert bench.plugin.dump_state() == {}


# -- in the daemon ---------------------------------------------------------------------------


def sent(wiring: Wiring, candidates: tuple[Endpoint, ...], carries: str = "") -> tuple[str, str]:
    """Where a request goes, and the token that its client is given for the next one."""
    request = make_request(headers={TOKEN: carries} if carries else {})
    outcome: Outcome = decide(wiring, pool(candidates), request)
    given = wiring.director.response_headers(outcome, Headers({}))
    return outcome.decision.result.target.name, given[TOKEN]


@BOTH
def test_s_10_a_token_comes_with_the_response_headers_and_leads_back(plugin: type[Any]) -> None:
    wiring = wired(in_profile(plugin, MaxScorePicker), plugin, MaxScorePicker)
    assert wiring.processing.response_headers
    home, carries = sent(wiring, ABC)
    for _ in range(10):
        assert sent(wiring, ABC, carries) == (home, carries)
    rest = tuple(one for one in ABC if one.name != home)
    moved, new = sent(wiring, rest, carries)
    assert moved != home
    assert new == encoded(f"default/{moved}")
    assert sent(wiring, rest, new) == (moved, new)


@BOTH
def test_s_10_a_token_that_leads_nowhere_is_replaced(plugin: type[Any]) -> None:
    wiring = wired(in_profile(plugin, MaxScorePicker), plugin, MaxScorePicker)
    for nonsense in ("nonsense", encoded("default/gone")):
        target, given = sent(wiring, ABC, nonsense)
        assert given == encoded(f"default/{target}")


@BOTH
def test_a_new_endpoint_of_an_old_name_is_the_old_ones_heir(plugin: type[Any]) -> None:
    """A token names an endpoint; a stateful set gives a name to one pod after another."""
    wiring = wired(in_profile(plugin, MaxScorePicker), plugin, MaxScorePicker)
    heirs = (endpoint("x"), endpoint("y"), endpoint("b", uid="another"))
    assert sent(wiring, heirs, encoded("default/b"))[0] == "b"


@pytest.mark.parametrize(
    ("strategy", "idle"),
    [
        ("encoded_endpoint_header", Role.PRE_REQUEST),
        ("session_id", Role.RESPONSE_HEADERS),
    ],
)
def test_responses_are_looked_at_only_for_who_carries_a_token(strategy: str, idle: Role) -> None:
    text = f"plugins: [{{type: session-affinity-scorer, parameters: {{strategy: {strategy}}}}}]"
    wiring = wired(text, *BUILT_IN)
    assert idle not in wiring.roles["session-affinity-scorer"]
    assert wiring.processing.response_headers == (idle is not Role.RESPONSE_HEADERS)


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "ineffective"),
    [
        ("{sessionIdConfig: {}}", "sessionIdConfig"),
        (
            "{strategy: session_id, encodedEndpointHeaderConfig: {}}",
            "encodedEndpointHeaderConfig",
        ),
        ("{strategy: session_id, sessionIdConfig: {}}", ""),
        ("{encodedEndpointHeaderConfig: {}}", ""),
    ],
)
def test_the_other_strategy_s_section_is_told_to_have_no_effect(
    said: str, ineffective: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        wired(f"plugins: [{{type: session-affinity-filter, parameters: {said}}}]", *BUILT_IN)
    told = [record.getMessage() for record in caplog.records]
    assert [one.split()[0] for one in told] == ([ineffective] if ineffective else [])


@BOTH
@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("{strategy: cookie}", "strategy: must be one of encoded_endpoint_header, session_id"),
        ("{encodedEndpointHeaderConfig: {header: ' '}}", "header: must not be empty"),
        ("{sessionIdConfig: {evictionTtlSeconds: -1}}", "evictionTtlSeconds: must be at least 0"),
        ("{sessionIdConfig: {evictionSweepSeconds: -1}}", "evictionSweepSeconds: must be at"),
        ("{sessionIdConfig: {maxSessions: 0}}", "maxSessions: must be at least 1"),
        (
            "{sessionIdConfig: {sources: [{header: x, attribute: y}]}}",
            "exactly one of header and attribute is needed",
        ),
        ("{sessionIdConfig: {sources: [{}]}}", "exactly one of header and attribute is needed"),
        (
            "{sessionIdConfig: {sources: [{header: ' '}]}}",
            "exactly one of header and attribute is needed",
        ),
        (
            "{sessionIdConfig: {sources: [{header: x, producer: y}]}}",
            "producer goes with attribute only",
        ),
        ("{stratgy: session_id}", "did you mean 'strategy'"),
        (
            "{strategy: session_id, sessionIdConfig: {sources: [{attribute: agent-identity}]}}",
            "requires 'agent-identity', which no enabled plugin produces",
        ),
    ],
)
def test_mistaken_parameters_are_refused(plugin: type[Any], said: str, complaint: str) -> None:
    text = f"plugins: [{{type: {plugin.type_name}, parameters: {said}}}]"
    (mistake,) = refused(text, plugin)
    assert complaint in mistake
