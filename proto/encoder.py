"""Encoders: one function per message type, which puts its parts in a list back to front.

``encode_X(m, put)`` hands the parts of *m* to *put*, last field first, and returns how many bytes
they are. Back to front, because the length of a message stands before it: its parts are there by
then, and a body is copied once, when all parts are joined, however deep it is. Unknown fields are
not kept by the decoders, so there are none to write.
"""

from __future__ import annotations

import struct
from math import copysign
from typing import Final

import betterproto2
from attrs import frozen

from .schema import FIXED_FORMATS, Field, Item, Schema
from .source import Namespace, block, lines
from .wire import LENGTH, VARINT, put_varint, varint

_SMALL: Final = 128
"""Values and lengths below take one byte."""


def encoder_namespace() -> Namespace:
    helpers = {"copysign": copysign, "put_varint": put_varint, "varint": varint}
    pack = {f"pack_{kind}": struct.Struct(f).pack for kind, f in FIXED_FORMATS.items()}
    return Namespace("encode", {**helpers, **pack})


def encoder_source(schema: Schema, namespace: Namespace) -> str:
    return _Writer(schema, namespace).source()


_ZIGZAG: Final = {
    betterproto2.TYPE_SINT32: "v << 1 ^ v >> 31",
    betterproto2.TYPE_SINT64: "v << 1 ^ v >> 63",
}

_NOT_DEFAULT: Final = {
    # Minus zero is not the default: its bits are not all zero.
    betterproto2.TYPE_DOUBLE: "if v or copysign(1.0, v) < 0.0:",
    betterproto2.TYPE_FLOAT: "if v or copysign(1.0, v) < 0.0:",
}


@frozen
class _Writer:
    """Writes the encoder of one message type.

    The generated code takes the value at hand from *v* and counts in *size*; *n* is the length of
    what has been put last.
    """

    schema: Schema
    namespace: Namespace

    def source(self) -> str:
        backwards = sorted(self.schema.fields, key=lambda field: field.number, reverse=True)
        fields = (self._field(field) for field in backwards)
        return block(
            f"def {self.namespace.function(self.schema.type)}(m, put):",
            lines("size = 0", *fields, "return size"),
        )

    def _field(self, field: Field) -> str:
        put = self._put(field.number, field.item)
        if field.key is not None:
            return self._map(field, field.key)
        if field.repeated and field.item.wire_type == LENGTH:
            return block(f"for v in reversed(m.{field.name}):", put)
        present = _NOT_DEFAULT.get(field.item.kind, "if v:")
        if field.repeated:
            present, put = "if v:", lines(_pack(field.item), self._put_bytes(field.number))
        elif field.presence:
            present = "if v is not None:"
        return lines(f"v = m.{field.name}", block(present, put))

    def _map(self, field: Field, key: Item) -> str:
        """Entries are messages of a key and a value, which are there even if they are defaults."""
        entry = lines(
            "outer, size = size, 0",
            self._put(2, field.item),
            "v = key",
            self._put(1, key),
            "n, size = size, outer",
            self._put_length(field.number),
        )
        return block(f"for key, v in reversed(m.{field.name}.items()):", entry)

    def _put(self, number: int, item: Item) -> str:
        """Put *v* behind its tag."""
        tag = varint(number << 3 | item.wire_type)
        if item.kind == betterproto2.TYPE_BOOL:
            yes, no = tag + b"\x01", tag + b"\x00"
            return f"put({yes!r} if v else {no!r})\nsize += {len(yes)}"
        if item.wire_type == VARINT:
            zigzag = f"v = {_ZIGZAG[item.kind]}" if item.kind in _ZIGZAG else ""
            return lines(zigzag, self._put_varint(tag))
        if item.wire_type != LENGTH:
            width = struct.calcsize(FIXED_FORMATS[item.kind])
            return f"put({tag!r} + pack_{item.kind}(v))\nsize += {len(tag) + width}"
        if item.message is not None:
            function = self.namespace.function(item.message)
            return lines(f"n = {function}(v, put)", self._put_length(number))
        text = "v = v.encode()" if item.kind == betterproto2.TYPE_STRING else ""
        return lines(text, self._put_bytes(number))

    def _put_bytes(self, number: int) -> str:
        return lines("n = len(v)", "put(v)", self._put_length(number))

    def _put_length(self, number: int) -> str:
        """Put tag and length in front of the *n* bytes that have been put, and count all of it."""
        tag = varint(number << 3 | LENGTH)
        small = f"put({self._small(tag)}[n])\nsize += n + {len(tag) + 1}"
        return lines(
            block(f"if n < {_SMALL}:", small),
            block("else:", f"size += n + put_varint(put, {tag!r}, n)"),
        )

    def _put_varint(self, tag: bytes) -> str:
        small = f"put({self._small(tag)}[v])\nsize += {len(tag) + 1}"
        return lines(
            block(f"if 0 <= v < {_SMALL}:", small),
            block("else:", f"size += put_varint(put, {tag!r}, v)"),
        )

    def _small(self, tag: bytes) -> str:
        """The name of a table of *tag* with each varint of one byte."""
        name = f"small_{tag.hex()}"
        self.namespace.globals.setdefault(name, [tag + varint(n) for n in range(_SMALL)])
        return name


def _pack(item: Item) -> str:
    """Make the bytes of a list of numbers, without a tag for each."""
    one = f"pack_{item.kind}(v)"
    if item.wire_type == VARINT:
        one = f"varint({_ZIGZAG.get(item.kind, 'v')})"
    return f'v = b"".join([{one} for v in v])'
