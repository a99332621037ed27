"""The protobuf wire format below the level of messages: varints, tags, and fields to step over.

Readers take the buffer and a position and return what they read with the position behind it. They
do not know where the message ends: whoever calls them compares positions afterwards, and reading
beyond the buffer is an IndexError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
START_GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

MAX_DEPTH: Final = 100
"""How deep messages may nest within their own kind, and unknown groups within groups."""

_MAX_32: Final = (1 << 32) - 1
_MAX_64: Final = (1 << 64) - 1


class Malformed(ValueError):
    """The bytes are not a message; the text says in what way."""


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 128 else continue_varint(data, pos + 1, first)


def continue_varint(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Read on at *pos*, behind the *first* byte, which has its continuation bit set.

    Bits beyond the 64th, for which the tenth byte has room, are ignored like everywhere else.
    """
    value = first & 0x7F
    for shift in range(7, 64, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value & _MAX_64, pos
    raise Malformed("a varint has more than ten bytes")


def continue_short(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """Like `continue_varint`, for tags and lengths, which have 32 bits and at most five bytes."""
    value, behind = continue_varint(data, pos, first)
    if value > _MAX_32 or behind - pos > 4:
        raise Malformed("a tag or a length does not fit in 32 bits")
    return value, behind


def skip(data: bytes, pos: int, tag: int) -> int:
    """The position behind the field that *tag* announced, which may lie beyond the buffer."""
    if tag < 8:
        raise Malformed("a field has the number 0")
    kind = tag & 7
    if kind == LENGTH:
        length, pos = _read_short(data, pos)
        return pos + length
    if kind == VARINT:
        return read_varint(data, pos)[1]
    if kind == FIXED64:
        return pos + 8
    if kind == FIXED32:
        return pos + 4
    if kind == START_GROUP:
        return _skip_group(data, pos, tag)
    raise Malformed(f"a field has the wire type {kind}")


def _skip_group(data: bytes, pos: int, tag: int) -> int:
    """Step over a group without recursion, which the sender would control."""
    open_groups = [tag >> 3]
    while open_groups:
        tag, pos = _read_short(data, pos)
        if tag & 7 == START_GROUP and tag > START_GROUP:
            open_groups.append(tag >> 3)
            if len(open_groups) > MAX_DEPTH:
                raise Malformed("groups are nested too deeply")
        elif tag & 7 != END_GROUP:
            pos = skip(data, pos, tag)
        elif tag >> 3 != open_groups.pop():
            raise Malformed("a group ends that did not begin")
    return pos


def _read_short(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    return (first, pos + 1) if first < 128 else continue_short(data, pos + 1, first)


def varint(value: int) -> bytes:
    """Encode *value*; a negative one as its 64 bits."""
    value &= _MAX_64
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def put_varint(put: Callable[[bytes], object], tag: bytes, value: int) -> int:
    """Hand *tag* and *value* to *put*; return how many bytes that were."""
    encoded = tag + varint(value)
    put(encoded)
    return len(encoded)
