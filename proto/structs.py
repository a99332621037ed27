"""`Struct` and what it stands for: metadata and attributes as plain dicts, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from .generated.google.protobuf import ListValue, NullValue, Struct, Value

Json: TypeAlias = "bool | float | str | list[Json] | dict[str, Json] | None"
"""Numbers that come from a Struct are always floats."""


def struct_of(values: Mapping[str, Json]) -> Struct:
    return Struct(fields={name: _value_of(value) for name, value in values.items()})


def values_of(struct: Struct) -> dict[str, Json]:
    """The fields of *struct*; one without a value, which no sender should make, is None."""
    return {name: _json_of(value) for name, value in struct.fields.items()}


def _value_of(value: Json) -> Value:
    match value:
        case None:
            return Value(null_value=NullValue.NULL_VALUE)
        case bool():
            return Value(bool_value=value)
        case str():
            return Value(string_value=value)
        case list():
            return Value(list_value=ListValue(values=[_value_of(item) for item in value]))
        case dict():
            return Value(struct_value=struct_of(value))
        case _:
            return Value(number_value=value)


def _json_of(value: Value) -> Json:
    if value.struct_value is not None:
        return values_of(value.struct_value)
    if value.list_value is not None:
        return [_json_of(item) for item in value.list_value.values]
    if value.string_value is not None:
        return value.string_value
    return value.number_value if value.number_value is not None else value.bool_value
