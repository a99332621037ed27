"""One HTTP/2 connection that plays ext_proc exchanges as Envoy does.

A step's messages go out together, the next step follows the awaited replies, and a reset ends the
stream. Replies are counted; only `Stream.kept` says whether their bytes are kept.
"""

from __future__ import annotations

import socket
from time import perf_counter
from typing import Final

from attrs import define, field
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple

from . import wire
from .stream import Ending, LoadError, Script, Stream, Tally
from .wire import Burst

METHOD: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
STREAM_WINDOW: Final = 65_536  # bytes the server may send ahead on one stream
CONNECTION_WINDOW: Final = 1 << 20  # and on all streams of a connection
SENT_AT_ONCE: Final = 1 << 18  # bytes
PATIENCE: Final = 15.0  # seconds without a byte before a run counts as stalled

# Envoy spells the path out on every stream; the other headers go by their index after the first.
_REQUEST: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    NeverIndexedHeaderTuple(":path", METHOD),
    (":authority", "ext_proc"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
    ("x-envoy-internal", "true"),
    ("x-forwarded-for", "127.0.0.1"),
)


@define(eq=False)
class Connection:
    """A client's end of a connection. `receive` and `flush` never wait."""

    sock: socket.socket
    streams: dict[int, Stream] = field(factory=dict[int, Stream], init=False)
    limit: int = field(default=1 << 31, init=False)
    """How many streams the server allows at a time."""
    window: int = field(default=wire.DEFAULT_WINDOW, init=False)
    ready: bool = field(default=False, init=False)
    """The server's SETTINGS are here."""
    _out: list[bytes] = field(factory=list[bytes], init=False)
    _buffer: bytearray = field(factory=lambda: bytearray(1 << 18), init=False)
    _held: int = field(default=0, init=False)
    _unacknowledged: int = field(default=0, init=False)
    _next: int = field(default=1, init=False)
    _peer_window: int = field(default=wire.DEFAULT_WINDOW, init=False)
    _encoder: Encoder = field(factory=Encoder, init=False)
    _decoder: Decoder = field(factory=Decoder, init=False)
    _blocks: list[tuple[int, bytes]] = field(factory=list[tuple[int, bytes]], init=False)
    _opening: bytes | None = field(default=None, init=False)

    def greet(self) -> None:
        """Queue the preface and our settings."""
        ours = {wire.SETTINGS_ENABLE_PUSH: 0, wire.SETTINGS_INITIAL_WINDOW_SIZE: STREAM_WINDOW}
        self._out += [
            wire.PREFACE,
            wire.frame(wire.SETTINGS, wire.settings(ours)),
            wire.window_update(CONNECTION_WINDOW - wire.DEFAULT_WINDOW),
        ]

    def open(self, script: Script, tally: Tally, due: float, *, keep: bool = False) -> Stream:
        """Start to play *script*. What it sends waits for `flush`."""
        number = self._next
        self._next += 2
        key = number.to_bytes(4, "big")
        stream = Stream(number, script, tally, due, self._peer_window, key)
        stream.kept = bytearray() if keep else None
        self.streams[number] = stream
        self._out.append(self._headers(key))
        self._advance(stream)
        return stream

    def fileno(self) -> int:
        return self.sock.fileno()

    @property
    def unsent(self) -> bool:
        return bool(self._out)

    def flush(self) -> None:
        """Send as much of what is queued as the socket takes now."""
        while self._out:
            data, pieces = self._first()
            try:
                sent = self.sock.send(data)
            except BlockingIOError:
                return
            except OSError as error:
                raise LoadError(f"{error}, {self._situation}") from error
            self._out[:pieces] = [data[sent:]] if sent < len(data) else []

    def _first(self) -> tuple[bytes, int]:
        """As much of what is queued as a socket takes at once, and of how many pieces it is."""
        size = pieces = 0
        while size < SENT_AT_ONCE and pieces < len(self._out):
            size += len(self._out[pieces])
            pieces += 1
        return b"".join(self._out[:pieces]), pieces

    def receive(self) -> None:
        """Take what the socket has and act on every complete frame.

        Raises:
            LoadError: the server ended the connection or a stream, or answered too much.
        """
        try:
            size = self.sock.recv_into(memoryview(self._buffer)[self._held :])
        except OSError as error:
            raise LoadError(f"{error}, {self._situation}") from error
        if size == 0:
            raise LoadError(f"the server closed the connection, {self._situation}")
        end = self._held + size
        done = self._frames(end)
        self._held = end - done
        self._buffer[: self._held] = self._buffer[done:end]

    def _frames(self, end: int) -> int:
        at = 0
        buffer, unpack = self._buffer, wire.HEAD.unpack_from
        while end - at >= wire.HEAD.size:
            high, low, kind, flags, number = unpack(buffer, at)
            start = at + wire.HEAD.size
            stop = start + (high << 16 | low)
            if stop > end:
                break
            if kind == wire.DATA:
                self._data(number, flags, start, stop)
            else:
                self._control(kind, flags, number, bytes(buffer[start:stop]))
            at = stop
        return at

    def _data(self, number: int, flags: int, start: int, stop: int) -> None:
        self._acknowledge(stop - start)
        stream = self.streams.get(number)
        if stream is None:  # it was reset while this was under way
            return
        if flags & wire.PADDED:
            start, stop = start + 1, stop - self._buffer[start]
        if stream.kept is not None:
            stream.kept += self._buffer[start:stop]
        self._acknowledge_on(stream, stop - start)
        replies = stream.framing.feed(self._buffer, start, stop)
        if replies:
            self._replied(stream, replies)
        if flags & wire.END_STREAM:
            self._ended(stream)

    def _acknowledge(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged >= CONNECTION_WINDOW // 2:
            self._out.append(wire.window_update(self._unacknowledged))
            self._unacknowledged = 0

    def _acknowledge_on(self, stream: Stream, size: int) -> None:
        stream.unacknowledged += size
        if stream.unacknowledged >= STREAM_WINDOW // 2:
            self._out.append(wire.window_update(stream.unacknowledged, stream.number))
            stream.unacknowledged = 0

    def _replied(self, stream: Stream, replies: int) -> None:
        if replies > stream.awaited:
            raise LoadError(f"{stream}, got {replies}")
        stream.awaited -= replies
        if stream.awaited == 0:
            if stream.backlog:
                raise LoadError(f"{stream}, got all before its messages were sent")
            self._advance(stream)

    def _advance(self, stream: Stream) -> None:
        """Send the next step of *stream*, and all that follow and await nothing."""
        if stream.step == 0:
            stream.tally.decided(stream.due)
        stream.step += 1
        if stream.answered:
            self._finish(stream)
            return
        step = stream.script.bursts[stream.step]
        stream.awaited = step.replies
        self._send(stream, step)
        if not step.replies:
            self._advance(stream)

    def resume(self, stream: Stream, script: Script) -> None:
        """Go on with *script* on a stream that was held."""
        stream.script, stream.step = script, -1
        self._advance(stream)

    def reset(self, stream: Stream) -> None:
        """End *stream* at once, as Envoy does; what still comes on it is ignored."""
        code = wire.INTERNAL_ERROR.to_bytes(4, "big")
        self._out.append(wire.frame(wire.RST_STREAM, code, stream.number))
        del self.streams[stream.number]

    def half_close(self, stream: Stream) -> None:
        """Say no more on *stream*."""
        self._out.append(wire.frame(wire.DATA, b"", stream.number, wire.END_STREAM))

    def _finish(self, stream: Stream) -> None:
        ending = stream.script.ending
        if ending is Ending.RESET:
            self.reset(stream)
        if ending is Ending.HALF_CLOSE:
            self.half_close(stream)
        if ending in (Ending.RESET, Ending.HOLD):
            stream.tally.finished()

    def _send(self, stream: Stream, step: Burst) -> None:
        if not stream.backlog and step.size <= self.window and step.size <= stream.window:
            self.window -= step.size
            stream.window -= step.size
            self._out.append(stream.key.join(step.pieces))
        else:
            stream.backlog += step.payloads
            self._push(stream)

    def _push(self, stream: Stream) -> None:
        """Send of the backlog what the windows allow, cutting a payload where they end."""
        while stream.backlog and (room := min(self.window, stream.window)) > 0:
            first, *rest = stream.backlog
            part = first[:room]
            self._out.append(wire.frame(wire.DATA, part, stream.number))
            self.window -= len(part)
            stream.window -= len(part)
            stream.backlog = (*rest,) if len(part) == len(first) else (first[room:], *rest)

    def _headers(self, key: bytes) -> bytes:
        if self._opening is not None:
            return key.join((self._opening[:5], self._opening[5:]))
        block = self._encoder.encode(_REQUEST)
        # From the second time on the block is the same for ever.
        again = self._encoder.encode(_REQUEST)
        self._opening = wire.head(wire.HEADERS, len(again), wire.END_HEADERS) + again
        return wire.head(wire.HEADERS, len(block), wire.END_HEADERS) + key + block

    def _control(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        match kind:
            case wire.HEADERS if flags & wire.END_HEADERS:
                self._header_block(flags, number, payload)
            case wire.WINDOW_UPDATE:
                self._window_update(number, int.from_bytes(payload, "big"))
            case wire.SETTINGS if not flags & wire.ACK:
                self._settings(wire.read_settings(payload))
            case wire.PING if not flags & wire.ACK:
                self._out.append(wire.frame(wire.PING, payload, flags=wire.ACK))
            case wire.RST_STREAM:
                self._reset(number, int.from_bytes(payload, "big"))
            case wire.GOAWAY:
                code, said = int.from_bytes(payload[4:8], "big"), payload[8:].decode("latin-1")
                raise LoadError(f"the server sent GOAWAY {code} {said!r}, {self._situation}")
            case wire.HEADERS | wire.CONTINUATION:
                raise LoadError(f"stream {number}: headers that do not fit in a frame")
            case _:
                pass  # an acknowledgement, or a kind we have no use for

    def _header_block(self, flags: int, number: int, payload: bytes) -> None:
        self._blocks.append((number, wire.block_of(payload, flags)))
        stream = self.streams.get(number)
        if stream is not None and flags & wire.END_STREAM:
            self._ended(stream)

    def _window_update(self, number: int, increment: int) -> None:
        if number == 0:
            self.window += increment
            waiting = [stream for stream in self.streams.values() if stream.backlog]
        else:
            waiting = [stream for stream in [self.streams.get(number)] if stream is not None]
            for stream in waiting:
                stream.window += increment
        for stream in waiting:
            self._push(stream)

    def _settings(self, values: dict[int, int]) -> None:
        self.limit = values.get(wire.SETTINGS_MAX_CONCURRENT_STREAMS, self.limit)
        if wire.SETTINGS_HEADER_TABLE_SIZE in values:
            self._encoder.header_table_size = min(4096, values[wire.SETTINGS_HEADER_TABLE_SIZE])
            self._opening = None
        grown = values.get(wire.SETTINGS_INITIAL_WINDOW_SIZE, self._peer_window) - self._peer_window
        self._peer_window += grown
        for number in list(self.streams):
            self._window_update(number, grown)
        self._out.append(wire.frame(wire.SETTINGS, b"", flags=wire.ACK))
        self.ready = True

    def _ended(self, stream: Stream) -> None:
        """The server ended *stream*: as agreed, or in the midst of it."""
        status = self._status(stream.number)
        agreed = stream.script.ending in (Ending.HALF_CLOSE, Ending.SERVER)
        if not (agreed and stream.answered and status.get("grpc-status") == "0"):
            said = ", ".join(f"{name}: {value}" for name, value in status.items())
            raise LoadError(f"the server ended {stream} ({said})")
        del self.streams[stream.number]
        stream.tally.finished()

    def _reset(self, number: int, code: int) -> None:
        stream = self.streams.get(number)
        if stream is not None:
            raise LoadError(f"the server reset {stream} (code {code})")

    def _status(self, number: int) -> dict[str, str]:
        """What the headers and trailers of a stream say; they are decoded only now, in order."""
        found: dict[str, str] = {}
        for stream, block in self._blocks:
            for name, value in self._decoder.decode(block, raw=True):
                if stream == number:
                    found[name.decode()] = value.decode()
        self._blocks.clear()
        return found

    @property
    def _situation(self) -> str:
        oldest = next(iter(self.streams.values()), None)
        return f"with {len(self.streams)} streams open" + (f", first {oldest}" if oldest else "")


def connected(port: int) -> Connection:
    """A connection to *port* of this machine that has exchanged settings with its server."""
    connection = Connection(dial(port))
    introduce(connection)
    return connection


def dial(port: int) -> socket.socket:
    """Raises LoadError: nobody listens on *port* of this machine."""
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    except OSError as error:
        raise LoadError(f"nothing accepts connections on port {port}: {error}") from error


def introduce(connection: Connection) -> None:
    """Exchange settings with the server; from then on nothing waits."""
    sock = connection.sock
    connection.greet()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    started = perf_counter()
    while not connection.ready:
        connection.flush()
        connection.receive()
        if perf_counter() - started > PATIENCE:
            raise LoadError(f"no SETTINGS from the server within {PATIENCE:.0f} s")
    connection.flush()
    sock.setblocking(False)
