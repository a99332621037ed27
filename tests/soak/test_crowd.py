"""The clients of a soak, before a server that answers rightly or not at all."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from random import Random

import pytest
from tests.bench.checks import WrongReplyError
from tests.bench.conftest import ENDPOINTS
from tests.bench.messages import protos

from . import crowd as crowds
from .crowd import Crowd
from .judging import refused, silent
from .plays import KINDS, Play, buffered_lean, cut_anywhere, deck, duplex_lean, shuffled

pytestmark = pytest.mark.long

Make = Callable[[Random], Play]


@contextmanager
def crowd(port: int, *makes: Make, endpoints: list[str] = ENDPOINTS) -> Generator[Crowd]:
    """Eight streams that nothing holds up, each made by one of *makes*."""
    random = Random(1)

    def plays() -> Iterator[Play]:
        while True:
            yield random.choice(makes)(random)

    made = Crowd(port, plays(), random, lambda since: endpoints, 8, 0.001, 1000.0)
    with closing(made):
        yield made


def until(made: Crowd, condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        made.turn()
        if condition():
            return
    raise AssertionError(f"done {made.done}, wrong {made.wrong}")


def test_right_answers_are_counted_by_kind(baseline_port: int) -> None:
    with crowd(baseline_port, buffered_lean, duplex_lean) as made:
        until(made, lambda: min(made.done[k] for k in ("lean buffered", "lean duplex")) >= 5)
        assert made.wrong == []


def test_an_endpoint_that_is_not_there_is_a_wrong_answer(baseline_port: int) -> None:
    with crowd(baseline_port, buffered_lean, endpoints=["127.0.9.9:1"]) as made:
        until(made, lambda: made.faults["lean buffered"] >= 3)
        assert "is not among the endpoints" in made.wrong[0]
        assert not made.done


def test_a_server_that_says_nothing_is_wrong(
    baseline_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crowds, "PATIENCE", -1.0)
    monkeypatch.setattr(crowds, "CHECK", 0.0)  # or all turns may be over before the next look
    with crowd(baseline_port, buffered_lean) as made:
        until(made, lambda: made.faults.total() > 0)
        assert "nothing came" in made.wrong[0]


def test_conversations_that_are_broken_off_are_nobody_s_fault(baseline_port: int) -> None:
    with crowd(baseline_port, cut_anywhere) as made:
        until(made, lambda: made.done["cut"] >= 20)
        assert made.wrong == []


def test_a_dropped_connection_takes_its_streams_along_and_is_replaced(baseline_port: int) -> None:
    with crowd(baseline_port, buffered_lean) as made:
        made.hold = 1000.0
        until(made, lambda: made.open == 8)
        made.drop_a_line()
        assert made.dropped > 0
        assert len(made.lines) == crowds.LINES - 1
        until(made, lambda: made.open == 8)
        assert len(made.lines) == crowds.LINES
        assert made.wrong == []


def test_at_the_end_nothing_stays_open(baseline_port: int) -> None:
    with crowd(baseline_port, buffered_lean) as made:
        made.hold = 1000.0
        until(made, lambda: made.open == 8)
        made.end_all()
        made.turn()
        assert made.open == 0


def test_a_seed_is_an_order() -> None:
    few = [make(Random(1)) for make in (buffered_lean, duplex_lean, cut_anywhere)]

    def first(seed: int) -> list[str]:
        order = shuffled(few, Random(seed))
        return [next(order).kind for _ in range(30)]

    assert first(1) == first(1) != first(2)


def test_a_deck_has_every_kind_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {make: min(times, 2) for make, times in KINDS.items()}
    monkeypatch.setattr("tests.soak.plays.KINDS", few)
    one, same = deck(Random(3)), deck(Random(3))
    assert len(one) == sum(few.values())
    assert [play.acts for play in one] == [play.acts for play in same]


def refusal(code: int, body: bytes) -> bytes:
    reply = protos().ProcessingResponse()
    reply.immediate_response.status.code = code
    reply.immediate_response.body = body
    data: bytes = reply.SerializeToString()
    return data


SHAPED = b'{"error": {"message": "no", "type": "invalid_request_error", "code": 400}}'


def test_a_refusal_of_the_right_status_and_shape_is_right() -> None:
    refused(400)([refusal(400, SHAPED)], [])
    refused(400, after=1)([b"", refusal(400, SHAPED)], [])


@pytest.mark.parametrize(
    "replies",
    [
        [],
        [refusal(500, SHAPED)],
        [refusal(400, b'{"error": {"message": "no"}}')],
        [refusal(400, SHAPED)] * 2,
    ],
)
def test_any_other_refusal_is_wrong(replies: list[bytes]) -> None:
    with pytest.raises(WrongReplyError):
        refused(400)(replies, [])


def test_who_should_be_silent_and_is_not_is_wrong() -> None:
    silent(after=1)([b""], [])
    with pytest.raises(WrongReplyError):
        silent()([b""], [])
