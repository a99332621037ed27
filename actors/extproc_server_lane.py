"""Lanes: streams whose messages go in and out whole, without an object per frame.

Most messages of a long response only pass by: those are answered where they come in, without a
turn of the event loop for their handler, which has all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any, Final, Protocol, final

from anyio import CancelScope
from grpclib.const import Status

from pointsman.kernel.model import Buffer

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20
LARGE: Final = 1 << 20  # bytes of a message that is copied no more than it must be
PREFIX: Final = 5  # bytes before a gRPC message: compressed flag and length
_PREFIX: Final = Struct(">BI")
_HEAD: Final = Struct(">BHBBIBI")  # a frame's, and the prefix of the message that is all of it

Shortcut = Callable[[bytes], bytes | None]
"""Gives the reply to a message that only passes by, None for one that the handler must have."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return b"%b%c%c%b%b" % (
        len(payload).to_bytes(3, "big"),
        kind,
        flags,
        stream.to_bytes(4, "big"),
        payload,
    )


def literals(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A header block of literals that touch no table, so that it is right at any time."""
    return b"".join(
        b"\x00" + _length(name) + name + _length(value) + value for name, value in headers
    )


def _length(text: bytes) -> bytes:
    """HPACK's integer with seven bits in its first byte."""
    size = len(text)
    if size < 0x7F:
        return bytes((size,))
    size -= 0x7F
    encoded = b"\x7f"
    while size >= 0x80:
        encoded += bytes((size & 0x7F | 0x80,))
        size >>= 7
    return encoded + bytes((size,))


_OPENING: Final = literals([(b":status", b"200"), (b"content-type", b"application/grpc+proto")])


@final
class Coalesced:
    """A transport whose writes of one turn of the event loop leave together."""

    __slots__ = ("_loop", "_pieces", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)

    def flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        if pieces and not self._transport.is_closing():
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def wait_a_turn(self) -> None:
        """Read nothing more until what is ready to run has run."""
        self._transport.pause_reading()
        self._loop.call_soon(self._transport.resume_reading)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self._transport.get_extra_info(name, default)


class Edge(Protocol):
    """The connection, as its lanes see it."""

    paused: bool
    """Whether the transport has more than it can send."""
    message_limit: int
    """Bytes of one message."""
    stream_window: int
    """Bytes that a stream may receive before the peer is told that they were read."""

    def write(self, data: bytes) -> None: ...
    def room(self, stream_window: int) -> int:
        """How many bytes one DATA frame may have now."""
        ...

    def take(self, size: int) -> None:
        """Note that *size* bytes of DATA were sent."""
        ...

    def taken(self, size: int, stream_window: int) -> bool:
        """`take`, if there is room for all of it in one frame; whether there was."""
        ...

    def acknowledge(self, stream: int, size: int) -> None:
        """Tell the peer that it may send *size* bytes more."""
        ...

    def blocked(self, lane: Lane) -> None:
        """*lane* waits for room: push it when the window grows, wake it when the transport can."""
        ...

    def leave(self, number: int) -> None:
        """Forget a lane; what the peer still says on it is ignored."""
        ...


@final
class Lane:
    """One stream of the method that lanes are for: whole messages in, whole messages out."""

    __slots__ = (
        "_at_once",
        "_edge",
        "_ended",
        "_finish",
        "_inbox",
        "_number",
        "_opened",
        "_partial",
        "_pending",
        "_scope",
        "_unacked",
        "_waiter",
        "_window",
        "closed",
        "shortcut",
    )

    def __init__(self, edge: Edge, number: int, window: int) -> None:
        self._edge = edge
        self._number = number
        self._window = window
        """Bytes that the peer takes on this stream."""
        self.closed = False
        """Whether the stream is gone: nothing that is said reaches anybody."""
        self.shortcut: Shortcut | None = None
        self._at_once: Shortcut | None = None
        """The shortcut, as long as the handler waits for a message."""
        self._inbox: list[Buffer] = []
        self._partial = bytearray()
        self._unacked = 0
        self._ended = False
        self._opened = False
        self._pending = bytearray()
        self._finish: bytes | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._scope: CancelScope | None = None

    # -- the handler's side -------------------------------------------------------------------

    async def receive(self) -> list[Buffer]:
        """The messages that came since, at least one; none when the stream has ended.

        Large ones are views of what was received.
        """
        while not self._inbox:
            if self.closed or self._ended:
                return []
            self._at_once = self.shortcut
            await self._wait()
        messages, self._inbox = self._inbox, []
        self._acknowledge()
        return messages

    def _acknowledge(self) -> None:
        """Let the peer send more, once that is worth a frame."""
        if self._unacked > self._edge.stream_window // 2:
            self._edge.acknowledge(self._number, self._unacked)
            self._unacked = 0

    def send(self, messages: Iterable[bytes]) -> None:
        """Queue *messages*; what the peer's windows do not take now goes when they do."""
        if self.closed:
            return
        edge = self._edge
        if not self._opened:
            self._opened = True
            edge.write(frame(HEADERS, END_HEADERS, self._number, _OPENING))
        for message in messages:
            length = len(message)
            size = PREFIX + length
            if self._pending or not edge.taken(size, self._window):
                self._pending += b"\x00" + length.to_bytes(4, "big") + message
            else:
                self._window -= size
                head = _HEAD.pack(size >> 16, size & 0xFFFF, DATA, 0, self._number, 0, length)
                edge.write(head + message)
        if self._pending:
            self.push()

    @property
    def congested(self) -> bool:
        """Whether the peer does not keep up: wait for `drained` before saying more."""
        return bool(self._pending) or self._edge.paused

    async def drained(self) -> None:
        """Wait until everything said has left, or the stream is gone."""
        while self.congested and not self.closed:
            self._edge.blocked(self)
            await self._wait()

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """End the stream from our side, after what is still on its way."""
        if self.closed or self._finish is not None:
            return
        headers = [(b"grpc-status", str(status.value).encode())]
        if message:
            headers.append((b"grpc-message", message.encode("ascii", "replace")))
        opening = b"" if self._opened else _OPENING
        self._finish = opening + literals(headers)
        self.push()

    def cancel_on_close(self, scope: CancelScope | None) -> None:
        """While the handler waits for something else, *scope* ends with the stream."""
        self._scope = scope
        if scope is not None and self.closed:
            scope.cancel()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = self._at_once = None

    # -- the connection's side ----------------------------------------------------------------

    def feed(self, data: bytes, start: int, end: int) -> None:
        """Take in the payload of a DATA frame, ``data[start:end]``."""
        size = end - start
        self._unacked += size
        if not self._partial and size >= PREFIX:
            compressed, length = _PREFIX.unpack_from(data, start)
            if size == PREFIX + length and not compressed:
                self._take_in(data[start + PREFIX : end])
                return
        self._partial += data[start:end]
        self._collect()

    def _take_in(self, message: bytes) -> None:
        """Answer *message* at once if it only passes by; else the handler has it."""
        shortcut = self._at_once
        if shortcut is not None and not self.congested:
            try:
                reply = shortcut(message)
            except Exception as exc:
                self._fail(exc)
                return
            if reply is not None:
                self.send((reply,))
                self._acknowledge()
                return
        self._hand_on(message)

    def _hand_on(self, message: Buffer) -> None:
        self._inbox.append(message)
        self.wake()

    def _fail(self, exc: Exception) -> None:
        """What goes wrong with a stream is its handler's affair, never the connection's."""
        self._at_once = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(exc)

    def _collect(self) -> None:
        """Cut whole messages out of what has come in pieces."""
        while len(self._partial) >= PREFIX:
            whole = self._partial
            length = int.from_bytes(whole[1:PREFIX], "big")
            if whole[0] or length > self._edge.message_limit:
                self._reject(compressed=bool(whole[0]))
                return
            end = PREFIX + length
            if len(whole) < end:
                self._acknowledge()  # the rest of a large message has to have room
                return
            self._partial = whole[end:]
            if length < LARGE:
                self._take_in(bytes(whole[PREFIX:end]))
            else:
                self._hand_on(memoryview(whole)[PREFIX:end].toreadonly())

    def _reject(self, *, compressed: bool) -> None:
        self._partial = bytearray()
        if compressed:
            self.finish(Status.UNIMPLEMENTED, "compressed messages are not supported")
        else:
            limit = self._edge.message_limit
            self.finish(Status.RESOURCE_EXHAUSTED, f"a message may have {limit} bytes")

    def half_close(self) -> None:
        """The peer has nothing more to say."""
        self._ended = True
        self.wake()

    def close(self) -> None:
        """The stream is gone: it was reset, or its connection was lost."""
        self.closed = True
        self._pending.clear()
        self.wake()
        if self._scope is not None:
            self._scope.cancel()

    def wake(self) -> None:
        self._at_once = None  # from now on the handler's order counts
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def widen(self, size: int) -> None:
        """The peer takes *size* bytes more on this stream."""
        self._window += size
        if self._pending:
            self.push()

    def push(self) -> None:
        """Send of what is pending what the windows allow, and then the end."""
        edge, pending = self._edge, self._pending
        while pending and (size := min(edge.room(self._window), len(pending))) > 0:
            self._window -= size
            edge.take(size)
            edge.write(frame(DATA, 0, self._number, bytes(pending[:size])))
            del pending[:size]
        if pending:
            edge.blocked(self)
            return
        if self._finish is not None:
            edge.write(frame(HEADERS, END_HEADERS | END_STREAM, self._number, self._finish))
            edge.leave(self._number)
            self.closed = True
        self.wake()
