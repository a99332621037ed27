"""What prefix matching achieves, and when it cannot work at all."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final, final

from attrs import define, field
from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from pointsman.kernel.tally import Bounds, Tally

SHARES: Final[Bounds] = tuple(n / 10 for n in range(11))
BYTES: Final[Bounds] = (0.0, *(float(16 << doublings) for doublings in range(13)))  # to 64 KiB
SUSPICIOUS: Final = 100  # requests in a row
REMEMBERED: Final = 1024  # prompts' first blocks


def family(name: str, text: str, labels: Mapping[str, str], tally: Tally) -> Metric:
    """What /metrics shows of one tally."""
    bounds = (*map(str, tally.bounds), "+Inf")
    counts = map(float, accumulate(tally.counts))
    shown = HistogramMetricFamily(name, text, labels=list(labels))
    buckets = list(zip(bounds, counts, strict=True))
    shown.add_metric(list(labels.values()), buckets, tally.sum)
    return shown


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
