"""A request after its decision: the response, the end, and what is kept until then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    RESPONSE_CHUNK,
    RESPONSE_HEADERS,
    WAITING_QUEUE_SIZE,
    EndCause,
    Endpoint,
    Headers,
    RequestEnd,
    SchedulingResult,
)
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import (
    decide,
    endpoints,
    make_request,
    pool,
    wired,
)

from . import zoo
from .zoo import (
    END,
    TEXT,
    always,
    failing,
    in_profile,
    listed,
    refusal,
    refusing,
    writer,
)

ABC: Final = endpoints("a", "b", "c")
POOL: Final = pool(ABC, {WAITING_QUEUE_SIZE: [1.0, 2.0, 3.0]})
LOAD: Final = Consumes(WAITING_QUEUE_SIZE)


def test_headers_for_the_client_add_up() -> None:
    seen: list[Any] = []

    def look(data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        seen.append((data[RESPONSE_HEADERS].get("x"), result.target.name))
        return {"served-by": result.target.name}

    wiring = listed(zoo.on_response_headers("look", look, Consumes(RESPONSE_HEADERS)))
    outcome = decide(wiring, POOL)
    added = wiring.director.response_headers(outcome, Headers({"x": b"y"}))
    assert (seen, added) == ([("y", "a")], {"served-by": "a"})


@pytest.mark.parametrize("broken", [failing, refusing, always(3)])
def test_a_response_goes_on_whatever_happens_to_it(
    broken: Callable[[DataView, SchedulingResult], Any],
) -> None:
    wiring = listed(
        zoo.on_response_headers("broken", broken),
        zoo.on_response_headers("ok", always({"a": "1"})),
    )
    assert wiring.director.response_headers(decide(wiring, POOL), Headers({})) == {"a": "1"}
    assert wiring.installed["broken"].failures == 1


def test_chunks_are_shown_in_order_as_argument_and_as_data() -> None:
    seen: list[bytes] = []

    def look(data: DataView, chunk: bytes) -> None:
        assert data[RESPONSE_CHUNK] is chunk
        seen.append(chunk)

    wiring = listed(
        zoo.on_response_chunk("broken", failing),
        zoo.on_response_chunk("look", look, Consumes(RESPONSE_CHUNK)),
    )
    outcome = decide(wiring, POOL)
    for chunk in (b"a", b"b"):
        wiring.director.response_chunk(outcome, chunk)
    assert seen == [b"a", b"b"]
    assert wiring.installed["broken"].failures == 2


@pytest.mark.parametrize("broken", [failing, refusing])
def test_everyone_hears_of_the_end_whatever_one_of_them_does(
    broken: Callable[[DataView, RequestEnd], None],
) -> None:
    ends: list[RequestEnd] = []
    wiring = listed(
        zoo.on_response_end("broken", broken),
        zoo.on_response_end("ok", lambda data, end: ends.append(end)),
    )
    wiring.director.response_end(decide(wiring, POOL), END)
    assert ends == [END]


def test_data_of_a_request_lasts_to_its_end() -> None:
    seen: list[Any] = []
    wiring = listed(
        writer("hello", TEXT),
        zoo.on_response_end("r", lambda data, end: seen.append(data[TEXT]), Consumes(TEXT)),
    )
    wiring.director.response_end(decide(wiring, POOL), END)
    assert seen == ["hello"]


# -- state over the stages, without a stage after the cycle ------------------------------------

BEST: Final = StateKey("best", str)


class Tally:
    """Writes in score, reads before the request, finishes at its end."""

    type_name = "tally"

    def __init__(self) -> None:
        self.finished: list[str] = []

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        data.state.write(BEST, endpoints[-1].name)
        return [0.0] * len(endpoints)

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {"x-best": data.state.read(BEST) or "?"}

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        best = data.state.read(BEST)
        self.finished.append(f"{best} {end.cause.value}")


@pytest.mark.parametrize("steps", range(4))
def test_state_is_dropped_wherever_the_client_leaves(steps: int) -> None:
    wiring = wired(in_profile(Tally), Tally)
    installed, request = wiring.installed["tally"], make_request()
    if steps > 0:
        outcome = decide(wiring, POOL, request)
        assert outcome.decision.upstream_headers == {"x-best": "c"}
        assert len(installed.state) == 1
        if steps > 1:
            wiring.director.response_headers(outcome, Headers({}))
        if steps > 2:
            wiring.director.response_chunk(outcome, b"x")
        wiring.director.response_end(outcome, RequestEnd(EndCause.CLIENT_DISCONNECT))
        assert installed.plugin.finished == ["c client-disconnect"]
    request.end()
    assert len(installed.state) == 0


def test_a_refused_request_leaves_no_state() -> None:
    none = zoo.keeper("none", always([False, False, False]))
    noting = zoo.admitter("noting", lambda data, given: data.state.write(BEST, "x"))
    wiring = wired(in_profile(none, others=[noting]), none, noting)
    request = make_request()
    refusal(lambda: decide(wiring, POOL, request))
    assert len(wiring.installed["noting"].state) == 1
    request.end()
    assert len(wiring.installed["noting"].state) == 0


# -- how profiles rate ------------------------------------------------------------------------


def by_queue(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
    return [(queue or 0.0) / 10 for queue in data[WAITING_QUEUE_SIZE]]


@pytest.mark.parametrize("snapshot", [POOL, pool([])], ids=["three", "none"])
def test_endpoints_can_be_rated_without_a_request(snapshot: Snapshot) -> None:
    queue = zoo.scorer("queue", by_queue, LOAD)
    wiring = wired(in_profile(queue), queue)
    rated = {name: result.scores for name, result in wiring.director.rate(snapshot).items()}
    assert rated == ({"only": [0.1, 0.2, 0.3]} if snapshot.endpoints else {})
