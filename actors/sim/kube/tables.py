"""Objects as rows of a table, for clients that print them and do not know their kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, final

from attrs import frozen

from .calls import Call
from .kinds import Kind
from .objects import Object, at, is_list, is_terminating, name_of

_API: Final = "meta.k8s.io/v1"
_STEPS: Final = (("d", 86400, 2), ("h", 3600, 8), ("m", 60, 10), ("s", 1, 0))
"""Units of an age, their seconds, and up to how many of them the next smaller one is told too."""

Cell = Callable[[Object, float], object]


@final
@frozen
class Column:
    """A column and how its cells are made; those of a higher *priority* are for wide tables."""

    name: str
    cell: Cell
    type: str = "string"
    priority: int = 0

    @property
    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": "name" if self.name == "Name" else "",
            "description": "",
            "priority": self.priority,
        }


def wants_table(call: Call) -> bool:
    accepted = call.request.headers.get("accept", "")
    return "as=Table" in accepted and "g=meta.k8s.io" in accepted


def table(
    kind: Kind, call: Call, objects: Iterable[Object], now: float, metadata: Object
) -> Object:
    """The table of *objects* at Unix time *now*."""
    columns = _columns(kind)
    return {
        "kind": "Table",
        "apiVersion": _API,
        "metadata": metadata,
        "columnDefinitions": [column.definition for column in columns],
        "rows": [_row(columns, call, obj, now) for obj in objects],
    }


def _row(columns: Sequence[Column], call: Call, obj: Object, now: float) -> Object:
    row: Object = {"cells": [column.cell(obj, now) for column in columns]}
    match call.text("includeObject"):
        case "None":
            return row
        case "Object":
            return {**row, "object": obj}
        case _:
            partial = {"kind": "PartialObjectMetadata", "apiVersion": _API}
            return {**row, "object": {**partial, "metadata": obj["metadata"]}}


def age(seconds: float) -> str:
    """A time as people take it in: ``45s``, ``3m20s``, ``5h``."""
    left = max(int(seconds), 0)
    for place, (unit, size, detailed) in enumerate(_STEPS):
        count, rest = divmod(left, size)
        if count == 0 and size > 1:
            continue
        if count >= detailed or place + 1 == len(_STEPS):
            return f"{count}{unit}"
        smaller, smaller_size, _ = _STEPS[place + 1]
        detail = rest // smaller_size
        return f"{count}{unit}{detail}{smaller}" if detail else f"{count}{unit}"
    return "0s"


def _since(moment: object, now: float) -> str:
    if not isinstance(moment, str):
        return "<unknown>"
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return "<invalid>"
    return age(now - then.astimezone(UTC).timestamp())


def _ready(pod: Object, now: float) -> str:
    containers = at(pod, "spec", "containers")
    total = len(containers) if is_list(containers) else 0
    conditions = at(pod, "status", "conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return f"{total if ready else 0}/{total}"


def _status(pod: Object, now: float) -> str:
    if is_terminating(pod):
        return "Terminating"
    return at(pod, "status", "phase") or "Unknown"


def _found(*path: str) -> Cell:
    return lambda obj, now: at(obj, *path)


_NAME: Final = Column("Name", lambda obj, now: name_of(obj))
_AGE: Final = Column("Age", lambda obj, now: _since(at(obj, "metadata", "creationTimestamp"), now))
_OF_KINDS: Final = {
    "Pod": (
        _NAME,
        Column("Ready", _ready),
        Column("Status", _status),
        _AGE,
        Column("IP", _found("status", "podIP"), priority=1),
        Column("Node", _found("spec", "nodeName"), priority=1),
    ),
    "Namespace": (_NAME, Column("Status", _found("status", "phase")), _AGE),
    "Lease": (_NAME, Column("Holder", _found("spec", "holderIdentity")), _AGE),
    "Event": (
        Column("Last Seen", lambda obj, now: _since(at(obj, "lastTimestamp"), now)),
        Column("Type", _found("type")),
        Column("Reason", _found("reason")),
        Column("Message", _found("message")),
    ),
}


def _columns(kind: Kind) -> Sequence[Column]:
    if kind.columns:
        return [_NAME, *(_printed(column) for column in kind.columns)]
    return _OF_KINDS.get(kind.kind, (_NAME, _AGE))


def _printed(column: Object) -> Column:
    """A column that a definition asks for; of its path, only plain steps are followed."""
    steps = str(column.get("jsonPath", "")).strip(".").split(".")
    kind, priority = column.get("type", "string"), column.get("priority", 0)

    def cell(obj: Object, now: float) -> Any:
        value = at(obj, *steps)
        return _since(value, now) if kind == "date" else value

    return Column(column.get("name", ""), cell, kind, priority)
