"""Hypothesis strategies: official messages with anything in them, and bytes around and within."""

from __future__ import annotations

from typing import Any, Final

import betterproto2
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from pointsman.proto.wire import (
    END_GROUP,
    FIXED32,
    FIXED64,
    LENGTH,
    START_GROUP,
    VARINT,
    read_varint,
    skip,
    varint,
)

from . import oracle

_FIELD: Final = oracle.runtime("descriptor").FieldDescriptor
_SIGNED_32: Final = st.integers(-(1 << 31), (1 << 31) - 1)
_SIGNED_64: Final = st.integers(-(1 << 63), (1 << 63) - 1)
_UNSIGNED_32: Final = st.integers(0, (1 << 32) - 1)
_UNSIGNED_64: Final = st.integers(0, (1 << 64) - 1)

_VALUES: Final[dict[int, SearchStrategy[Any]]] = {
    _FIELD.TYPE_BOOL: st.booleans(),
    _FIELD.TYPE_BYTES: st.binary(max_size=300),
    _FIELD.TYPE_DOUBLE: st.floats(allow_nan=False),
    _FIELD.TYPE_ENUM: st.integers(-2, 6) | _SIGNED_32,
    _FIELD.TYPE_FIXED32: _UNSIGNED_32,
    _FIELD.TYPE_FIXED64: _UNSIGNED_64,
    _FIELD.TYPE_FLOAT: st.floats(allow_nan=False, width=32),
    _FIELD.TYPE_INT32: _SIGNED_32,
    _FIELD.TYPE_INT64: _SIGNED_64,
    _FIELD.TYPE_SFIXED32: _SIGNED_32,
    _FIELD.TYPE_SFIXED64: _SIGNED_64,
    _FIELD.TYPE_SINT32: _SIGNED_32,
    _FIELD.TYPE_SINT64: _SIGNED_64,
    _FIELD.TYPE_STRING: st.text(max_size=200),
    _FIELD.TYPE_UINT32: _UNSIGNED_32,
    _FIELD.TYPE_UINT64: _UNSIGNED_64,
}


def official(message_type: type[betterproto2.Message]) -> SearchStrategy[Any]:
    """Messages of the official runtime, each field set or not."""
    return _filled(oracle.descriptor(message_type), 4)


@st.composite
def _filled(draw: DrawFn, descriptor: Any, levels: int) -> Any:
    message = oracle.runtime("message_factory").GetMessageClass(descriptor)()
    chosen = draw(st.integers(0, (1 << len(descriptor.fields)) - 1))
    for index, field in enumerate(descriptor.fields):
        if chosen >> index & 1 and (field.message_type is None or levels > 0):
            _fill(draw, message, field, levels - 1)
    return message


def _fill(draw: DrawFn, message: Any, field: Any, levels: int) -> None:
    """Set one field, which clears the others of its oneof."""
    if oracle.is_map(field):
        _fill_map(draw, getattr(message, field.name), field.message_type, levels)
    elif field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(_value(field, levels), max_size=3)))
    elif field.message_type is not None:
        part = getattr(message, field.name)
        part.SetInParent()
        part.CopyFrom(draw(_value(field, levels)))
    else:
        setattr(message, field.name, draw(_value(field, levels)))


def _fill_map(draw: DrawFn, entries: Any, entry: Any, levels: int) -> None:
    key, value = (entry.fields_by_name[name] for name in ("key", "value"))
    for name in draw(st.lists(_value(key, levels), max_size=3, unique=True)):
        if value.message_type is None:
            entries[name] = draw(_value(value, levels))
        else:
            entries[name].CopyFrom(draw(_value(value, levels)))


def _value(field: Any, levels: int) -> SearchStrategy[Any]:
    if field.message_type is not None:
        return _filled(field.message_type, levels)
    return _VALUES[field.type]


def _field(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + content


def _with_length(number: int, content: bytes) -> bytes:
    return _field(number, LENGTH, varint(len(content)) + content)


_NUMBERS: Final = st.integers(2_000, (1 << 29) - 2)
"""Of fields that no message has."""

_PLAIN: Final = st.one_of(
    st.builds(_field, _NUMBERS, st.just(VARINT), st.builds(varint, _UNSIGNED_64)),
    st.builds(_field, _NUMBERS, st.just(FIXED32), st.binary(min_size=4, max_size=4)),
    st.builds(_field, _NUMBERS, st.just(FIXED64), st.binary(min_size=8, max_size=8)),
    st.builds(_with_length, _NUMBERS, st.binary(max_size=300)),
)


def _group(number: int, fields: list[bytes]) -> bytes:
    return b"".join((_field(number, START_GROUP, b""), *fields, _field(number, END_GROUP, b"")))


unknown: Final = st.recursive(
    _PLAIN, lambda fields: st.builds(_group, _NUMBERS, st.lists(fields, max_size=3)), max_leaves=5
)
"""The bytes of a field that no message has."""


@st.composite
def scattered(draw: DrawFn, data: bytes, descriptor: Any) -> bytes:
    """The serialized message *data* with unknown fields between its own, on every level."""
    parts = [draw(_noise)]
    pos = 0
    while pos < len(data):
        tag, start = read_varint(data, pos)
        end = skip(data, start, tag)
        part = descriptor.fields_by_number[tag >> 3].message_type
        if part is None:
            parts.append(data[pos:end])
        else:
            _, start = read_varint(data, start)
            inner = draw(scattered(data[start:end], part))
            parts.append(_with_length(tag >> 3, inner))
        parts.append(draw(_noise))
        pos = end
    return b"".join(parts)


_noise: Final = st.just(b"") | unknown


@st.composite
def damaged(draw: DrawFn, data: bytes) -> bytes:
    """*data* cut off somewhere, or with a few bytes changed."""
    if not data or draw(st.booleans()):
        return data[: draw(st.integers(0, len(data)))]
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        changed[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(changed)
