"""Label and field selectors: their texts read into values that say whether an object matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, final

from attrs import frozen

from .failures import bad_request
from .kinds import Kind
from .objects import Object, at, labels_of

Operator = Literal["in", "notin", "exists", "absent"]

_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL_KEY: Final = re.compile(rf"(?:(?P<prefix>[a-z0-9.-]{{1,253}})/)?(?P<name>{_NAME})\Z")
LABEL_VALUE: Final = re.compile(rf"(?:{_NAME})?\Z")
LABEL_LENGTH: Final = 63  # characters of a label's name and of its value
_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)\Z")
_EQUALITY: Final = re.compile(
    r"(?P<key>[^=!]*[^=!\s])\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!]*)\Z"
)
_TERMS: Final = re.compile(r",(?![^()]*\))")


def is_label_key(text: str) -> bool:
    found = LABEL_KEY.match(text)
    return found is not None and len(found["name"]) <= LABEL_LENGTH


def is_label_value(text: str) -> bool:
    return len(text) <= LABEL_LENGTH and LABEL_VALUE.match(text) is not None


@final
@frozen
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "in":
                return labels.get(self.key) in self.values
            case "notin":
                return labels.get(self.key) not in self.values
            case "exists":
                return self.key in labels
            case "absent":
                return self.key not in labels


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Read ``a=b,c!=d,e in (f,g),h notin (i),j,!k``.

    Raises:
        ApiError: 400, it is none.
    """
    if not text.strip():
        return ()
    return tuple(_requirement(term.strip()) for term in _TERMS.split(text))


def _requirement(term: str) -> Requirement:
    if found := _SET.match(term):
        operator: Operator = "in" if found["operator"] == "in" else "notin"
        values = frozenset(value.strip() for value in found["values"].split(","))
    elif found := _EQUALITY.match(term):
        operator = "notin" if found["operator"] == "!=" else "in"
        values = frozenset({found["value"].strip()})
    else:
        operator, values = ("absent" if term.startswith("!") else "exists"), frozenset[str]()
    key = found["key"] if found else term.removeprefix("!").strip()
    if not is_label_key(key) or not all(map(is_label_value, values)):
        raise bad_request(f"label selector: {term!r} is no condition on a label")
    return Requirement(key, operator, values)


@final
@frozen
class FieldTerm:
    """A field that must have a value, or must not; what is not there counts as empty."""

    steps: tuple[str, ...]
    value: str
    equal: bool = True

    def matches(self, obj: Object) -> bool:
        return (_text(at(obj, *self.steps)) == self.value) is self.equal


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def parse_fields(text: str, kind: Kind) -> tuple[FieldTerm, ...]:
    """Read ``metadata.name=a,status.phase!=Running``.

    Raises:
        ApiError: 400, it is none or names a field by which *kind* cannot be selected.
    """
    terms = [_field_term(term) for term in text.split(",") if term]
    for term in terms:
        path = ".".join(term.steps)
        if path not in kind.selectable:
            raise bad_request(f"{kind.plural} cannot be selected by {path}")
    return tuple(terms)


def _field_term(term: str) -> FieldTerm:
    found = _EQUALITY.match(term)
    if found is None:
        raise bad_request(f"field selector: {term!r} is no condition on a field")
    steps = tuple(found["key"].split("."))
    return FieldTerm(steps, found["value"].strip(), found["operator"] != "!=")


def name_selected(text: str) -> str:
    """The one name that a field selector leaves over; empty when it leaves several, or is none."""
    terms = [found for term in text.split(",") if (found := _EQUALITY.match(term))]
    names = [
        term["value"].strip()
        for term in terms
        if term["key"] == "metadata.name" and term["operator"] != "!="
    ]
    return names[0] if names else ""


@final
@frozen
class Selection:
    """Which objects of a kind a list or watch is about."""

    namespace: str = ""
    """Empty: of all namespaces."""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Object) -> bool:
        if self.namespace and at(obj, "metadata", "namespace") != self.namespace:
            return False
        labels = labels_of(obj)
        return all(term.matches(labels) for term in self.labels) and all(
            term.matches(obj) for term in self.fields
        )

    @property
    def narrows(self) -> bool:
        """Whether it leaves out objects of its namespace."""
        return bool(self.labels or self.fields)


EVERYTHING: Final = Selection()
