"""Notes what the kernel tells of the calls of plugins."""

from __future__ import annotations

from typing import Any

from attrs import define, evolve, field

from pointsman.kernel.config import read_config
from pointsman.kernel.testing import surroundings
from pointsman.kernel.wiring import Wiring, wire


@define(eq=False)
class CallNotes:
    """Of one plugin."""

    times: list[tuple[str, float]] = field(factory=list[tuple[str, float]], init=False)
    failures: list[str] = field(factory=list[str], init=False)
    violations: list[tuple[str, str, str]] = field(factory=list[tuple[str, str, str]], init=False)

    @property
    def points(self) -> list[str]:
        """The extension points of its calls, in their order."""
        return [point for point, _ in self.times]

    def took(self, point: str, seconds: float) -> None:
        self.times.append((point, seconds))

    def failed(self, point: str) -> None:
        self.failures.append(point)

    def violated(self, point: str, key: str, access: str) -> None:
        self.violations.append((point, key, access))


def noted(text: str, *classes: type[Any]) -> tuple[Wiring, dict[str, CallNotes]]:
    """As `wired`, with the notes on every plugin by its name."""
    notes: dict[str, CallNotes] = {}

    def calls_of(type_name: str, name: str) -> CallNotes:
        return notes.setdefault(name, CallNotes())

    around = evolve(surroundings(*classes), calls_of=calls_of)
    return wire(read_config(text, "test"), around), notes
