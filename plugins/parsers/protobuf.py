"""As much of gRPC's and protobuf's wire formats as it takes to find a few fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pointsman.kernel.errors import Refusal

FRAME_HEADER: Final = 5  # bytes: a flag, and a length of four
MOST_FIELDS: Final = 100_000
"""Fields of one message; each costs time. Lists of numbers are one field."""
LAST_SHIFT: Final = 63  # bits before the tenth byte of a number, which is the last it can have
UINT32: Final = 0xFFFFFFFF
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Value = int | memoryview
"""A number, or the bytes of anything else."""


class Malformed(ValueError):
    """Bytes that are no protobuf message."""


def framed(body: bytes) -> memoryview:
    """The message in a gRPC request.

    Raises:
        Refusal: 400 when it is compressed or not all there.
    """
    if len(body) < FRAME_HEADER:
        raise Refusal(400, "the gRPC frame is cut short")
    if body[0]:
        raise Refusal(400, "the gRPC message is compressed")
    end = FRAME_HEADER + int.from_bytes(body[1:FRAME_HEADER], "big")
    if end > len(body):
        raise Refusal(400, "the gRPC frame is cut short")
    return memoryview(body)[FRAME_HEADER:end]


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """The fields of a message, number and value, in the order in which they come.

    Raises:
        Malformed: there is something else, or there are too many.
    """
    position = count = 0
    while position < len(message):
        if (count := count + 1) > MOST_FIELDS:
            raise Malformed(f"more than {MOST_FIELDS} fields")
        tag, position = _number(message, position)
        value, position = _value(message, position, tag & 7)
        yield tag >> 3, value


def _value(message: memoryview, position: int, wire_type: int) -> tuple[Value, int]:
    if wire_type == VARINT:
        return _number(message, position)
    if wire_type == LENGTH:
        length, position = _number(message, position)
    elif wire_type in (FIXED64, FIXED32):
        length = 8 if wire_type == FIXED64 else 4
    else:
        raise Malformed(f"wire type {wire_type}")
    end = position + length
    if end > len(message):
        raise Malformed("cut short")
    return message[position:end], end


def _number(message: memoryview, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, LAST_SHIFT + 1, 7):
        if position == len(message):
            raise Malformed("cut short")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise Malformed("a number is too long")


def numbers(packed: memoryview) -> list[int]:
    """A list of uint32 in one field.

    Raises:
        Malformed: a number is too long, or cut short.
    """
    found: list[int] = []
    add = found.append
    number = shift = 0
    for byte in packed:
        if byte < 0x80:
            add((number | byte << shift) & UINT32)
            number = shift = 0
        else:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > LAST_SHIFT:
                raise Malformed("a number is too long")
    if shift:
        raise Malformed("cut short")
    return found


def message_in(message: memoryview, number: int) -> memoryview:
    """The last field *number* of *message* as bytes; empty when there is none."""
    found = memoryview(b"")
    for one, value in fields(message):
        if one == number and isinstance(value, memoryview):
            found = value
    return found
