"""What the codec needs to know of a message type, read from what betterproto2 keeps of it."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, get_args, get_type_hints

import betterproto2
from attrs import frozen

from .wire import FIXED32, FIXED64, LENGTH, VARINT

MessageType: TypeAlias = type[betterproto2.Message]

FIXED_FORMATS: Final = {
    betterproto2.TYPE_DOUBLE: "<d",
    betterproto2.TYPE_FLOAT: "<f",
    betterproto2.TYPE_FIXED32: "<I",
    betterproto2.TYPE_FIXED64: "<Q",
    betterproto2.TYPE_SFIXED32: "<i",
    betterproto2.TYPE_SFIXED64: "<q",
}
"""The struct formats of the types that take four or eight bytes whatever their value."""

_VARINTS: Final = frozenset(betterproto2.WIRE_VARINT_TYPES)


class UnsupportedField(TypeError):
    """A generated class has a field that the codec cannot carry."""

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message, field)
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return f"{self.message}.{self.field}: wrapped types have no codec"


@frozen
class Item:
    """The type of one value on the wire."""

    kind: str
    """A ``betterproto2.TYPE_…``."""
    python: type
    """What decoding makes of it: a message or enum class where it is one."""

    @property
    def wire_type(self) -> int:
        if self.kind in _VARINTS:
            return VARINT
        if self.kind in FIXED_FORMATS:
            return FIXED32 if struct.calcsize(FIXED_FORMATS[self.kind]) == 4 else FIXED64
        return LENGTH

    @property
    def message(self) -> MessageType | None:
        return self.python if issubclass(self.python, betterproto2.Message) else None

    @property
    def enum(self) -> type[betterproto2.Enum] | None:
        return self.python if issubclass(self.python, betterproto2.Enum) else None

    @property
    def default(self) -> object:
        if self.message is not None:
            return None
        return self.python(0) if self.enum is not None else self.python()


@frozen
class Field:
    """One field of a message."""

    name: str
    number: int
    item: Item
    """Of a map: its values."""
    repeated: bool = False
    presence: bool = False
    """None stands for absent, so that a default value is sent like any other."""
    group: str | None = None
    """The oneof that it is part of."""
    key: Item | None = None
    """Of a map: its keys."""

    @property
    def container(self) -> str:
        """The source of an empty list or dict, if the field is one."""
        return "[]" if self.repeated else "{}" if self.key else ""

    @property
    def default(self) -> object:
        """What an absent field reads as, unless it is a list or a dict."""
        return None if self.presence else self.item.default


@frozen
class Schema:
    """A message type and its fields in the order of their declaration."""

    type: MessageType
    fields: tuple[Field, ...]

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The names of the members of each oneof."""
        found: dict[str, tuple[str, ...]] = {}
        for field in self.fields:
            if field.group is not None:
                found[field.group] = (*found.get(field.group, ()), field.name)
        return found

    def parts(self) -> Iterator[MessageType]:
        """The message types of its fields."""
        return (field.item.message for field in self.fields if field.item.message is not None)


def schema_of(message_type: MessageType) -> Schema:
    assert dataclasses.is_dataclass(message_type)
    hints = get_type_hints(message_type)
    declared = dataclasses.fields(message_type)
    return Schema(message_type, tuple(_field(message_type, f, hints[f.name]) for f in declared))


def reachable(message_type: MessageType) -> dict[MessageType, Schema]:
    """The schemas of *message_type* and of every message that can be inside it."""
    found: dict[MessageType, Schema] = {}
    waiting = [message_type]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found[current] = schema_of(current)
            waiting.extend(found[current].parts())
    return found


def recursive(schemas: Mapping[MessageType, Schema]) -> frozenset[MessageType]:
    """Those message types of *schemas* that can be inside themselves."""
    parts = {message_type: set(schema.parts()) for message_type, schema in schemas.items()}
    inside = {message_type: set(direct) for message_type, direct in parts.items()}
    for _ in schemas:
        for within in inside.values():
            within.update(*(parts[part] for part in within))
    return frozenset(
        message_type for message_type in schemas if message_type in inside[message_type]
    )


def _field(owner: type, declared: dataclasses.Field[Any], hint: Any) -> Field:
    meta: betterproto2.FieldMetadata = declared.metadata["betterproto"]
    metas = meta.map_meta or (meta,)
    if any(part.unwrap is not None for part in metas):
        raise UnsupportedField(owner.__name__, declared.name)
    # What is inside ``list[X]``, ``X | None`` and ``dict[K, V]``; a plain X has nothing inside.
    types = get_args(hint)[: len(metas)] or (hint,)
    *key, item = (Item(part.proto_type, t) for part, t in zip(metas, types, strict=True))
    return Field(
        declared.name,
        meta.number,
        item,
        repeated=bool(meta.repeated),
        presence=bool(meta.optional),
        group=meta.group,
        key=key[0] if key else None,
    )
