"""The time axis of an engine: runs of iterations with one batch.

A step that computes prompts is one iteration. While nobody's prompt is being computed, a step is
as many iterations as pass until the first request ends, and costs the same for one as for many.
"""

from __future__ import annotations

from typing import final

from attrs import define, field

from .latency import Pace
from .work import Generation


@final
@define(eq=False, kw_only=True)
class Step:
    """Iterations from *start* on, during which the batch stays as it is."""

    pace: Pace
    index: int
    """Where in the pace the first iteration is."""
    start: float
    unit: float
    """Mean seconds of an iteration."""
    iterations: int = 1
    chunks: list[tuple[Generation, int]] = field(factory=list[tuple[Generation, int]])
    """Prompt tokens that the only iteration computes."""
    fixed: float = 0.0
    """Seconds that computing them adds."""
    done: int = 0
    """Iterations whose tokens have been handed out."""

    @property
    def end(self) -> float:
        return self.end_of(self.iterations)

    def end_of(self, iterations: int) -> float:
        """When that many of the iterations are over."""
        pace, index = self.pace, self.index
        passed = pace.elapsed(index + iterations) - pace.elapsed(index)
        return self.start + self.fixed + self.unit * passed

    def duration(self, iteration: int) -> float:
        """Seconds of one of the iterations, counted from 0."""
        return self.fixed + self.unit * self.pace.factor(self.index + iteration)

    def ended_by(self, now: float) -> int:
        """How many iterations are over at *now*."""
        done = self.done
        while done < self.iterations and self.end_of(done + 1) <= now:
            done += 1
        return done

    def cut(self, now: float) -> None:
        """Let the iteration that is running at *now* be the last."""
        if self.iterations == 1:
            return
        passed = self.pace.elapsed(self.index) + (now - self.start) / self.unit
        last = min(max(self.pace.index_at(passed) - self.index, 1), self.iterations)
        while last < self.iterations and self.end_of(last) < now:
            last += 1
        while last > 1 and self.end_of(last - 1) >= now:
            last -= 1
        self.iterations = max(last, self.done)
