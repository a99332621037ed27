"""What a session tells its observer."""

from __future__ import annotations

from random import Random

import pytest
from attrs import define, field

from pointsman.actors.conversation import (
    BodyMode,
    Event,
    Modes,
    RequestBody,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
)
from pointsman.actors.observing import Ending
from pointsman.actors.session import Session
from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Headers, Request, Usage

from .scripts import Desk, Unobserved, body, headers, opening, say

LEAN = Modes(BodyMode.BUFFERED, BodyMode.NONE)
DUPLEX = Modes()
BODY = RequestBody(body(), end=True)
ANSWER = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 2}}'


@define(eq=False)
class Notes(Unobserved):
    """Notes all that is told."""

    tokens: bool = True
    told: list[str] = field(factory=list[str], init=False)
    ends: list[tuple[EndCause, bool]] = field(factory=list[tuple[EndCause, bool]], init=False)
    refusals: list[Refusal | None] = field(factory=list[Refusal | None], init=False)
    usage: Usage | None = field(default=None, init=False)
    status: int | None = field(default=None, init=False)

    def began(self, request: Request, modes: Modes) -> None:
        self.told.append(f"began {modes.request.name}")

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        self.told.append(f"picked {outcome.decision.result.target.name}")

    def response_began(self, headers: Headers) -> None:
        self.told.append("response")

    def response_opaque(self, encoding: str) -> None:
        self.told.append(f"opaque: {encoding}")

    def chunk_came(self, data: bytes) -> None:
        self.told.append(data.decode())

    def chunk_passed(self) -> None:
        self.told.append("passed")

    def ended(self, ending: Ending) -> None:
        self.ends.append((ending.cause, ending.whole))
        self.refusals.append(ending.refusal)
        self.usage, self.status = ending.usage, ending.status


@pytest.fixture
def notes() -> Notes:
    return Notes()


def talk(notes: Notes, *events: Event, awaits_end: bool = True, broken: bool = False) -> Session:
    """A whole conversation, ended by the proxy."""
    desk = Desk()
    desk.queue(5, 1)
    session = Session(
        desk.wiring,
        lambda: desk.datastore.snapshot,
        desk.settings,
        lambda: 0.0,
        notes,
        Random(1),
        lambda session: awaits_end,
    )
    say(session, *events)
    session.close(broken=broken)
    session.close()
    return session


def response(*chunks: bytes, **more: str) -> list[Event]:
    pieces = [ResponseBody(chunk, end=False) for chunk in chunks]
    return [ResponseHeaders(headers({":status": "200", **more}), end=False), *pieces]


def test_a_conversation_is_told_in_its_order(notes: Notes) -> None:
    talk(notes, opening(), BODY, *response(b"one", b"two"), ResponseBody(b"end", end=True))
    assert notes.told == [
        "began FULL_DUPLEX",
        "picked pod-1",
        "response",
        *("one", "passed", "two", "passed", "end", "passed"),
    ]
    assert notes.ends == [(EndCause.NATURAL, True)]
    assert notes.status == 200


def test_the_end_of_a_lean_conversation_is_the_end_of_its_response(notes: Notes) -> None:
    talk(notes, opening(modes=LEAN), BODY)
    assert notes.told == ["began BUFFERED", "picked pod-1"]
    assert notes.ends == [(EndCause.NATURAL, True)]


def test_who_does_not_wait_for_the_end_does_not_know_it(notes: Notes) -> None:
    talk(notes, opening(modes=LEAN), BODY, awaits_end=False)
    assert [whole for _, whole in notes.ends] == [False]


@pytest.mark.parametrize("broken", [True, False])
def test_a_response_that_breaks_off_is_not_whole(notes: Notes, broken: bool) -> None:
    talk(notes, opening(), BODY, *response(b"one"), broken=broken)
    assert notes.ends == [(EndCause.ERROR if broken else EndCause.CLIENT_DISCONNECT, False)]


def test_trailers_are_an_end_too(notes: Notes) -> None:
    talk(notes, opening(), BODY, *response(b"one"), ResponseTrailers())
    assert notes.ends == [(EndCause.NATURAL, True)]


def test_a_refusal_is_told_with_the_end(notes: Notes) -> None:
    session = talk(notes, opening(), RequestBody(b"no JSON", end=True))
    assert notes.told == ["began FULL_DUPLEX"]
    assert notes.ends == [(EndCause.ERROR, False)]
    assert notes.refusals == [session.refusal]
    assert session.refusal is not None


def test_tokens_are_counted_for_an_observer_alone(notes: Notes) -> None:
    talk(notes, opening(), BODY, *response(ANSWER[:20], ANSWER[20:]), ResponseTrailers())
    assert notes.usage == Usage(prompt_tokens=3, completion_tokens=2)


def test_tokens_are_not_looked_for_when_nobody_wants_them() -> None:
    notes = Notes(tokens=False)
    talk(notes, opening(), BODY, *response(ANSWER), ResponseTrailers())
    assert notes.usage is None


def test_tokens_of_a_compressed_response_are_unknown(notes: Notes) -> None:
    events = response(ANSWER, **{"content-encoding": "gzip"})
    talk(notes, opening(), BODY, *events, ResponseTrailers())
    assert notes.usage is None
    assert [told for told in notes.told if "opaque" in told] == ["opaque: gzip"]


def test_a_compressed_response_of_which_nobody_wants_tokens_is_nothing_to_tell() -> None:
    notes = Notes(tokens=False)
    events = response(ANSWER, **{"content-encoding": "gzip"})
    talk(notes, opening(), BODY, *events, ResponseTrailers())
    assert not [told for told in notes.told if "opaque" in told]


def test_a_plain_response_is_not_opaque(notes: Notes) -> None:
    talk(notes, opening(), BODY, *response(ANSWER), ResponseTrailers())
    assert not [told for told in notes.told if "opaque" in told]
