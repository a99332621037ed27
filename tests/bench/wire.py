"""HTTP/2 frames and gRPC messages, encoded once and sent on many streams.

Only the stream's number differs between two plays of one exchange, so a step is kept as the
pieces of bytes around that number: one ``join`` writes all frames of the step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from attrs import frozen

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_LIMIT: Final = 16_384  # bytes of payload; Envoy keeps to it whatever the peer would accept
DEFAULT_WINDOW: Final = 65_535  # bytes, until a peer's SETTINGS say otherwise

DATA: Final = 0x0
HEADERS: Final = 0x1
RST_STREAM: Final = 0x3
SETTINGS: Final = 0x4
PING: Final = 0x6
GOAWAY: Final = 0x7
WINDOW_UPDATE: Final = 0x8
CONTINUATION: Final = 0x9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20

SETTINGS_HEADER_TABLE_SIZE: Final = 0x1
SETTINGS_ENABLE_PUSH: Final = 0x2
SETTINGS_MAX_CONCURRENT_STREAMS: Final = 0x3
SETTINGS_INITIAL_WINDOW_SIZE: Final = 0x4

INTERNAL_ERROR: Final = 2  # the code of the reset with which Envoy ends every stream

HEAD: Final = struct.Struct(">BHBBI")  # length (high byte, low bytes), type, flags, stream
_SETTING: Final = struct.Struct(">HI")
_PREFIX: Final = struct.Struct(">xI")  # of a gRPC message: not compressed, length


@frozen
class Step:
    """Messages that are sent back to back, and how many replies are awaited before the next."""

    messages: tuple[bytes, ...]
    replies: int


@frozen
class Burst:
    """A step as frames: ready to be sent on any stream."""

    payloads: tuple[bytes, ...]
    """One per DATA frame."""
    pieces: tuple[bytes, ...]
    """What comes before, between and after the stream's number in those frames."""
    size: int
    """What the frames take from the flow-control windows, in bytes."""
    replies: int


def burst(step: Step) -> Burst:
    """Each message starts a DATA frame, as Envoy sends them."""
    payloads = tuple(part for message in step.messages for part in _parts(message))
    return Burst(payloads, _pieces(payloads), sum(map(len, payloads)), step.replies)


def raw_burst(data: bytes) -> Burst:
    """Bytes that need not be whole messages, as one DATA frame; no reply is awaited."""
    return Burst((data,), _pieces((data,)), len(data), replies=0)


def prefixed(message: bytes) -> bytes:
    """A message as gRPC sends it."""
    return _PREFIX.pack(len(message)) + message


def _parts(message: bytes) -> Iterable[bytes]:
    framed = prefixed(message)
    return (framed[at : at + FRAME_LIMIT] for at in range(0, len(framed), FRAME_LIMIT))


def _pieces(payloads: tuple[bytes, ...]) -> tuple[bytes, ...]:
    before, after = [head(DATA, len(payload)) for payload in payloads], [b"", *payloads]
    return tuple(a + b for a, b in zip(after, [*before, b""], strict=True))


def head(kind: int, size: int, flags: int = 0) -> bytes:
    """The first five bytes of a frame; the stream's number follows."""
    return HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, 0)[:5]


def frame(kind: int, payload: bytes, stream: int = 0, flags: int = 0) -> bytes:
    return head(kind, len(payload), flags) + stream.to_bytes(4, "big") + payload


def settings(values: dict[int, int]) -> bytes:
    """The payload of a SETTINGS frame."""
    return b"".join(_SETTING.pack(*item) for item in values.items())


def read_settings(payload: bytes) -> dict[int, int]:
    return dict(_SETTING.iter_unpack(payload))


def window_update(increment: int, stream: int = 0) -> bytes:
    return frame(WINDOW_UPDATE, increment.to_bytes(4, "big"), stream)


def block_of(payload: bytes, flags: int) -> bytes:
    """The header block inside a HEADERS frame's *payload*."""
    start, end = 0, len(payload)
    if flags & PADDED:
        start, end = 1, end - payload[0]
    return payload[start + 5 if flags & PRIORITY else start : end]


class Framing:
    """Counts the gRPC messages in the bytes of one stream, without looking into them."""

    __slots__ = ("_left", "_partial")

    def __init__(self) -> None:
        self._left = 0  # bytes of the current message that are still to come
        self._partial = b""  # of a prefix that was cut by the end of a frame

    def feed(self, data: bytes | bytearray, start: int, end: int) -> int:
        """Take ``data[start:end]``; how many messages it completes."""
        complete = 0
        while start < end:
            if self._left == 0:
                start = self._prefix(data, start, end)
                if self._partial:
                    break
            else:
                step = min(self._left, end - start)
                start += step
                self._left -= step
            complete += self._left == 0
        return complete

    def _prefix(self, data: bytes | bytearray, start: int, end: int) -> int:
        if not self._partial and end - start >= _PREFIX.size:
            (self._left,) = _PREFIX.unpack_from(data, start)
            return start + _PREFIX.size
        taken = min(_PREFIX.size - len(self._partial), end - start)
        self._partial += data[start : start + taken]
        if len(self._partial) == _PREFIX.size:
            (self._left,) = _PREFIX.unpack(self._partial)
            self._partial = b""
        return start + taken


def messages(data: bytes | bytearray) -> list[bytes]:
    """Cut the bytes of a stream, complete to the last message, into its messages."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        (size,) = _PREFIX.unpack_from(data, at)
        at += _PREFIX.size
        found.append(bytes(data[at : at + size]))
        at += size
    return found
