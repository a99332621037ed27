"""Virtual time: a heap of what is to happen, and nothing that waits."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import final

from attrs import define, field

Action = Callable[[], None]


@final
@define(eq=False)
class Clock:
    """Runs actions in the order of their times; those of one time in the order of asking."""

    now: float = field(default=0.0, init=False)
    """Seconds."""
    _due: list[tuple[float, int, Action]] = field(
        factory=list[tuple[float, int, Action]], init=False, repr=False
    )
    _numbers: count[int] = field(factory=count, init=False, repr=False)

    def at(self, time: float, action: Action) -> None:
        """Have *action* run at *time*, or now if that is past."""
        heappush(self._due, (max(time, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        self.at(self.now + seconds, action)

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until *until* says so between two actions, or nothing is left to do."""
        while self._due and not until():
            self.now, _, action = heappop(self._due)
            action()
