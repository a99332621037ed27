"""What only passes by is answered where it comes in; in every other way it is as if it were not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field
from h2.events import WindowUpdated
from tests.actors.scripts import Desk
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server_lane import Lane
from pointsman.actors.observation import Observation
from pointsman.kernel.model import EndCause
from pointsman.proto import HeaderMap, HeaderValue, HttpHeaders, ProcessingRequest

from .edges import Pair, data_of, message, on_asyncio
from .hosting import body, hosted, opening, response_body

pytestmark = pytest.mark.long


@define(eq=False)
class Handler:
    """Waits for messages all the time and notes what it gets."""

    lane: Lane
    got: list[bytes] = field(factory=list[bytes], init=False)

    async def run(self) -> None:
        while messages := await self.lane.receive():
            self.got += map(bytes, messages)


def echo(data: bytes) -> bytes | None:
    """Small letters only pass by; a question mark is a mistake."""
    if data == b"?":
        raise ValueError("a question")
    return b"re: " + data if data.islower() else None


def told(pair: Pair, *messages: bytes) -> None:
    """Let the peer say all of them in one read."""
    for data in messages:
        pair.peer.send_data(1, message(data))
    pair.send()


async def turns() -> None:
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def handled(pair: Pair, *early: bytes) -> AsyncGenerator[Handler]:
    """A handler with a shortcut, to which *early* was said before it ran; its stream ends then."""
    lane = pair.call()
    lane.shortcut = echo
    handler = Handler(lane)
    told(pair, *early)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handler.run)
        await turns()
        yield handler
        pair.peer.end_stream(1)
        pair.send()


def answered(*messages: bytes) -> bytes:
    return b"".join(message(b"re: " + data) for data in messages)


@on_asyncio
async def test_what_passes_by_does_not_wake_the_handler(pair: Pair) -> None:
    async with handled(pair) as handler:
        pair.wire.take()
        told(pair, b"a", b"b")
        assert data_of(await pair.heard()) == answered(b"a", b"b")
        assert handler.got == []


@on_asyncio
async def test_a_message_cut_in_two_passes_by_as_well(pair: Pair) -> None:
    async with handled(pair) as handler:
        for part in (message(b"abc")[:7], message(b"abc")[7:]):
            pair.peer.send_data(1, part)
            pair.send()
        assert data_of(await pair.heard()) == answered(b"abc")
        assert handler.got == []


@on_asyncio
async def test_nothing_overtakes_what_the_handler_has_not_seen_yet(pair: Pair) -> None:
    async with handled(pair, b"early") as handler:  # nobody waits for it
        told(pair, b"a", b"B", b"c", b"D")
        await turns()
        assert handler.got == [b"early", b"B", b"c", b"D"]
        told(pair, b"e")
        assert data_of(await pair.heard()) == answered(b"a", b"e")
        assert handler.got == [b"early", b"B", b"c", b"D"]


@on_asyncio
async def test_a_mistake_is_the_handlers_affair(pair: Pair) -> None:
    lane, other = pair.call(1), pair.call(3)
    lane.shortcut = echo
    mistakes: list[Exception] = []

    async def handle() -> None:
        try:
            await lane.receive()
        except ValueError as exc:
            mistakes.append(exc)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handle)
        await turns()
        told(pair, b"?", b"?", b"a")
    assert [str(each) for each in mistakes] == ["a question"]
    assert await lane.receive() == [b"?", b"a"]
    pair.peer.send_data(3, message(b"still here"))
    pair.send()
    assert await other.receive() == [b"still here"]


@on_asyncio
async def test_nothing_is_answered_for_a_handler_that_was_cancelled(pair: Pair) -> None:
    lane = pair.call()
    lane.shortcut = echo
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.receive)
        await turns()
        tasks.cancel_scope.cancel()
        told(pair, b"?")
    told(pair, b"a", b"?")
    assert data_of(await pair.heard()) == b""


@on_asyncio
async def test_a_peer_that_does_not_keep_up_is_the_handlers_affair(pair: Pair) -> None:
    """It waits until there is room; the shortcut could only pile up replies."""
    lane = pair.call()
    lane.shortcut = lambda data: data * 20_000
    async with anyio.create_task_group() as tasks:
        handler = Handler(lane)
        tasks.start_soon(handler.run)
        await turns()
        told(pair, b"aaaa", b"b", b"c")  # the first reply is larger than the peer's window
        await turns()
        assert handler.got == [b"b", b"c"]
        pair.edge.pause_writing()
        told(pair, b"d")
        await turns()
        assert handler.got == [b"b", b"c", b"d"]
        pair.peer.end_stream(1)
        pair.send()


@on_asyncio
async def test_what_passes_by_gives_back_its_room(pair: Pair) -> None:
    lane = pair.call()
    lane.shortcut = lambda data: b""
    size, updates = 16_000, 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lane.receive)
        for _ in range(2 * pair.edge.stream_window // size):
            await turns()
            told(pair, b"x" * size)
            events = await pair.heard()
            updates += sum(isinstance(one, WindowUpdated) and one.stream_id == 1 for one in events)
        pair.peer.end_stream(1)
        pair.send()
    assert updates >= 2


@on_asyncio
async def test_room_that_nobody_waits_for_wakes_no_handler(pair: Pair) -> None:
    lane = pair.call()
    lane.shortcut = echo
    async with anyio.create_task_group() as tasks:
        handler = Handler(lane)
        tasks.start_soon(handler.run)
        await turns()
        pair.peer.increment_flow_control_window(1000, 1)
        told(pair, b"a")
        assert data_of(await pair.heard()) == answered(b"a")
        assert handler.got == []
        pair.peer.end_stream(1)
        pair.send()


# -- the server -------------------------------------------------------------------------------


def streamed() -> ProcessingRequest:
    fields = {":status": "200", "content-type": "text/event-stream"}
    listed = [HeaderValue(key=key, raw_value=value.encode()) for key, value in fields.items()]
    return ProcessingRequest(response_headers=HttpHeaders(headers=HeaderMap(headers=listed)))


PIECES = [
    *(b"data: {}\n\n", b"", b'data: {"usa', b'ge":{"completion_tokens":3,', b'"prompt_tokens":2}}'),
    *(b"x" * size for size in (127, 128, 16_000, 17_000, 62_001)),
]


@pytest.mark.parametrize("plain", [False, True])
def test_on_both_edges_a_streamed_response_is_the_same(plain: bool) -> None:
    with hosted(Desk(), plain=plain) as host:
        talk = host.conversation()
        talk.say(opening(), body(completion()), streamed())
        talk.hear(3)
        heard = b""
        for data in PIECES:
            talk.say(response_body(data))
            heard += b"".join(map(piece, talk.hear(1 + len(data) // 62_001)))
        talk.say(response_body(b"", end=True))
        assert [piece(reply) for reply in talk.rest()] == [b""]
        host.until_open(0)
        (series,) = host.server.figures.requests
    assert heard == b"".join(PIECES)
    assert host.server.figures.decisions.ends[EndCause.NATURAL] == 1
    assert (series.response_size.count, series.response_size.sum) == (1, len(heard))
    assert (series.input_tokens.sum, series.output_tokens.sum) == (2, 3)
    assert series.between_chunks.count == len(PIECES) - 2


def piece(reply: Any) -> bytes:
    sent: bytes = reply.response_body.response.body_mutation.streamed_response.body
    return sent


@pytest.mark.parametrize("plain", [False, True])
def test_a_piece_that_cannot_be_noted_ends_only_its_own_conversation(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hosted(Desk(), plain=plain) as host:
        talks = [host.conversation(), host.conversation()]
        for talk in talks:
            talk.say(opening(), body(completion()), streamed())
            talk.hear(3)
        with monkeypatch.context() as patch:
            patch.setattr(Observation, "chunk_came", fails)
            talks[0].say(response_body(b"data"))
            (apology,) = talks[0].rest()
        assert apology.immediate_response is not None
        talks[1].say(response_body(b"data"))
        assert piece(talks[1].hear()[0]) == b"data"


def fails(*_: object) -> None:
    raise RuntimeError("a mistake")
