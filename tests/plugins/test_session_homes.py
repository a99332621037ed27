"""Sessions that a table binds to endpoints, under a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import anyio
from attrs import define
from tests.kernel.zoo import in_profile
from trio.testing import MockClock

from pointsman.kernel.keys import Consumes, DataKey, DataView, keys
from pointsman.kernel.model import (
    REQUEST_HEADERS,
    Endpoint,
    Headers,
    PodDeleted,
    SchedulingResult,
)
from pointsman.kernel.testing import Bench, decide, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins import BUILT_IN
from pointsman.plugins.keys import SESSION_ID
from pointsman.plugins.pickers import MaxScorePicker
from pointsman.plugins.session_affinity import (
    BY_SESSION,
    SessionAffinityFilter,
    SessionAffinityParameters,
    SessionAffinityScorer,
    SessionIdConfig,
)
from pointsman.plugins.session_homes import SessionSource

from .session_kit import ABC, chose

A, B, C = ABC


def parameters(profile_name: str = "", **config: Any) -> SessionAffinityParameters:
    return SessionAffinityParameters(
        strategy=BY_SESSION, profile_name=profile_name, session_id_config=SessionIdConfig(**config)
    )


def affinity(**config: Any) -> SessionAffinityFilter:
    return SessionAffinityFilter(parameters(**config))


def named(session: str) -> Mapping[Any, Any]:
    return {REQUEST_HEADERS: Headers({"x-session-id": session.encode()} if session else {})}


def kept(plugin: SessionAffinityFilter, session: str, given: Sequence[Endpoint] = ABC) -> str:
    """Who would stay for a request of that session; asking changes nothing."""
    return "".join(one.name for one in Bench(plugin, given).keep(named(session)))


def send(
    plugin: SessionAffinityFilter,
    session: str,
    target: Endpoint,
    *runs: Sequence[Endpoint],
    result: SchedulingResult | None = None,
) -> None:
    """A request goes to *target*, after profile runs among these candidates."""
    bench = Bench(plugin)
    for run in runs or (ABC,):
        bench.endpoints = run
        bench.keep(named(session))
    bench.call("before_request", named(session), result or chose(default=target))


# -- binding ---------------------------------------------------------------------------------


async def test_a_session_stays_where_its_first_request_went() -> None:
    plugin = affinity()
    assert kept(plugin, "s") == "abc"
    send(plugin, "s", B)
    assert kept(plugin, "s") == "b"
    assert kept(plugin, "other") == "abc"


async def test_the_scorer_prefers_the_endpoint_of_the_session() -> None:
    plugin = SessionAffinityScorer(parameters())
    bench = Bench(plugin, ABC)
    assert bench.score(named("s")) == [0.0, 0.0, 0.0]
    bench.call("before_request", named("s"), chose(default=B))
    assert bench.score(named("s")) == [0.0, 1.0, 0.0]
    bench.endpoints = (A, C)
    assert bench.score(named("s")) == [0.0, 0.0]


async def test_a_blank_name_is_no_session() -> None:
    plugin = affinity()
    for blank in ("", "   "):
        send(plugin, blank, B)
        assert kept(plugin, blank) == "abc"
    assert plugin.dump_state() == {"sessions": 0, "endpoints": {}}


async def test_blanks_around_a_name_do_not_matter() -> None:
    plugin = affinity()
    send(plugin, " s ", B)
    assert kept(plugin, "s") == "b"


async def test_looking_binds_nothing() -> None:
    plugin = affinity()
    assert kept(plugin, "s") == "abc"
    assert plugin.dump_state() == {"sessions": 0, "endpoints": {}}


async def test_of_two_first_requests_at_once_the_first_one_binds() -> None:
    plugin = affinity()
    one, other = Bench(plugin, ABC), Bench(plugin, ABC)
    one.keep(named("s"))
    other.keep(named("s"))
    other.call("before_request", named("s"), chose(default=B))
    one.call("before_request", named("s"), chose(default=A))
    assert kept(plugin, "s") == "b"


async def test_that_others_were_preferred_does_not_move_a_session() -> None:
    plugin = affinity()
    send(plugin, "s", B)
    send(plugin, "s", A)
    assert kept(plugin, "s") == "b"


async def test_a_session_moves_when_its_endpoint_was_no_candidate() -> None:
    plugin = affinity()
    send(plugin, "s", B)
    send(plugin, "s", A, (A, C))
    assert kept(plugin, "s") == "a"


async def test_a_session_stays_when_one_of_several_runs_had_its_endpoint() -> None:
    """The endpoint that decodes is none of those that prefill."""
    plugin = affinity()
    send(plugin, "s", B)
    for runs in (((A, C), (A, B)), ((A, B), (A, C))):
        send(plugin, "s", A, *runs)
        assert kept(plugin, "s") == "b"


async def test_a_request_that_was_not_asked_about_moves_nothing() -> None:
    plugin = affinity()
    send(plugin, "s", B)
    Bench(plugin).call("before_request", named("s"), chose(default=A))
    assert kept(plugin, "s") == "b"


async def test_another_stage_s_endpoint_can_be_the_session_s() -> None:
    plugin = affinity(profile_name="prefill")
    send(plugin, "s", B, result=chose("decode", decode=B, prefill=C))
    assert kept(plugin, "s") == "c"


async def test_a_request_without_that_stage_binds_nothing() -> None:
    plugin = affinity(profile_name="prefill")
    send(plugin, "s", B, result=chose("decode", decode=B))
    send(plugin, "s", B, result=chose("decode", decode=B, prefill=None))
    assert kept(plugin, "s") == "abc"


# -- sources ---------------------------------------------------------------------------------

AGENT: Final = DataKey("agent-identity", str)


async def test_the_first_source_that_names_a_session_counts() -> None:
    sources = (
        SessionSource(header=" X-One "),
        SessionSource(attribute="SessionIDDataKey", producer="session-id-producer"),
        SessionSource(header="x-two"),
    )
    plugin = affinity(sources=sources)
    every = {REQUEST_HEADERS: Headers({"x-one": b"one", "x-two": b"two"}), SESSION_ID: "id"}
    blank = {REQUEST_HEADERS: Headers({"x-one": b" ", "x-two": b"two"}), SESSION_ID: "id"}
    last = {REQUEST_HEADERS: Headers({"x-two": b"two"})}
    for data, target in ((every, A), (blank, B), (last, C)):
        Bench(plugin, ABC).call("before_request", data, chose(default=target))
    for data, target in ((every, A), (blank, B), (last, C)):
        assert Bench(plugin, ABC).keep(data) == [target]


async def test_headers_are_read_only_if_a_source_needs_them() -> None:
    by_attribute = affinity(sources=(SessionSource(attribute="SessionIDDataKey"),))
    assert by_attribute.consumes.all == keys(SESSION_ID)
    assert affinity().consumes.all == keys(REQUEST_HEADERS)


def sent(wiring: Wiring, headers: Mapping[str, str]) -> str:
    return decide(wiring, pool(ABC), make_request(headers=headers)).decision.result.target.name


async def test_a_cookie_names_the_session_by_way_of_its_producer() -> None:
    text = """
plugins:
- {type: session-id-producer, parameters: {cookieName: sid}}
- type: session-affinity-filter
  parameters:
    strategy: session_id
    sessionIdConfig:
      sources: [{attribute: SessionIDDataKey, producer: session-id-producer}]
"""
    wiring = wired(text, *BUILT_IN)
    home = sent(wiring, {"cookie": "sid=abc"})
    assert {sent(wiring, {"cookie": "x=y; sid=abc"}) for _ in range(20)} == {home}
    assert len({sent(wiring, {}) for _ in range(40)}) == 3


@define(eq=False)
class Agents:
    """Another plugin that names something, under a key of its own."""

    type_name: ClassVar = "agents"
    consumes: ClassVar = Consumes(REQUEST_HEADERS)
    produces: ClassVar = keys(AGENT)

    def on_request(self, data: DataView) -> None:
        data[AGENT] = data[REQUEST_HEADERS].get("agent") or ""


async def test_whatever_text_a_plugin_publishes_can_name_the_session() -> None:
    text = """
plugins:
- {type: agents}
- type: session-affinity-filter
  parameters: {strategy: session_id, sessionIdConfig: {sources: [{attribute: agent-identity}]}}
"""
    wiring = wired(text, *BUILT_IN, Agents)
    home = sent(wiring, {"agent": "smith"})
    assert {sent(wiring, {"agent": "smith"}) for _ in range(20)} == {home}


# -- time and room ---------------------------------------------------------------------------


async def test_a_session_that_pauses_for_too_long_is_free(autojump_clock: MockClock) -> None:
    plugin = affinity()
    send(plugin, "s", B)
    await anyio.sleep(299)
    assert kept(plugin, "s") == "b"
    await anyio.sleep(2)
    assert kept(plugin, "s") == "abc"
    send(plugin, "s", A)
    assert kept(plugin, "s") == "a"


async def test_each_request_to_its_endpoint_renews_a_session(autojump_clock: MockClock) -> None:
    plugin = affinity(eviction_ttl_seconds=10.0)
    send(plugin, "s", B)
    for _ in range(5):
        await anyio.sleep(8)
        send(plugin, "s", B)
    await anyio.sleep(8)
    assert kept(plugin, "s") == "b"


async def test_requests_that_go_elsewhere_do_not_renew_it(autojump_clock: MockClock) -> None:
    plugin = affinity(eviction_ttl_seconds=10.0)
    send(plugin, "s", B)
    await anyio.sleep(8)
    send(plugin, "s", A)
    await anyio.sleep(8)
    assert kept(plugin, "s") == "abc"


async def test_a_time_of_0_means_the_default(autojump_clock: MockClock) -> None:
    plugin = affinity(eviction_ttl_seconds=0.0, eviction_sweep_seconds=0.0)
    send(plugin, "s", B)
    await anyio.sleep(299)
    assert kept(plugin, "s") == "b"


async def test_a_deleted_endpoint_frees_its_sessions() -> None:
    plugin = affinity()
    send(plugin, "s", B)
    send(plugin, "t", A)
    plugin.forget(PodDeleted(B))
    assert kept(plugin, "s", (A, C)) == "ac"
    assert plugin.dump_state() == {"sessions": 1, "endpoints": {"a": 1}}


async def test_nothing_is_bound_to_an_endpoint_that_was_deleted_meanwhile() -> None:
    plugin = affinity()
    (late,) = endpoints("late")
    late.identity.gone = True
    plugin.forget(PodDeleted(late))
    send(plugin, "s", late)
    assert plugin.dump_state() == {"sessions": 0, "endpoints": {}}


async def test_a_new_endpoint_of_an_old_name_has_none_of_its_sessions() -> None:
    plugin = affinity()
    send(plugin, "s", B)
    assert kept(plugin, "s", endpoints("a", "b")) == "ab"


async def test_no_more_sessions_are_kept_than_configured() -> None:
    plugin = affinity(max_sessions=10)
    for number in range(1000):
        send(plugin, f"s{number}", ABC[number % 3])
    assert plugin.dump_state() == {"sessions": 10, "endpoints": {"a": 4, "b": 3, "c": 3}}
    assert kept(plugin, "s999") == "a"
    assert kept(plugin, "s0") == "abc"


async def test_the_state_shows_the_hundred_endpoints_with_most_sessions() -> None:
    plugin = affinity()
    many = endpoints(*(f"e{number:03}" for number in range(150)))
    for number, one in enumerate(many):
        for session in range(2 if number >= 100 else 1):
            send(plugin, f"{number}-{session}", one)
    state: Any = plugin.dump_state()
    assert state["sessions"] == 200
    assert len(state["endpoints"]) == 100
    assert all(state["endpoints"][f"e{number}"] == 2 for number in range(100, 150))


# -- in the daemon ---------------------------------------------------------------------------


async def test_sessions_stay_and_move_on_when_their_endpoint_goes() -> None:
    text = in_profile(SessionAffinityScorer, MaxScorePicker).replace(
        "{type: session-affinity-scorer}",
        "{type: session-affinity-scorer, parameters: {strategy: session_id}}",
    )
    wiring = wired(text, SessionAffinityScorer, MaxScorePicker)
    plugin = wiring.installed["session-affinity-scorer"].plugin
    headers = {"x-session-id": "s"}
    home = sent(wiring, headers)
    assert {sent(wiring, headers) for _ in range(20)} == {home}
    (gone,) = (one for one in ABC if one.name == home)
    rest = tuple(one for one in ABC if one is not gone)
    plugin.forget(PodDeleted(gone))
    moved = {
        decide(wiring, pool(rest), make_request(headers=headers)).decision.result.target.name
        for _ in range(20)
    }
    assert len(moved) == 1
