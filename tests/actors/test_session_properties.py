"""What holds for any conversation, however a proxy orders and cuts it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.conversation import (
    BodyMode,
    Chunk,
    Command,
    Continue,
    Event,
    Modes,
    Part,
    Refuse,
    RequestBody,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    SendTo,
)
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import EndCause, RequestEnd

from .scripts import Desk, body, headers, opening, passed_on, say, wired

DESK = Desk()
modes = st.builds(Modes, st.sampled_from(BodyMode), st.sampled_from(BodyMode))
data = st.one_of(st.just(body()), st.binary(max_size=40))
events = st.one_of(
    st.builds(opening, end=st.booleans(), modes=modes),
    st.builds(RequestBody, data, st.booleans()),
    st.builds(RequestTrailers),
    st.builds(ResponseHeaders, st.just(headers({":status": "200"})), st.booleans()),
    st.builds(ResponseBody, data, st.booleans()),
    st.builds(ResponseTrailers),
)


@st.composite
def cut(draw: st.DrawFn, whole: bytes) -> list[bytes]:
    """*whole* in pieces, some of them empty."""
    places = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    edges = [0, *places, len(whole)]
    return [whole[start:end] for start, end in pairwise(edges)]


@given(st.lists(events, max_size=12))
def test_no_order_of_events_breaks_a_session(script: Sequence[Event]) -> None:
    session = DESK.session()
    commands: list[Command] = []
    for event in script:
        told = session.handle(event)
        assert not any(isinstance(command, Refuse) for command in commands) or told == []
        commands += told
    assert session.close() in EndCause
    assert session.request is None or session.request.ended


@given(cut(body(prompt="明月几时有 " * 20)), st.booleans())
def test_a_request_is_answered_the_same_however_it_is_cut(
    parts: Sequence[bytes], trailers: bool
) -> None:
    script: list[Event] = [opening(), *(RequestBody(part, end=False) for part in parts)]
    script.append(RequestTrailers() if trailers else RequestBody(b"", end=True))
    commands = say(DESK.session(), *script)
    assert isinstance(commands[0], SendTo)
    assert passed_on(commands) == b"".join(parts)
    assert sum(isinstance(command, SendTo) for command in commands) == 1
    chunks = [command for command in commands if isinstance(command, Chunk)]
    assert chunks[-1].end is not trailers


@given(st.lists(st.binary(max_size=100_000), max_size=5))
def test_response_bytes_pass_in_order_and_at_once(parts: Sequence[bytes]) -> None:
    session = DESK.session()
    say(session, opening({":path": "/v1/models"}, end=True))
    say(session, ResponseHeaders(headers({":status": "200"}), end=False))
    for part in parts:
        assert passed_on(session.handle(ResponseBody(part, end=False)), Part.RESPONSE_BODY) == part


@given(modes, data)
def test_every_part_of_a_request_gets_one_kind_of_answer(announced: Modes, sent: bytes) -> None:
    """Where the proxy waits for an answer to a part, there is one, or the conversation is over."""
    session = DESK.session()
    first = session.handle(opening(modes=announced))
    second = session.handle(RequestBody(sent, end=True))
    answers = [*first, *second]
    assert answers
    if announced.request is BodyMode.FULL_DUPLEX or session.over:
        return
    assert isinstance(first[0], Continue | SendTo)
    assert len(second) == 1


class Onlooker:
    """Notes what it sees of responses."""

    type_name: ClassVar = "onlooker"
    saw: ClassVar[list[bytes | EndCause]] = []

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None:
        self.saw.append(chunk)

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        self.saw.append(end.cause)


SHOWN = Desk(wired("plugins: [{type: onlooker}]", Onlooker))


@given(st.lists(st.tuples(events, st.booleans()), max_size=12), st.booleans())
def test_r_05_every_piece_is_seen_once_in_order_and_before_the_end(
    script: Sequence[tuple[Event, bool]], broken: bool
) -> None:
    """However much later than it was sent on, and wherever the conversation breaks off."""
    Onlooker.saw.clear()
    session = SHOWN.session()
    passed: list[bytes | EndCause] = []
    for event, at_once in script:
        shown = session.outcome is not None and session.refusal is None
        session.handle(event)
        if shown and isinstance(event, ResponseBody):
            passed.append(event.data)
        if at_once:
            session.observe()
            assert Onlooker.saw == passed
    cause = session.close(broken=broken)
    session.observe()
    session.close()
    assert Onlooker.saw == [*passed, cause] * (session.outcome is not None)
