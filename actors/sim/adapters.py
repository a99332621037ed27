"""The LoRA slots of an engine: which adapters run, and when that last changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, final

from attrs import define, field

_TICK: Final = 1e-6  # seconds between states of the same instant: readers take the latest
_REMEMBERED: Final = 64  # states, the newest; an engine's own list would grow without end


@final
@define(eq=False)
class AdapterSlots:
    """Counts the running requests of each adapter; at most *slots* adapters run together."""

    slots: int
    changes: dict[tuple[str, str], float] = field(factory=dict[tuple[str, str], float], init=False)
    """(running, waiting) adapters, comma-separated, and when that last began to be the state."""
    _running: Counter[str] = field(factory=Counter[str], init=False)

    def fits(self, adapter: str | None) -> bool:
        """Whether a request for *adapter* may run now; the base model always may."""
        return adapter is None or adapter in self._running or len(self._running) < self.slots

    def take(self, adapter: str | None) -> None:
        if adapter is not None:
            self._running[adapter] += 1

    def free(self, adapter: str | None) -> None:
        if adapter is not None:
            self._running[adapter] -= 1
            if not self._running[adapter]:
                del self._running[adapter]

    def note(self, waiting: Iterable[str | None], now: float) -> None:
        """Date the present state *now*, unless it is what it was."""
        names = sorted({name for name in waiting if name is not None})
        state = (",".join(sorted(self._running)), ",".join(names))
        if state == next(reversed(self.changes), None):
            return
        latest = next(reversed(self.changes.values()), -_TICK)
        self.changes.pop(state, None)
        self.changes[state] = max(now, latest + _TICK)
        if len(self.changes) > _REMEMBERED:
            del self.changes[next(iter(self.changes))]
