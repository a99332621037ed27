"""Document data into frozen attrs classes: strict, tolerant of nothing, complete in its complaints.

Fields are snake_case in Python and camelCase in the document (``metadata={"key": ...}`` for
other spellings). Numbers are not made of strings, nor strings of numbers. All mistakes of a
document are found in one go: what is wrong is noted, left out, and the rest is read on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, NewType, TypeVar, cast

import attrs
from cattrs import Converter, IterableValidationError
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from .document import Document, Path, Table
from .registry import did_you_mean

T = TypeVar("T")
Duration = NewType("Duration", float)
"""Seconds; written as Go does: ``200ms``, ``1m30s``, ``0s``."""
Quantity = NewType("Quantity", int)
"""A whole number; written as Kubernetes does: ``5000``, ``10Mi``, ``1G``."""

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_LONGEST: Final = 2**63 / 1e9  # seconds in Go's largest duration
_QUANTITY: Final = re.compile(r"(-?\d{1,30}(?:\.\d{1,30})?)(m|k|[KMGTPE]i?|)", re.ASCII)
_FACTORS: Final[Mapping[str, int | Fraction]] = {
    "m": Fraction(1, 1000),
    "": 1,
    "k": 10**3,
    **{letter: 10 ** (3 * power) for power, letter in enumerate("KMGTPE", 1)},
    **{f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
}


class FieldError(ValueError):
    """A value of one field is out of bounds; validators raise it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return self.message


def parse_duration(text: str) -> Duration:
    """Seconds of a Go duration. Raises ValueError with what is wrong."""
    if text in ("0", "+0", "-0"):
        return Duration(0.0)
    sign, digits = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    parts = list(_DURATION_PART.finditer(digits))
    if not parts or "".join(part[0] for part in parts) != digits:
        raise ValueError(f"{text!r} is no duration such as '200ms' or '1m30s'")
    seconds = sum(float(part[1]) * _UNITS[part[2]] for part in parts)
    if seconds >= _LONGEST:
        raise ValueError(f"{text!r} is out of range: a duration is less than 292 years")
    return Duration(sign * seconds)


def parse_quantity(value: str | int) -> Quantity:
    """The number of a Kubernetes quantity, fractions rounded up as there.

    Raises ValueError with what is wrong.
    """
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        raise ValueError(f"{value!r} is no quantity such as '5000', '10Mi' or '1G'")
    exact = Fraction(match[1]) * _FACTORS[match[2]]
    amount = math.ceil(exact)
    if exact < 0 or amount >= 2**63:
        raise ValueError(f"{value!r} is out of range: a quantity is between 0 and 2^63-1")
    return Quantity(amount)


def key_of(field: attrs.Attribute[Any]) -> str:
    """How a document spells a field."""
    named = field.metadata.get("key")
    if named is not None:
        return str(named)
    first, *rest = field.name.split("_")
    return first + "".join(word.capitalize() for word in rest)


Validator = Callable[[object, "attrs.Attribute[Any]", Any], None]


def at_least(least: float) -> Validator:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and not value >= least:
            raise FieldError(field.name, f"must be at least {least:g}, not {value:g}")

    return check


def above(bound: float) -> Validator:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and not value > bound:
            raise FieldError(field.name, f"must be above {bound:g}, not {value:g}")

    return check


def within(low: float, high: float) -> Validator:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and not low <= value <= high:
            raise FieldError(field.name, f"must be from {low:g} to {high:g}, not {value:g}")

    return check


def one_of(*allowed: str) -> Validator:
    def check(_: object, field: attrs.Attribute[Any], value: Any) -> None:
        if value not in allowed:
            listed = ", ".join(allowed)
            raise FieldError(field.name, f"must be one of {listed}, not {value!r}")

    return check


def not_blank(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not str(value).strip():
        raise FieldError(field.name, "must not be empty")


class _WrongType(ValueError):
    """A value is of another type than its field."""


def _strictly(kind: str, accept: Callable[[object], bool]) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if not accept(value):
            raise _WrongType(f"must be {kind}, not {_name_of(value)}")
        return value

    return structure


def _name_of(value: object) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return repr(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _list_of(converter: Converter) -> Callable[[Any], Callable[[Any, Any], Any]]:
    """Lists are lists, not strings or mappings; each item is structured on its own."""

    def factory(wanted: Any) -> Callable[[Any, Any], Any]:
        plain_list = list[wanted.__args__[0]]

        def structure(value: Any, _: Any) -> Any:
            if not isinstance(value, list):
                raise _WrongType(f"must be a list, not {_name_of(cast('object', value))}")
            return tuple(converter.structure(value, plain_list))

        return structure

    return factory


def _is_tuple(wanted: Any) -> bool:
    return getattr(wanted, "__origin__", None) is tuple


def _class_hook(converter: Converter) -> Callable[[Any], Callable[[Any, Any], Any]]:
    def factory(wanted: Any) -> Callable[[Any, Any], Any]:
        fields = attrs.fields(wanted)
        known = {key_of(field) for field in fields}
        spelled: dict[str, Any] = {
            field.name: override(omit=True)
            if field.name == "at" or not field.init
            else override(rename=key_of(field))
            for field in fields
        }
        generated = make_dict_structure_fn(
            wanted, converter, _cattrs_forbid_extra_keys=True, **spelled
        )

        def structure(value: Any, _: Any) -> Any:
            if not isinstance(value, Mapping):
                raise _WrongType(f"must be a mapping, not {_name_of(cast('object', value))}")
            table = cast("Mapping[str, Any]", value)
            # As in Go, an explicit null is a field left out; of an unknown one it is a mistake.
            said = {k: item for k, item in table.items() if item is not None or k not in known}
            made = generated(said, wanted)
            if isinstance(value, Table) and hasattr(made, "at"):
                object.__setattr__(made, "at", value.path)
            return made

        return structure

    return factory


def _converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook(str, _strictly("a text", lambda v: isinstance(v, str)))
    converter.register_structure_hook(bool, _strictly("true or false", _is_bool))
    converter.register_structure_hook(int, _strictly("a whole number", _is_whole))
    converter.register_structure_hook(float, _strictly("a number", _is_number))
    converter.register_structure_hook_func(lambda t: t is Duration, _structure_duration)
    converter.register_structure_hook_func(lambda t: t is Quantity, _structure_quantity)
    converter.register_structure_hook_factory(_is_tuple, _list_of(converter))
    converter.register_structure_hook_factory(attrs.has, _class_hook(converter))
    return converter


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _structure_duration(value: Any, _: Any) -> Duration:
    if not isinstance(value, str):
        raise _WrongType(f"must be a duration such as '200ms', not {_name_of(value)}")
    return parse_duration(value)


def _structure_quantity(value: Any, _: Any) -> Quantity:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise _WrongType(f"must be a quantity such as '10Mi', not {_name_of(value)}")
    return parse_quantity(value)


CONVERTER: Final = _converter()


def structure(document: Document, data: object, wanted: type[T], path: Path = ()) -> T | None:
    """*data* as a *wanted*; what does not fit is noted in the document and left out.

    None when nothing useful remains.
    """
    blamed: set[Path] = set()
    while True:
        try:
            return CONVERTER.structure(data, wanted)
        except Exception as exc:
            wrong = list(_mistakes(exc, (), wanted))
            for steps, message, hint in wrong:
                where = _origin(data, steps, path)
                if where not in blamed:  # or what was left out as wrong is missed as required
                    blamed.add(where)
                    document.blame(where, message, hint)
            data = _without(data, [where for where, _, _ in wrong])
            if data is None:
                return None


def _origin(data: object, steps: Path, path: Path) -> Path:
    """Where in the document the *steps* lead: what was left out may have moved their goal."""
    for step in steps:
        path = (*path, step)
        data = cast("Any", data)[step] if _present(data, (step,)) else None
        if isinstance(data, Table):
            path = data.path
    return path


def _mistakes(exc: BaseException, path: Path, wanted: Any) -> Iterator[tuple[Path, str, str]]:
    """Where each part of a cattrs error is, and what to say about it."""
    if isinstance(exc, ClassValidationError):
        for part in exc.exceptions:
            step = _step(part, exc.cl)
            yield from _mistakes(part, (*path, *step), exc.cl)
    elif isinstance(exc, IterableValidationError):
        for part in exc.exceptions:
            yield from _mistakes(part, (*path, *_step(part, None)), None)
    elif isinstance(exc, ForbiddenExtraKeysError):
        known = [key_of(field) for field in attrs.fields(exc.cl) if field.name != "at"]
        for key in sorted(exc.extra_fields):
            yield (*path, key), "unknown field", did_you_mean(key, known)
    elif isinstance(exc, FieldError):
        yield (*path, *_key_step(wanted, exc.field)), exc.message, ""
    elif isinstance(exc, KeyError):
        yield (*path, str(exc.args[0])), "is required", ""
    else:
        yield path, str(exc), ""


def _step(exc: BaseException, owner: Any) -> Path:
    for note in getattr(exc, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return () if isinstance(exc, KeyError) else _key_step(owner, note.name)
        if isinstance(note, IterableValidationNote):
            return (note.index,)
    return ()


def _key_step(owner: Any, name: str) -> Path:
    for field in attrs.fields(owner) if owner is not None and attrs.has(owner) else ():
        if field.name == name:
            return (key_of(field),)
    return (name,)


def _without(data: object, wrong: Sequence[Path]) -> object:
    """*data* less what stands at the *wrong* paths; a missing field takes its owner along."""
    doomed = set(wrong)
    if () in doomed:
        return None
    missing = {path[:-1] for path in doomed if not _present(data, path)}
    return _prune(data, (), doomed | missing)


def _present(data: object, path: Path) -> bool:
    for step in path:
        try:
            data = cast("Any", data)[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


_GONE: Final = object()


def _prune(data: object, path: Path, doomed: set[Path]) -> object:
    if path in doomed:
        return None if not path else _GONE
    if isinstance(data, Mapping):
        table: dict[str, object] = Table(data.path) if isinstance(data, Table) else {}
        for key, item in cast("Mapping[str, object]", data).items():
            kept = _prune(item, (*path, key), doomed)
            if kept is not _GONE:
                table[key] = kept
        return table
    if isinstance(data, list):
        items = [
            _prune(item, (*path, i), doomed) for i, item in enumerate(cast("list[object]", data))
        ]
        return [item for item in items if item is not _GONE]
    return data


def unknown_name(kind: str, name: str, known: Sequence[str]) -> tuple[str, str]:
    """Message and hint about a name that nothing has."""
    hint = did_you_mean(name, known)
    return f"unknown {kind} {name!r}", hint or (f"known: {', '.join(known)}" if known else "")
