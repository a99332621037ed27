"""The schema of a custom kind: fills in defaults, drops unknown fields, says what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, final

import msgspec
from attrs import frozen

from .failures import Complaint
from .objects import Object, clone, is_list, is_mapping
from .validations import Rule, rules_of

_ROOT: Final = frozenset({"apiVersion", "kind", "metadata"})
_RANGES: Final = {"int32": 2**31, "int64": 2**63}
TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": is_mapping,
    "array": is_list,
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: _is_number(value),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@final
@frozen(eq=False)
class Schema:
    """What objects of one version of a custom kind look like."""

    root: Object
    """An ``openAPIV3Schema``."""
    _rules: Mapping[int, tuple[Rule, ...]]
    """The CEL rules, by the identity of the part of the schema that holds them."""

    @classmethod
    def of(cls, root: Object) -> Schema:
        return cls(root, {id(part): rules_of(part) for part in _parts(root)})

    def prune(self, obj: Object) -> list[str]:
        """Drop from *obj* what the schema does not know; the paths of what was dropped."""
        kept = {name: obj.pop(name) for name in _ROOT & obj.keys()}
        dropped = list(_prune(self.root, obj, ""))
        obj.update(kept)
        return dropped

    def fill_in(self, obj: Object) -> None:
        """Put the defaults where *obj* has nothing."""
        _fill_in(self.root, obj)

    def complaints(self, obj: Object, old: Object | None = None) -> list[Complaint]:
        """What is wrong with *obj*, which replaces *old*."""
        return [*self._check(self.root, obj, ""), *self._check_rules(self.root, obj, old, "")]

    def _check(self, schema: Object, value: Any, path: str) -> Iterator[Complaint]:
        if value is None and schema.get("nullable"):
            return
        wrong = _wrong_type(schema, value)
        if wrong:
            yield Complaint(
                path, f"Invalid value: {_told(value)}: {wrong}", "FieldValueTypeInvalid"
            )
            return
        yield from _check_value(schema, value, path)
        yield from self._check_combinations(schema, value, path)
        for child, part, where in _children(schema, value, path):
            if not (path == "" and where in _ROOT):
                yield from self._check(part, child, where)

    def _check_combinations(self, schema: Object, value: Any, path: str) -> Iterator[Complaint]:
        def fits(part: Object) -> bool:
            return not any(self._check(part, value, path))

        for part in schema.get("allOf", ()):
            yield from self._check(part, value, path)
        if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
            yield _invalid(path, value, "should fit one of the alternatives (anyOf)")
        if "oneOf" in schema and sum(map(fits, schema["oneOf"])) != 1:
            yield _invalid(path, value, "should fit exactly one of the alternatives (oneOf)")
        if "not" in schema and fits(schema["not"]):
            yield _invalid(path, value, "should not fit what is excluded (not)")

    def _check_rules(self, schema: Object, value: Any, old: Any, path: str) -> Iterator[Complaint]:
        if value is None or _wrong_type(schema, value):
            return
        for rule in self._rules.get(id(schema), ()):
            problem = rule.problem(value, old)
            if problem:
                yield Complaint(path, f"Invalid value: {_told(value)}: {problem}")
        for child, part, where in _children(schema, value, path):
            step = where.removeprefix(path).removeprefix(".")
            before = old.get(step) if is_mapping(old) else None
            yield from self._check_rules(part, child, before, where)


def _parts(schema: Object) -> Iterator[Object]:
    """*schema* and all that are inside it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), schema.get("items"), _extra(schema)]
    for part in inner:
        if is_mapping(part):
            yield from _parts(part)


def _extra(schema: Object) -> Object | None:
    """The schema of the fields that have no name of their own."""
    extra = schema.get("additionalProperties")
    return extra if is_mapping(extra) else None


def _children(schema: Object, value: Any, path: str) -> Iterator[tuple[Any, Object, str]]:
    """What is directly inside *value*, each with its schema and its path."""
    if is_list(value) and is_mapping(schema.get("items")):
        for number, item in enumerate(value):
            yield item, schema["items"], f"{path}[{number}]"
    elif is_mapping(value):
        properties = schema.get("properties", {})
        for name, item in value.items():
            part = properties.get(name, _extra(schema))
            if part is not None:
                yield item, part, f"{path}.{name}" if path else name


def _prune(schema: Object, value: Any, path: str) -> Iterator[str]:
    if is_mapping(value) and not _open(schema):
        for name in [name for name in value if name not in schema.get("properties", {})]:
            del value[name]
            yield f"{path}.{name}" if path else name
    for child, part, where in _children(schema, value, path):
        yield from _prune(part, child, where)


def _open(schema: Object) -> bool:
    """Whether fields may be there that the schema does not name."""
    return bool(
        schema.get("x-kubernetes-preserve-unknown-fields")
        or schema.get("x-kubernetes-embedded-resource")
        or schema.get("additionalProperties")
    )


def _fill_in(schema: Object, value: Any) -> None:
    if is_mapping(value):
        for name, part in schema.get("properties", {}).items():
            missing = value.get(name) is None and not part.get("nullable")
            if missing and part.get("default") is not None:
                value[name] = clone(part["default"])
    for child, part, _where in _children(schema, value, ""):
        _fill_in(part, child)


def _wrong_type(schema: Object, value: Any) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        fits = isinstance(value, str) or TYPES["integer"](value)
        return "" if fits else "must be an integer or a string"
    wanted: str = schema.get("type", "")
    if wanted in TYPES and not TYPES[wanted](value):
        return f"{_name_of(value)} instead of {wanted}"
    return ""


def _name_of(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for name, fits in TYPES.items() if fits(value)), "unknown")


def _check_value(schema: Object, value: Any, path: str) -> Iterable[Complaint]:
    allowed = schema.get("enum")
    if allowed is not None and value not in allowed:
        listed = ", ".join(_told(item) for item in allowed)
        message = f"Unsupported value: {_told(value)}: supported values: {listed}"
        yield Complaint(path, message, "FieldValueNotSupported")
    if isinstance(value, str):
        yield from _check_string(schema, value, path)
    elif is_list(value):
        yield from _check_list(schema, value, path)
    elif is_mapping(value):
        yield from _check_mapping(schema, value, path)
    elif _is_number(value):
        yield from _check_number(schema, value, path)


def _check_string(schema: Object, value: str, path: str) -> Iterator[Complaint]:
    pattern = schema.get("pattern")
    if pattern is not None and _pattern(pattern).search(value) is None:
        yield _invalid(path, value, f"should match '{pattern}'")
    yield from _check_size(schema, value, path, "Length", "characters long")


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    # A dollar sign means the very end here, not the place before a last line break.
    return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", text))


def _check_list(schema: Object, value: list[Any], path: str) -> Iterator[Complaint]:
    yield from _check_size(schema, value, path, "Items", "items")
    keys: list[str] | None = schema.get("x-kubernetes-list-map-keys")
    unique = schema.get("x-kubernetes-list-type") == "set" or schema.get("uniqueItems")
    if not keys and not unique:
        return
    seen: set[bytes] = set()
    for number, item in enumerate(value):
        identity = [item.get(key) for key in keys] if keys and is_mapping(item) else item
        encoded = msgspec.json.encode(identity, order="sorted")
        if encoded in seen:
            yield Complaint(
                f"{path}[{number}]", f"Duplicate value: {_told(identity)}", "FieldValueDuplicate"
            )
        seen.add(encoded)


def _check_mapping(schema: Object, value: Object, path: str) -> Iterator[Complaint]:
    for name in schema.get("required", ()):
        if name not in value:
            yield Complaint(
                f"{path}.{name}" if path else name, "Required value", "FieldValueRequired"
            )
    yield from _check_size(schema, value, path, "Properties", "properties")


def _check_size(
    schema: Object, value: str | list[Any] | Object, path: str, what: str, unit: str
) -> Iterator[Complaint]:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"should have at least {least} {unit}")
    if most is not None and len(value) > most:
        yield Complaint(
            path, f"Too long: may not have more than {most} {unit}", "FieldValueTooLong"
        )


def _check_number(schema: Object, value: float, path: str) -> Iterator[Complaint]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (schema.get("exclusiveMinimum") and value == least)):
        yield _invalid(path, value, f"should be greater than or equal to {least}")
    if most is not None and (value > most or (schema.get("exclusiveMaximum") and value == most)):
        yield _invalid(path, value, f"should be less than or equal to {most}")
    step = schema.get("multipleOf")
    if step is not None and value % step:
        yield _invalid(path, value, f"should be a multiple of {step}")
    bound = _RANGES.get(schema.get("format", ""))
    if bound is not None and not -bound <= value < bound:
        yield _invalid(path, value, f"should be a {schema['format']}")


def _invalid(path: str, value: Any, why: str) -> Complaint:
    return Complaint(path, f"Invalid value: {_told(value)}: {why}")


def _told(value: Any) -> str:
    return msgspec.json.encode(value).decode()
