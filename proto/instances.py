"""Instances of the generated classes that cost little to make.

Dataclasses call a default factory for every field that is not given. Here, what is not set is
read from the class; only lists and dicts, which must not be shared, are made for each instance.
The classes behave as before in every other way.
"""

from __future__ import annotations

from typing import Any

from .schema import Field, Schema
from .source import Namespace, block, lines


def slim(schema: Schema) -> None:
    """Give the message class defaults of its own and a constructor that uses them, once."""
    if "_unknown_fields" in vars(schema.type):
        return
    defaults = {field.name: field.default for field in schema.fields if not field.container}
    own = {**defaults, "_unknown_fields": b"", "__init__": _constructor(schema)}
    for name, value in own.items():
        setattr(schema.type, name, value)


def _constructor(schema: Schema) -> Any:
    fields = schema.fields
    defaults = {f"default_{field.name}": field.default for field in fields if not field.container}
    namespace = Namespace("construct", dict(defaults))
    function = namespace.function(schema.type)
    parameters = ", ".join(("self", *(_parameter(field) for field in fields)))
    body = lines(*(f"self.{field.name} = {_value(field)}" for field in fields)) or "pass"
    return namespace.define(function, block(f"def {function}({parameters}):", body))


def _parameter(field: Field) -> str:
    return f"{field.name}=None" if field.container else f"{field.name}=default_{field.name}"


def _value(field: Field) -> str:
    if not field.container:
        return field.name
    return f"{field.container} if {field.name} is None else {field.name}"
