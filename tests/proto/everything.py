"""The classes for everything.proto, as betterproto2 would write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import betterproto2
from betterproto2 import Enum, Message, field, map_meta


class Colour(Enum):
    NONE = 0
    RED = 1
    DEEP_BLUE = -7


def _no_colour() -> Colour:
    return Colour(0)


@dataclass(eq=False, repr=False)
class Scalars(Message):
    a_double: float = field(1, betterproto2.TYPE_DOUBLE)
    a_float: float = field(2, betterproto2.TYPE_FLOAT)
    an_int32: int = field(3, betterproto2.TYPE_INT32)
    an_int64: int = field(4, betterproto2.TYPE_INT64)
    a_uint32: int = field(5, betterproto2.TYPE_UINT32)
    a_uint64: int = field(6, betterproto2.TYPE_UINT64)
    a_sint32: int = field(7, betterproto2.TYPE_SINT32)
    a_sint64: int = field(8, betterproto2.TYPE_SINT64)
    a_fixed32: int = field(9, betterproto2.TYPE_FIXED32)
    a_fixed64: int = field(10, betterproto2.TYPE_FIXED64)
    a_sfixed32: int = field(11, betterproto2.TYPE_SFIXED32)
    a_sfixed64: int = field(12, betterproto2.TYPE_SFIXED64)
    a_bool: bool = field(13, betterproto2.TYPE_BOOL)
    a_string: str = field(14, betterproto2.TYPE_STRING)
    some_bytes: bytes = field(15, betterproto2.TYPE_BYTES)
    colour: Colour = field(16, betterproto2.TYPE_ENUM, default_factory=_no_colour)


@dataclass(eq=False, repr=False)
class Repeated(Message):
    doubles: list[float] = field(1, betterproto2.TYPE_DOUBLE, repeated=True)
    floats: list[float] = field(2, betterproto2.TYPE_FLOAT, repeated=True)
    int32s: list[int] = field(3, betterproto2.TYPE_INT32, repeated=True)
    sint64s: list[int] = field(4, betterproto2.TYPE_SINT64, repeated=True)
    fixed32s: list[int] = field(5, betterproto2.TYPE_FIXED32, repeated=True)
    sfixed64s: list[int] = field(6, betterproto2.TYPE_SFIXED64, repeated=True)
    bools: list[bool] = field(7, betterproto2.TYPE_BOOL, repeated=True)
    colours: list[Colour] = field(8, betterproto2.TYPE_ENUM, repeated=True)
    strings: list[bytes] = field(9, betterproto2.TYPE_BYTES, repeated=True)
    far: list[int] = field(1000, betterproto2.TYPE_UINT64, repeated=True)


@dataclass(eq=False, repr=False)
class Maps(Message):
    numbers: dict[int, int] = field(
        1,
        betterproto2.TYPE_MAP,
        map_meta=map_meta(betterproto2.TYPE_INT32, betterproto2.TYPE_SINT32),
    )
    by_bool: dict[bool, float] = field(
        2,
        betterproto2.TYPE_MAP,
        map_meta=map_meta(betterproto2.TYPE_BOOL, betterproto2.TYPE_DOUBLE),
    )
    by_fixed: dict[int, bytes] = field(
        3,
        betterproto2.TYPE_MAP,
        map_meta=map_meta(betterproto2.TYPE_FIXED64, betterproto2.TYPE_BYTES),
    )
    colours: dict[str, Colour] = field(
        4,
        betterproto2.TYPE_MAP,
        map_meta=map_meta(betterproto2.TYPE_STRING, betterproto2.TYPE_ENUM),
    )
    messages: dict[int, Scalars] = field(
        5,
        betterproto2.TYPE_MAP,
        map_meta=map_meta(betterproto2.TYPE_SINT64, betterproto2.TYPE_MESSAGE),
    )


@dataclass(eq=False, repr=False)
class Present(Message):
    a_number: int | None = field(1, betterproto2.TYPE_INT32, optional=True)
    a_string: str | None = field(2, betterproto2.TYPE_STRING, optional=True)
    colour: Colour | None = field(3, betterproto2.TYPE_ENUM, optional=True)
    scalars: Scalars | None = field(4, betterproto2.TYPE_MESSAGE, optional=True)
    inner: Present | None = field(536870911, betterproto2.TYPE_MESSAGE, optional=True)


ALL: Final[tuple[type[Message], ...]] = (Scalars, Repeated, Maps, Present)
