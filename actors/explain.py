"""What the daemon knows of its endpoints, and how it would rate them now."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import attrs

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.installed import where_raised
from pointsman.kernel.wiring import Wiring

from .discovery import Discovery
from .signals import Signals


def endpoints(wiring: Wiring, snapshot: Snapshot) -> Sequence[Mapping[str, object]]:
    """Each endpoint with what it reports and its score in each profile, as JSON data."""
    scores = {
        profile: {
            candidate.id: score
            for candidate, score in zip(result.candidates, result.scores, strict=True)
        }
        for profile, result in wiring.director.rate(snapshot).items()
    }
    return [
        {
            "id": endpoint.id,
            "address": endpoint.host_port,
            "labels": dict(endpoint.labels),
            "picks": endpoint.identity.picks,
            "values": {
                name: plain(column[row]) for name, column in sorted(snapshot.columns.items())
            },
            "scores": {profile: rated.get(endpoint.id) for profile, rated in scores.items()},
        }
        for row, endpoint in enumerate(snapshot.endpoints)
    ]


def daemon_state(snapshot: Snapshot, discovery: Discovery) -> Mapping[str, object]:
    """The pool as it is known, and what of it is not used as it is."""
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "pool": plain(snapshot.pool),
        "endpoints": len(snapshot.endpoints),
        "objectives": {name: one.priority for name, one in sorted(snapshot.objectives.items())},
        "rewrite_rules": [plain(rule) for rule in snapshot.rewrites.rules],
        "skipped": {kind: list(found) for kind, found in discovery.skipped().items()},
        "watch_age_seconds": {kind: round(age, 1) for kind, age in discovery.ages().items()},
    }


def plain(value: object) -> object:
    """A value of the data model in JSON's terms."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, frozenset):
        return sorted(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        return {str(key): plain(item) for key, item in found.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in cast("Sequence[object]", value)]
    kind: type[Any] = type(value)
    if attrs.has(kind):
        return {field.name: plain(getattr(value, field.name)) for field in attrs.fields(kind)}
    return value


def plugin_states(wiring: Wiring, signals: Signals) -> Mapping[str, object]:
    """What each plugin keeps, in numbers; its own words where it has a `dump_state`."""
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "dead_signals": [
            {"plugin": dead.plugin, "signal": dead.signal, "reason": reason}
            for dead, reason in signals.dead.items()
        ],
        "plugins": {
            name: {
                "name": name,
                "type": installed.type_name,
                "requests": len(installed.state),
                "reaped": installed.state.reaped,
                "failures": installed.failures,
                **_own_words(installed.plugin),
            }
            for name, installed in wiring.installed.items()
        },
    }


def _own_words(plugin: object) -> Mapping[str, object]:
    dump = getattr(plugin, "dump_state", None)
    if dump is None:
        return {"message": "keeps no state of its own"}
    try:
        return {"state": dump()}
    except Exception as exc:
        return {"message": f"its state cannot be shown: {where_raised(exc)}"}
