"""How long a model takes: means that grow with the load, and seeded jitter around them."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from random import Random
from typing import Final, final

from attrs import define, field, frozen
from attrs.validators import ge, gt

_CYCLE: Final = 1024  # jittered iterations before the sequence repeats
_MOST_DEVIATION: Final = 0.3  # of the mean, for the standard deviation
_LEAST, _MOST = 0.3, 1.7  # of the mean, for a single draw


@frozen(kw_only=True)
class LatencyProfile:
    """One model on one kind of accelerator; all times in seconds."""

    prefill_overhead: float = field(default=0.030, validator=ge(0.0))
    prefill_time_per_token: float = field(default=0.00025, validator=ge(0.0))
    prefill_std: float = field(default=0.005, validator=ge(0.0))
    inter_token_latency: float = field(default=0.012, validator=gt(0.0))
    """Of a request that runs alone. Above zero, so that simulated time always moves."""
    inter_token_std: float = field(default=0.002, validator=ge(0.0))
    time_factor_under_load: float = field(default=2.0, validator=ge(1.0))
    """How much slower everything is when every slot is taken."""

    def load(self, running: int, slots: int) -> float:
        """The factor on every latency while *running* of *slots* requests run."""
        if slots <= 1:
            return 1.0
        return 1.0 + (self.time_factor_under_load - 1.0) * (running - 1) / (slots - 1)

    def prefill(self, *, tokens: int, starts: bool) -> float:
        """Mean time to compute *tokens* alone; *starts* when they begin a request."""
        overhead = self.prefill_overhead if starts else 0.0
        return overhead + tokens * self.prefill_time_per_token


PROFILES: Final = {
    "8b-h100": LatencyProfile(),
    "70b-tp8": LatencyProfile(
        prefill_overhead=0.080,
        prefill_time_per_token=0.0005,
        inter_token_latency=0.025,
        inter_token_std=0.004,
        time_factor_under_load=3.0,
    ),
    "small-l40s": LatencyProfile(
        prefill_overhead=0.020,
        prefill_time_per_token=0.00035,
        inter_token_latency=0.015,
        inter_token_std=0.002,
        time_factor_under_load=1.5,
    ),
}


def jitter(mean: float, std: float, random: Random) -> float:
    """Draw a time around *mean*, never further than 70 % of it away."""
    spread = min(std, _MOST_DEVIATION * mean)
    return min(max(random.gauss(mean, spread), _LEAST * mean), _MOST * mean)


@final
@define(eq=False)
class Pace:
    """An endless sequence of jitter factors, one an iteration, with its running sums.

    The sums make thousands of iterations as cheap to skip as one, and skipping them gives the
    very times that stepping through them would.
    """

    factors: list[float]
    _sums: list[float] = field(init=False)
    _total: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        *self._sums, self._total = accumulate(self.factors, initial=0.0)

    @classmethod
    def draw(cls, profile: LatencyProfile, random: Random) -> Pace:
        std = profile.inter_token_std / profile.inter_token_latency
        return cls([jitter(1.0, std, random) for _ in range(_CYCLE)])

    def factor(self, index: int) -> float:
        return self.factors[index % len(self.factors)]

    def elapsed(self, index: int) -> float:
        """The sum of the factors before *index*."""
        cycles, rest = divmod(index, len(self.factors))
        return cycles * self._total + self._sums[rest]

    def index_at(self, elapsed: float) -> int:
        """The first index whose sum is not below *elapsed*, give or take rounding."""
        cycles, rest = divmod(elapsed, self._total)
        return int(cycles) * len(self.factors) + bisect_left(self._sums, rest)
