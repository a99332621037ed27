"""What prefix matching achieves, and when it cannot work at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from attrs import define, field
from prometheus_client.metrics_core import HistogramMetricFamily, Metric

SHARES: Final = tuple(n / 10 for n in range(1, 11))
SUSPICIOUS: Final = 100  # requests in a row
REMEMBERED: Final = 1024  # prompts' first blocks


@final
@define(eq=False)
class Shares:
    """A histogram of shares from 0 to 1."""

    counts: list[int] = field(factory=lambda: [0] * (len(SHARES) + 1))
    total: float = 0.0

    def note(self, share: float) -> None:
        self.counts[max(0, int(share * 10 - 1e-9))] += 1
        self.total += share

    def family(self, name: str, text: str) -> Metric:
        buckets: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*SHARES, "+Inf"), self.counts, strict=True):
            seen += count
            buckets.append((str(bound), float(seen)))
        family = HistogramMetricFamily(name, text)
        family.add_metric([], buckets, self.total)
        return family


@final
@define(eq=False)
class Suspicion:
    """Notices that look-ups never have anything to go by, or never match though prompts repeat."""

    _without_tokens: int = field(default=0, init=False)
    _misses: int = field(default=0, init=False)
    _seen: dict[int, None] = field(factory=dict[int, None], init=False)

    def no_tokens(self) -> None:
        """A request came without tokens."""
        self._without_tokens += 1

    def looked(self, first: int | None, *, matched: bool) -> None:
        """A prompt was looked up. *first*: the hash of its first block, if it has a whole one."""
        self._without_tokens = 0
        if first is None:
            return
        if matched:
            self._misses = 0
        elif first in self._seen:
            self._misses += 1
        self._seen.pop(first, None)
        self._seen[first] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def dead(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if self._without_tokens >= SUSPICIOUS:
            found["tokens"] = f"the last {SUSPICIOUS} requests and more came without any"
        if self._misses >= SUSPICIOUS:
            found["match"] = f"{SUSPICIOUS} prompts and more that were seen before matched nowhere"
        return found
