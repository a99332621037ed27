"""A histogram, for places that are passed with every request.

It is written by one task and read by the same thread, so it needs no lock. Who shows it makes a
family of it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import final

from attrs import define, field

Bounds = tuple[float, ...]
"""The upper bounds of buckets, which belong to them; the last bucket has none."""


@final
@define(eq=False)
class Tally:
    """One histogram."""

    bounds: Bounds
    counts: list[int] = field(init=False)
    """Of each bucket alone, not of the smaller ones with it."""
    sum: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def absorb(self, other: Tally) -> None:
        """Count what another one with the same bounds has counted."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.sum += other.sum
