"""One request, from its parsed body to its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from pointsman.kernel.config import read_config
from pointsman.kernel.errors import ViewClosed
from pointsman.kernel.keys import Consumes, DataView, EndpointKey, keys, on
from pointsman.kernel.model import (
    MODEL_NAME,
    REQUEST_BODY,
    REQUEST_HEADERS,
    REQUEST_PATH,
    REQUEST_PRIORITY,
    REQUEST_SCHEDULED,
    REQUEST_SIZE,
    RESPONSE_ENDED,
    WAITING_QUEUE_SIZE,
    EndCause,
    Endpoint,
    RequestEnd,
    RequestScheduled,
    ResponseEnded,
    SchedulingResult,
)
from pointsman.kernel.testing import (
    decide,
    endpoint,
    endpoints,
    make_request,
    pool,
    surroundings,
    wired,
)
from pointsman.kernel.wiring import wire

from . import zoo
from .zoo import (
    NOTE,
    TEXT,
    always,
    failing,
    in_profile,
    listed,
    reading,
    refusal,
    refusing,
    writer,
)

ABC: Final = endpoints("a", "b", "c")
POOL: Final = pool(ABC, {WAITING_QUEUE_SIZE: [1.0, 2.0, 3.0]})
LOAD: Final = Consumes(WAITING_QUEUE_SIZE)


# -- what a request brings -------------------------------------------------------------------


def test_plugins_see_what_the_request_is() -> None:
    seen: list[Any] = []

    def read(data: DataView) -> list[Any]:
        return [
            data[REQUEST_HEADERS].get("x"),
            data[REQUEST_PATH],
            data[REQUEST_SIZE],
            data[REQUEST_PRIORITY],
            data[MODEL_NAME],
            data[REQUEST_BODY],
        ]

    wanted = (REQUEST_HEADERS, REQUEST_PATH, REQUEST_SIZE, REQUEST_PRIORITY, MODEL_NAME)
    wiring = listed(reading(seen, Consumes(*wanted, REQUEST_BODY), read))
    request = make_request(headers={"x": "y"}, path="/p", model="m", priority=-3, size=7)
    decide(wiring, POOL, request, {REQUEST_BODY: {"stream": True}})
    assert seen == [["y", "/p", 7, -3, "m", {"stream": True}]]


def test_what_a_parser_publishes_under_another_name_is_read_under_it() -> None:
    seen: list[Any] = []
    consumer = reading(seen, Consumes(REQUEST_BODY), lambda data: data[REQUEST_BODY])
    text = (
        "plugins: [{type: openai-parser, produces: {request-body: json}},"
        " {type: reading, consumes: {request-body: json}}]\n"
        "requestHandler: {parsers: [{pluginRef: openai-parser}]}"
    )
    decide(wired(text, consumer), POOL, None, {REQUEST_BODY: {"a": 1}})
    assert seen == [{"a": 1}]


def test_what_the_body_does_not_say_is_absent() -> None:
    seen: list[Any] = []
    wiring = listed(reading(seen, Consumes(REQUEST_BODY), lambda data: data.get(REQUEST_BODY)))
    decide(wiring, POOL, None, {TEXT: "nobody reads this"})
    assert seen == [None]


def test_optional_data_that_nobody_produces_is_absent_and_no_violation() -> None:
    seen: list[Any] = []
    wiring = listed(reading(seen, Consumes(optional=[TEXT]), lambda data: data.get(TEXT)))
    decide(wiring, POOL)
    assert seen == [None]
    assert wiring.installed["reading"].failures == 0


def test_optional_data_that_the_configuration_leaves_out_is_absent() -> None:
    seen: list[Any] = []
    wants = Consumes(REQUEST_PATH, optional=[REQUEST_SIZE])
    consumer = reading(seen, wants, lambda data: data.get(REQUEST_SIZE))
    wiring = wired("plugins: [{type: reading, consumes: [request-path]}]", consumer)
    decide(wiring, POOL, make_request(size=9))
    assert seen == [None]


# -- candidates ------------------------------------------------------------------------------


def test_an_empty_pool_cannot_serve() -> None:
    found = refusal(lambda: decide(listed(), pool([])))
    assert (found.status, found.reason, found.retry_after) == (503, "rejected-no-endpoints", 1)


@pytest.mark.parametrize("subset", [frozenset[str](), frozenset({"10.9.9.9"})])
def test_a_hint_that_allows_nobody_cannot_be_served(subset: frozenset[str]) -> None:
    found = refusal(lambda: decide(listed(), POOL, make_request(subset=subset)))
    assert (found.status, found.reason) == (503, "rejected-no-endpoints")


def test_only_what_the_proxy_allows_is_a_candidate() -> None:
    seen: list[Any] = []

    def look(data: DataView, given: Sequence[Endpoint]) -> None:
        seen.append(([e.name for e in given], [*data[WAITING_QUEUE_SIZE]]))

    wiring = listed(zoo.admitter("look", look, LOAD))
    decide(wiring, POOL, make_request(subset=frozenset({"127.0.1.3", "127.0.1.1:8000"})))
    decide(wiring, POOL)
    assert seen == [(["a", "c"], [1.0, 3.0]), (["a", "b", "c"], [1.0, 2.0, 3.0])]


def test_a_column_that_the_snapshot_does_not_have_is_absent() -> None:
    seen: list[Any] = []
    wiring = listed(reading(seen, LOAD, lambda data: data.get(WAITING_QUEUE_SIZE)))
    decide(wiring, pool(ABC))
    assert seen == [None]


def test_two_reads_of_one_request_agree_whatever_the_pool_does() -> None:
    seen: list[Any] = []
    wiring = listed(reading(seen, LOAD, lambda data: data[WAITING_QUEUE_SIZE]))
    for _ in range(2):
        decide(wiring, POOL)
    assert seen[0] is seen[1] is POOL.columns["waiting-queue-size"]


# -- hooks and screeners ---------------------------------------------------------------------


def test_hooks_run_first_and_in_the_order_of_their_data() -> None:
    order: list[str] = []

    def write(data: DataView) -> None:
        order.append("first")
        data[TEXT] = "hello"

    def read(data: DataView) -> None:
        order.append(data[TEXT])

    hooks = [zoo.hook("late", read, Consumes(TEXT)), zoo.hook("early", write, produces=keys(TEXT))]
    decide(listed(*hooks), POOL)
    assert order == ["first", "hello"]


@pytest.mark.parametrize("make", [zoo.hook, zoo.screener, zoo.admitter])
def test_a_refusal_keeps_its_status(make: Callable[..., type[Any]]) -> None:
    found = refusal(lambda: decide(listed(make("strict", refusing)), POOL))
    assert (found.status, str(found)) == (418, "418: no coffee")


def test_every_screener_sees_the_same_and_what_all_keep_stays() -> None:
    seen: list[list[str]] = []
    columns: list[Any] = []

    def without(name: str) -> zoo.Asked:
        def screen(data: DataView, given: Sequence[Endpoint]) -> Sequence[bool]:
            seen.append([e.name for e in given])
            return [e.name != name for e in given]

        return screen

    wiring = listed(
        zoo.screener("x", without("a")),
        zoo.screener("y", without("c")),
        reading(columns, LOAD, lambda data: [*data[WAITING_QUEUE_SIZE]]),
    )
    assert decide(wiring, POOL).decision.result.primary_result.candidates == (ABC[1],)
    assert seen == [["a", "b", "c"]] * 2
    assert columns == [[2.0]]


@pytest.mark.parametrize(
    "broken",
    [failing, always([False]), always(None), always(5)],
    ids=["raises", "too short", "nothing", "no mask"],
)
def test_a_broken_screener_keeps_everyone(broken: zoo.Asked) -> None:
    wiring = listed(zoo.screener("broken", broken))
    assert decide(wiring, POOL).decision.result.primary_result.candidates == ABC
    assert wiring.installed["broken"].failures == 1


def test_screeners_that_leave_nobody_are_no_matter_of_load() -> None:
    found = refusal(lambda: decide(listed(zoo.screener("x", always([0, 0, 0]))), POOL))
    assert (found.status, found.reason) == (503, "rejected-no-endpoints")


# -- producers and admitters -----------------------------------------------------------------


def test_what_a_producer_writes_is_read_by_those_after_it() -> None:
    seen: list[Any] = []
    consumer = reading(seen, Consumes(TEXT), lambda data: data[TEXT])
    decide(listed(consumer, writer("hello", TEXT)), POOL)
    assert seen == ["hello"]


def test_a_column_that_a_producer_writes_follows_the_filters() -> None:
    share = EndpointKey("share", float)
    seen: list[Any] = []

    def produce(data: DataView, given: Sequence[Endpoint]) -> None:
        data[share] = [float(len(e.name)) + number for number, e in enumerate(given)]

    def score(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        seen.append([*data[share]])
        return [0.0] * len(given)

    p = zoo.producer("p", produce, keys(share))
    f, s = zoo.keeper("f", always([True, False, True])), zoo.scorer("s", score, Consumes(share))
    decide(wired(in_profile(f, s, others=[p]), f, s, p), POOL)
    assert seen == [[1.0, 3.0]]


def half(data: DataView, given: Sequence[Endpoint]) -> None:
    """Writes one of its keys, and fails before the other."""
    data[TEXT] = "half"
    failing()


@pytest.mark.parametrize("produce", [failing, refusing, half])
def test_a_failed_producer_leaves_all_its_keys_absent_and_hurts_nobody(
    produce: zoo.Asked,
) -> None:
    seen: list[Any] = []
    consumer = reading(seen, Consumes(TEXT, NOTE), lambda data: (data.get(TEXT), data.get(NOTE)))
    other = EndpointKey("other", int)
    ok = zoo.producer("ok", lambda data, given: data.__setitem__(other, [1, 2, 3]), keys(other))
    wiring = listed(zoo.producer("broken", produce, keys(TEXT, NOTE)), ok, consumer)
    decide(wiring, POOL)
    assert seen == [(None, None)]
    assert (wiring.installed["broken"].failures, wiring.installed["ok"].failures) == (1, 0)


def test_a_producer_without_its_data_is_not_to_blame() -> None:
    seen: list[Any] = []

    def produce(data: DataView, given: Sequence[Endpoint]) -> None:
        data[TEXT] = "half"
        data[TEXT] = data[NOTE]

    silent = zoo.producer("silent", always(None), keys(NOTE))
    needy = zoo.producer("needy", produce, keys(TEXT), Consumes(NOTE))
    wiring = listed(silent, needy, reading(seen, Consumes(TEXT), lambda data: data.get(TEXT)))
    decide(wiring, POOL)
    assert seen == [None]
    assert wiring.installed["needy"].failures == 0


def test_a_view_that_was_kept_is_dead() -> None:
    kept: list[DataView] = []
    wiring = listed(zoo.admitter("keen", lambda data, given: kept.append(data)))
    decide(wiring, POOL)
    with pytest.raises(ViewClosed):
        _ = kept[0].state


def test_an_admitter_without_its_data_admits_and_is_not_to_blame() -> None:
    silent = zoo.producer("silent", always(None), keys(TEXT))
    needy = zoo.admitter("needy", lambda data, given: data[TEXT], Consumes(TEXT))
    wiring = listed(silent, needy)
    decide(wiring, POOL)
    assert wiring.installed["needy"].failures == 0


def test_an_admitter_that_fails_admits() -> None:
    wiring = listed(zoo.admitter("broken", failing))
    decide(wiring, POOL)
    assert wiring.installed["broken"].failures == 1


# -- the decision ----------------------------------------------------------------------------


def test_a_destination_is_bracketed_where_it_must_be() -> None:
    wiring = listed(zoo.picker("all", lambda given, scores: given))
    targets = [endpoint("a", address="fd00::1"), endpoint("b", address="10.0.0.1", port=1)]
    assert decide(wiring, pool(targets)).decision.destination == "[fd00::1]:8000,10.0.0.1:1"


def test_a_pick_is_noted_at_its_first_target() -> None:
    a, b = endpoints("a", "b")
    wiring = listed(zoo.picker("all", lambda given, scores: given))
    for _ in range(3):
        decide(wiring, pool([a, b]))
    assert (a.identity.picks, b.identity.picks) == (3, 0)


def test_headers_for_the_model_server_add_up_and_the_last_wins() -> None:
    wiring = listed(
        zoo.before_request("x", always({"a": "1", "b": "1"})),
        zoo.before_request("y", always({"b": "2"})),
        zoo.before_request("z", always(None)),
    )
    assert decide(wiring, POOL).decision.upstream_headers == {"a": "1", "b": "2"}


@pytest.mark.parametrize("broken", [failing, always(3), always("ab")])
def test_the_decision_stands_when_what_comes_after_it_fails(
    broken: Callable[[DataView, SchedulingResult], Any],
) -> None:
    ok = zoo.before_request("ok", always({"a": "1"}))
    wiring = listed(zoo.before_request("broken", broken), ok)
    assert decide(wiring, POOL).decision.upstream_headers == {"a": "1"}
    assert wiring.installed["broken"].failures == 1


def test_a_plugin_may_still_refuse_after_the_decision() -> None:
    wiring = listed(zoo.before_request("late", refusing))
    assert zoo.refusal(lambda: decide(wiring, POOL)).status == 418
    assert wiring.installed["late"].failures == 0


class Ears:
    """Hears of what happens to requests."""

    type_name = "ears"

    @on(REQUEST_SCHEDULED)
    def began(self, event: RequestScheduled) -> None: ...

    @on(RESPONSE_ENDED)
    def ended(self, event: ResponseEnded) -> None: ...


def test_what_happens_to_a_request_is_published() -> None:
    around = surroundings(Ears)
    topics = [around.topics.topic(key.name) for key in (REQUEST_SCHEDULED, RESPONSE_ENDED)]
    ears = [topic.subscribe("test", capacity=1) for topic in topics]
    wiring = wire(read_config("plugins: [{type: ears}]", "test"), around)
    request = make_request()
    outcome = decide(wiring, POOL, request)
    wiring.director.response_end(outcome, RequestEnd(EndCause.EVICTED))
    assert [one.receiver.poll() for one in ears] == [
        RequestScheduled(request.id, ABC[0]),
        ResponseEnded(request.id, ABC[0], EndCause.EVICTED),
    ]
    around.topics.close()


def test_what_nobody_hears_of_is_not_published() -> None:
    director = listed().director
    assert (director.scheduled, director.response_ended) == (None, None)


def test_a_director_whose_plugins_do_not_wait_decides_at_once() -> None:
    assert not listed(writer("w", TEXT)).director.waits
