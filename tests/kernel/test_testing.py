"""The kit for plugin authors does as it says."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import anyio
import pytest
from attrs import define
from trio.testing import MockClock

from pointsman.kernel.errors import AbsentKey, ConfigError, Refusal, UndeclaredKey, ViewClosed
from pointsman.kernel.keys import Consumes, DataView, EndpointKey, keys
from pointsman.kernel.model import (
    MODEL_NAME,
    REQUEST_BODY,
    REQUEST_HEADERS,
    WAITING_QUEUE_SIZE,
    Endpoint,
)
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import (
    Bench,
    decide,
    endpoint,
    endpoints,
    make_request,
    pool,
    surroundings,
    wired,
)

from . import zoo
from .zoo import NOTE, TEXT, always, giving, keeper, producer, scorer, waiting

AB = endpoints("a", "b")
LOAD = Consumes(WAITING_QUEUE_SIZE)
COUNT = StateKey("count", int)


def shorter(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
    longest = max(queue or 0 for queue in data[WAITING_QUEUE_SIZE])
    return [1 - (queue or 0) / longest for queue in data[WAITING_QUEUE_SIZE]]


def test_endpoints_differ_by_name_and_address() -> None:
    assert [(e.name, e.host_port) for e in AB] == [("a", "127.0.1.1:8000"), ("b", "127.0.1.2:8000")]
    made = endpoint("x", address="fd00::1", port=1, labels={"k": "v"}, uid="u")
    assert (made.host_port, made.labels["k"], made.identity.uid) == ("[fd00::1]:1", "v", "u")
    assert endpoint("x").identity is not endpoint("x").identity


def test_a_request_is_what_is_said_of_it() -> None:
    made = make_request(headers={"a": "b"}, path="/p", model="m", priority=2, size=3)
    assert (made.headers.get("a"), made.path, made.model, made.priority, made.size) == (
        "b",
        "/p",
        "m",
        2,
        3,
    )


def test_a_scorer_is_asked_for_scores() -> None:
    bench = Bench(scorer("s", shorter, LOAD)(), AB)
    assert bench.score({WAITING_QUEUE_SIZE: [3.0, 0.0]}) == [0.0, 1.0]


def test_a_filter_is_asked_whom_it_keeps() -> None:
    assert Bench(keeper("f", always([False, True]))(), AB).keep() == [AB[1]]


def test_a_picker_is_asked_whom_it_picks() -> None:
    last = zoo.picker("last", lambda given, scores: given[-1:])
    assert Bench(last(), AB).pick([0.0, 1.0]) == [AB[1]]


def test_a_producer_is_asked_what_it_writes() -> None:
    def produce(data: DataView, given: Sequence[Endpoint]) -> None:
        data[TEXT] = data[REQUEST_HEADERS].get("x") or "none"

    bench = Bench(producer("p", produce, keys(TEXT, NOTE), Consumes(REQUEST_HEADERS))(), AB)
    headers = make_request(headers={"x": "y"}).headers
    assert bench.produce_now({REQUEST_HEADERS: headers}) == {TEXT: "y"}
    assert bench.written == {TEXT: "y"}


async def test_a_producer_may_take_its_time(autojump_clock: MockClock) -> None:
    async def produce(data: DataView) -> None:
        await anyio.sleep(3600)
        data[TEXT] = "late"

    assert await Bench(waiting("w", produce, keys(TEXT))(), AB).produce() == {TEXT: "late"}
    assert await Bench(producer("p", always(None), keys(TEXT))(), AB).produce() == {}


def test_any_other_role_can_be_called() -> None:
    seen: list[bytes] = []
    chunks = zoo.on_response_chunk("c", lambda data, chunk: seen.append(chunk))
    Bench(chunks()).call("on_response_chunk", None, b"x")
    assert seen == [b"x"]


def test_what_is_not_declared_raises_as_in_the_daemon() -> None:
    def nosy(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        data[TEXT] = str(data[WAITING_QUEUE_SIZE])
        return [0.0, 0.0]

    bench = Bench(scorer("nosy", nosy, LOAD)(), AB)
    with pytest.raises(UndeclaredKey):
        bench.score({WAITING_QUEUE_SIZE: [1.0, 2.0]})
    assert bench.violations == [("text", "write")]


def test_what_is_not_given_is_absent() -> None:
    with pytest.raises(AbsentKey):
        Bench(scorer("s", shorter, LOAD)(), AB).score()


def test_what_is_given_but_not_declared_is_not_to_be_had() -> None:
    bench = Bench(scorer("s", lambda data, given: data[TEXT])(), AB)
    with pytest.raises(UndeclaredKey):
        bench.score({TEXT: "there"})


def test_a_column_has_an_entry_per_endpoint() -> None:
    with pytest.raises(ValueError, match="waiting-queue-size: 3 entries for 2 endpoints"):
        Bench(scorer("s", shorter, LOAD)(), AB).score({WAITING_QUEUE_SIZE: [1.0, 2.0, 3.0]})


def test_exceptions_of_a_plugin_come_through() -> None:
    with pytest.raises(ZeroDivisionError):
        Bench(scorer("s", zoo.failing)(), AB).score()


def test_a_view_can_be_had_alone_and_ends_with_its_block() -> None:
    bench = Bench(producer("p", always(None), keys(TEXT))())
    with bench.view() as view:
        view[TEXT] = "x"
    assert bench.written == {TEXT: "x"}
    with pytest.raises(ViewClosed):
        view[TEXT] = "late"


def test_state_lasts_from_call_to_call_until_the_request_ends() -> None:
    def count(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        number = (data.state.read(COUNT) or 0) + 1
        data.state.write(COUNT, number)
        return [number] * len(given)

    bench = Bench(scorer("s", count)(), AB)
    assert [bench.score(), bench.score()] == [[1, 1], [2, 2]]
    assert len(bench.state) == 1
    bench.request.end()
    assert len(bench.state) == 0


def test_a_configuration_needs_no_more_than_what_is_tested() -> None:
    wiring = wired("plugins: [{type: s}]", scorer("s", shorter, LOAD))
    outcome = decide(wiring, pool(AB, {WAITING_QUEUE_SIZE: [3.0, 0.0]}))
    assert outcome.decision.destination == "127.0.1.2:8000"


def test_a_configuration_may_be_refused_and_a_request_too() -> None:
    with pytest.raises(ConfigError):
        wired("plugins: [{type: unknown}]")
    with pytest.raises(Refusal):
        decide(wired(""), pool([]))


def test_what_a_body_says_reaches_the_plugins() -> None:
    seen: list[Any] = []

    def look(data: DataView, given: Sequence[Endpoint]) -> None:
        seen.append((data[MODEL_NAME], data[REQUEST_BODY]))

    wiring = wired("plugins: [{type: look}]", zoo.admitter("look", look, zoo.BODY))
    decide(wiring, pool(AB), make_request(model="m"), {REQUEST_BODY: {"a": 1}})
    assert seen == [("m", {"a": 1})]


@define(eq=False)
class Dice:
    type_name: ClassVar = "dice"
    random: Random

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        return [self.random.random() for _ in endpoints]


def test_chance_is_seeded() -> None:
    scores = [
        decide(wired("plugins: [{type: dice}]", Dice), pool(AB)).decision.result.primary_result
        for _ in range(2)
    ]
    assert scores[0].scores == scores[1].scores


def test_ones_own_plugins_stand_in_for_the_defaults() -> None:
    own = zoo.picker("max-score-picker", lambda given, scores: given[-1:])
    assert decide(wired("", own), pool(AB)).decision.result.target is AB[1]
    assert own.__name__ in surroundings(own).registry.find("max-score-picker").origin


def test_the_stand_ins_read_bodies_and_know_the_metrics() -> None:
    wiring = wired("plugins: [{type: s}]", scorer("s", shorter, LOAD))
    read = wiring.routes.find("/v1/chat/completions").read
    assert read is not None
    parsed = read(b'{"model": "m", "stream": true}')
    assert (parsed.model, parsed.values[REQUEST_BODY]["stream"]) == ("m", True)
    ((extraction,),) = (one.extractions for one in wiring.collections)
    extract = extraction.installed.plugin.extractor({}, frozenset(extraction.names))
    assert extract(b"anything") == {WAITING_QUEUE_SIZE: None}
    assert wiring.collections[0].source.plugin.source() is None


def test_profiles_of_the_stand_ins_run_once_and_the_first_counts() -> None:
    x, y = giving("x", 0, 1), keeper("y", always([False, False]))
    text = (
        "plugins: [{type: x}, {type: y}, {type: single-profile-handler}]\n"
        "schedulingProfiles: [{name: a, plugins: [{pluginRef: y}]},"
        " {name: b, plugins: [{pluginRef: x}]}]"
    )
    result = decide(wired(text, x, y), pool(AB)).decision.result
    assert (result.primary, result.profiles["a"], result.target) == ("b", None, AB[1])


def test_endpoint_keys_of_ones_own_may_be_written() -> None:
    share = EndpointKey("share", float)

    def produce(data: DataView, given: Sequence[Endpoint]) -> None:
        data[share] = [0.5] * len(given)

    assert Bench(producer("p", produce, keys(share))(), AB).produce_now() == {share: [0.5, 0.5]}
