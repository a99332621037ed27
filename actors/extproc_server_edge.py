"""The fast path beneath grpclib: ext_proc streams without an object per frame.

An `EdgeProtocol` is grpclib's HTTP/2 protocol with a look at each frame before h2 sees it.
Streams that call the one method we serve by the thousand are handled here, in *lanes*: their
headers are decoded by h2's own HPACK decoder (or not at all, when the same bytes were decoded a
moment ago), messages are cut out of DATA frames directly, and the replies of one turn of the
event loop leave in one write. Everything else (settings, pings, other methods, odd frames) is
h2's and grpclib's business, as ever.

What a lane handles h2 never hears of: it does not know the stream, and windows are accounted
for here. Of h2's inner parts this file uses ``decoder`` with its table of dynamic entries,
``outbound_flow_control_window``, ``max_outbound_frame_size`` and ``remote_settings``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import Final, cast, final

from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, H2Protocol
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from hpack.exceptions import HPACKError

from .extproc_server_lane import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Coalesced,
    Lane,
    frame,
    literals,
)

logger = logging.getLogger(__name__)

PREFACE: Final = 24  # bytes that a client sends before its first frame
REFUSED_STREAM: Final = 7
MOST_STREAMS: Final = 10_000  # per connection; h2's default of 100 makes proxies open many
MUCH: Final = 128 * 1024  # bytes read at once after which those that came are handled first
_REMEMBERED: Final = 64  # header blocks per connection
_STREAM_ID: Final = 0x7FFFFFFF
_HEAD: Final = Struct(">BHBBI")  # of a frame: length (high byte, low bytes), kind, flags, stream

_Decoded = tuple[int, object, bool, "list[tuple[bytes, bytes]]"]


class TrackedProtocol(H2Protocol):
    """grpclib's connection, whose server knows from when to when it is there.

    That begins after the handshake: who leaves before it was never there.
    """

    def __init__(
        self,
        handler: AbstractHandler,
        config: Configuration,
        h2_config: H2Configuration,
        made: Callable[[TrackedProtocol], None],
        lost: Callable[[TrackedProtocol], None],
    ) -> None:
        super().__init__(handler, config, h2_config)
        self._made = made
        self._lost = lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.connection._connection.update_settings(
            {SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS}
        )
        self.connection.flush()
        self._made(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._lost(self)

    def hang_up(self) -> None:
        """Close the connection, once what was written has left."""
        self.connection.close()

    def go_away(self) -> None:
        """Tell the peer to open no further streams here; the open ones go on."""
        last = self.connection._connection.highest_inbound_stream_id
        self.connection._transport.write(_go_away(last))


def _go_away(last: int) -> bytes:
    """What h2 would say too, but forbids itself to send anything after."""
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + bytes(4))


@final
class EdgeProtocol(TrackedProtocol):
    """One connection: frames of lanes are handled here, the rest by grpclib."""

    def __init__(
        self,
        handler: AbstractHandler,
        config: Configuration,
        h2_config: H2Configuration,
        made: Callable[[TrackedProtocol], None],
        lost: Callable[[TrackedProtocol], None],
        *,
        path: str,
        open_lane: Callable[[Lane], None],
        message_limit: int,
    ) -> None:
        super().__init__(handler, config, h2_config, made, lost)
        self.lanes: dict[int, Lane] = {}
        self.paused = False
        self.message_limit = message_limit
        self.stream_window = config.http2_stream_window_size
        self._connection_window = config.http2_connection_window_size
        self._path = path.encode("ascii")
        self._open_lane = open_lane
        self._rest: bytes = b""
        self._greeted = False
        self._draining = False
        self._unacked = 0
        self._newest = 0
        self._plain: set[int] = set()
        self._blocked: dict[Lane, None] = {}
        """Lanes that wait for room, in the order of their asking; few of the open ones do."""
        self._decoded: dict[bytes, _Decoded] = {}

    # -- asyncio's callbacks ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = Coalesced(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", self._out))
        self._h2: H2Connection = self.connection._connection

    def connection_lost(self, exc: BaseException | None) -> None:
        lanes, self.lanes = self.lanes, {}
        self._blocked.clear()
        for lane in lanes.values():
            lane.close()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self.paused = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self.paused = False
        super().resume_writing()
        for lane in tuple(self._blocked):
            lane.wake()

    def data_received(self, data: bytes) -> None:
        if len(data) >= MUCH:  # there is more: libuv would bring megabytes before handlers run
            self._out.wait_a_turn()
        if self._rest:
            data = self._rest + data
        start = 0
        if not self._greeted:
            if len(data) < PREFACE:
                self._rest = data
                return
            self._greeted = True
            super().data_received(data[:PREFACE])
            start = PREFACE
        try:
            self._rest = data[self._frames(data, start) :]
        except (HPACKError, ValueError, IndexError) as exc:
            logger.warning("closing a connection that does not speak HTTP/2: %r", exc)
            self._rest = b""
            self._out.close()

    # -- what lanes ask for: see `Edge` ---------------------------------------------------------

    def write(self, data: bytes) -> None:
        self._out.write(data)

    def room(self, stream_window: int) -> int:
        h2 = self._h2
        return min(stream_window, h2.outbound_flow_control_window, h2.max_outbound_frame_size)

    def take(self, size: int) -> None:
        self._h2.outbound_flow_control_window -= size

    def taken(self, size: int, stream_window: int) -> bool:
        h2 = self._h2
        fits = size <= stream_window and size <= h2.max_outbound_frame_size
        if not fits or size > h2.outbound_flow_control_window:
            return False
        h2.outbound_flow_control_window -= size
        return True

    def acknowledge(self, stream: int, size: int) -> None:
        self.write(frame(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big")))

    def blocked(self, lane: Lane) -> None:
        self._blocked[lane] = None

    def leave(self, number: int) -> None:
        lane = self.lanes.pop(number, None)
        if lane is not None:
            self._blocked.pop(lane, None)

    def go_away(self) -> None:
        self._draining = True
        self.write(_go_away(max(self._newest, self._h2.highest_inbound_stream_id)))

    # -- frames -------------------------------------------------------------------------------

    def _frames(self, data: bytes, start: int) -> int:
        """Handle the whole frames of *data*; where the first incomplete one begins."""
        size = len(data)
        while size - start >= 9:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, start)
            length, stream = high << 16 | low, stream & _STREAM_ID
            if length > self._h2.max_inbound_frame_size:
                raise ValueError(f"a frame of {length} bytes")
            payload = start + 9
            end = payload + length
            if end > size:
                break
            lane = self.lanes.get(stream) if kind == DATA else None
            if lane is not None and not flags & PADDED:
                lane.feed(data, payload, end)
                self._received(length)
                if flags & END_STREAM:
                    lane.half_close()
            elif not self._on_frame(kind, flags, stream, data[payload:end]):
                super().data_received(data[start:end])
            start = end
        return start

    def _received(self, size: int) -> None:
        """The connection's window opens again at once; a stream's when its messages are read."""
        self._unacked += size
        if self._unacked > self._connection_window // 2:
            self.acknowledge(0, self._unacked)
            self._unacked = 0

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bool:
        """Handle a frame that is not h2's affair; tell whether it was one."""
        if kind == HEADERS:
            return self._on_headers(flags, stream, payload)
        if kind == SETTINGS:
            self._on_settings(frame(kind, flags, stream, payload))
            return True
        if kind == GOAWAY:
            return True  # the peer opens no more streams; its open ones go on
        if kind == WINDOW_UPDATE and stream == 0:
            super().data_received(frame(kind, flags, stream, payload))
            blocked, self._blocked = self._blocked, {}
            for waiting in blocked:
                waiting.push()
            return True
        lane = self.lanes.get(stream)
        if lane is not None:
            self._on_lane_frame(lane, kind, flags, stream, payload)
            return True
        return self._on_forgotten(kind, stream, payload)

    def _on_lane_frame(
        self, lane: Lane, kind: int, flags: int, stream: int, payload: bytes
    ) -> None:
        if kind == RST_STREAM:
            self.leave(stream)
            lane.close()
        elif kind == WINDOW_UPDATE:
            lane.widen(int.from_bytes(payload, "big") & _STREAM_ID)
        elif kind == DATA:
            content = payload[1 : len(payload) - payload[0]]
            lane.feed(content, 0, len(content))
            self._received(len(payload))
            if flags & END_STREAM:
                lane.half_close()

    def _on_forgotten(self, kind: int, stream: int, payload: bytes) -> bool:
        """Frames of a lane that has left; h2, which never knew it, would take offence."""
        if stream == 0 or stream > self._newest or stream in self._plain:
            return False
        if kind == DATA:
            self._received(len(payload))
        return True

    def _on_settings(self, whole: bytes) -> None:
        """h2 applies them; a change of the initial window concerns open lanes too."""
        before = self._h2.remote_settings.initial_window_size
        super().data_received(whole)
        change = self._h2.remote_settings.initial_window_size - before
        for lane in tuple(self.lanes.values()) if change else ():
            lane.widen(change)

    def _on_headers(self, flags: int, stream: int, block: bytes) -> bool:
        if flags & (PADDED | PRIORITY) or not flags & END_HEADERS:
            self._plain.add(stream)
            return False
        ours, headers = self._decode(block)
        lane = self.lanes.get(stream)
        if lane is not None:
            lane.half_close()  # trailers: a client's have nothing to say
        elif ours and not flags & END_STREAM and stream > self._newest:
            self._open(stream)
        else:
            self._hand_over(flags, stream, headers)
        return True

    def _open(self, stream: int) -> None:
        self._newest = stream
        if self._draining or len(self.lanes) >= MOST_STREAMS:
            self.write(frame(RST_STREAM, 0, stream, REFUSED_STREAM.to_bytes(4, "big")))
            return
        opened = Lane(self, stream, self._h2.remote_settings.initial_window_size)
        self.lanes[stream] = opened
        self._open_lane(opened)

    def _hand_over(self, flags: int, stream: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Give h2 the headers of a stream that is its own, in a form that touches no table."""
        if len(self._plain) > MOST_STREAMS:
            self._plain &= self._h2.streams.keys()
        self._plain.add(stream)
        super().data_received(frame(HEADERS, flags, stream, literals(headers)))

    def _decode(self, block: bytes) -> tuple[bool, list[tuple[bytes, bytes]]]:
        """A header block's headers, and whether they call the lanes' method.

        Bytes mean the same as before while the dynamic table is the same as before.
        """
        entries = self._h2.decoder.header_table.dynamic_entries
        count, first = len(entries), entries[0] if entries else None
        known = self._decoded.get(block)
        if known is not None and known[0] == count and known[1] is first:
            return known[2], known[3]
        headers = [(bytes(h[0]), bytes(h[1])) for h in self._h2.decoder.decode(block, raw=True)]
        ours = self._calls_lanes(headers)
        if len(entries) == count and (not count or entries[0] is first):
            if len(self._decoded) >= _REMEMBERED:
                self._decoded.clear()
            self._decoded[block] = (count, first, ours, headers)
        return ours, headers

    def _calls_lanes(self, headers: list[tuple[bytes, bytes]]) -> bool:
        fields = dict(headers)
        return (
            fields.get(b":path") == self._path
            and fields.get(b":method") == b"POST"
            and fields.get(b"content-type", b"") in (b"application/grpc", b"application/grpc+proto")
        )
