"""What a run came to, counted as it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean, pstdev
from typing import final

from attrs import define, field, frozen

from pointsman.actors.sim.work import Generation


@final
@frozen(kw_only=True)
class Result:
    """The figures of one run."""

    requests: int
    hit: float
    """Prompt tokens that the engines took from their caches, as a share of all."""
    captured: float
    """Blocks that the chosen servers held at the decision, as a share of what the best held."""
    tokens_per_second: float
    """Output tokens, from the first arrival to the last token."""
    ttft_p50: float
    """Seconds from arrival to the first token."""
    ttft_p90: float
    unevenness: float
    """Requests in flight at the busiest server, as a multiple of the mean, as arrivals find it."""


@final
@define(eq=False)
class Tally:
    """Adds up the requests of one run."""

    servers: int
    prompt_tokens: int = field(default=0, init=False)
    cached_tokens: int = field(default=0, init=False)
    output_tokens: int = field(default=0, init=False)
    reachable: int = field(default=0, init=False)
    captured: int = field(default=0, init=False)
    first_arrival: float = field(default=float("inf"), init=False)
    last_end: float = field(default=0.0, init=False)
    ttft: list[float] = field(factory=list[float], init=False, repr=False)
    in_flight: Counter[str] = field(factory=Counter[str], init=False)
    busiest: int = field(default=0, init=False)
    """Requests in flight at the busiest server, summed over the decisions."""
    everywhere: int = field(default=0, init=False)
    """Those of all servers, summed likewise."""

    def decided(self, endpoint: str, *, held: int, best: int) -> None:
        """A request was sent to *endpoint*, which held that many blocks of it; one held *best*."""
        self.in_flight[endpoint] += 1
        self.busiest += max(self.in_flight.values())
        self.everywhere += self.in_flight.total()
        self.captured += held
        self.reachable += best

    def finished(self, endpoint: str, generation: Generation) -> None:
        """A request has got its last token from *endpoint*."""
        first, ended = generation.first_token, generation.ended
        if first is None or ended is None:
            raise ValueError("the request has not finished")
        self.in_flight[endpoint] -= 1
        self.prompt_tokens += generation.work.prompt_tokens
        self.cached_tokens += generation.cached_tokens
        self.output_tokens += generation.generated
        self.first_arrival = min(self.first_arrival, generation.arrived)
        self.last_end = max(self.last_end, ended)
        self.ttft.append(first - generation.arrived)

    def result(self) -> Result:
        """The figures; at least one request must have finished."""
        return Result(
            requests=len(self.ttft),
            hit=self.cached_tokens / self.prompt_tokens,
            captured=self.captured / self.reachable if self.reachable else 1.0,
            tokens_per_second=self.output_tokens / (self.last_end - self.first_arrival),
            ttft_p50=percentile(self.ttft, 50),
            ttft_p90=percentile(self.ttft, 90),
            unevenness=self.busiest * self.servers / self.everywhere,
        )


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of *values* that is not below *percent* of them (nearest rank)."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(int(rank), 1) - 1]


@final
@frozen
class Spread:
    """A figure over several seeds."""

    mean: float
    deviation: float
    """Standard deviation; 0 of a single seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(mean(values), pstdev(values))
