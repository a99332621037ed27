"""What an engine counts: the figures behind its metrics, without any exposition format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, final

from attrs import define, field

from .work import Generation

FIRST_TOKEN_SECONDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
TOKEN_SECONDS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST_SECONDS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0,
    40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


def token_buckets(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, … as far as *most* tokens."""
    steps = (step * 10**power for power in range(len(str(most))) for step in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= most)


@final
@define(eq=False)
class Histogram:
    """Counts of observations by upper bound; the last count is of those above all bounds."""

    bounds: Sequence[float]
    counts: list[int] = field(init=False)
    sum: float = field(default=0.0, init=False)
    count: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self.count += times


def _seconds() -> Histogram:
    return Histogram(REQUEST_SECONDS)


@final
@define(eq=False)
class EngineStats:
    """Totals since the engine started; times in seconds of the engine's own clock."""

    token_bounds: Sequence[float]
    prompt_tokens: int = 0
    cached_tokens: int = 0
    queried_tokens: int = 0
    generated_tokens: int = 0
    rejected: int = 0
    finished: dict[str, int] = field(
        factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
    )
    first_token: Histogram = field(factory=lambda: Histogram(FIRST_TOKEN_SECONDS))
    inter_token: Histogram = field(factory=lambda: Histogram(TOKEN_SECONDS))
    per_output_token: Histogram = field(factory=lambda: Histogram(TOKEN_SECONDS))
    end_to_end: Histogram = field(factory=_seconds)
    queued: Histogram = field(factory=_seconds)
    inference: Histogram = field(factory=_seconds)
    prefill: Histogram = field(factory=_seconds)
    decode: Histogram = field(factory=_seconds)
    request_prompt: Histogram = field(init=False)
    request_generation: Histogram = field(init=False)
    request_most: Histogram = field(init=False)
    request_asked: Histogram = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.request_prompt = Histogram(self.token_bounds)
        self.request_generation = Histogram(self.token_bounds)
        self.request_most = Histogram(self.token_bounds)
        self.request_asked = Histogram(self.token_bounds)

    def observe(self, generation: Generation) -> None:
        """Count a request that has run to its end."""
        work, arrived, ended = generation.work, generation.arrived, generation.ended
        started, first = generation.started, generation.first_token
        assert started is not None
        assert first is not None
        assert ended is not None
        self.end_to_end.observe(ended - arrived)
        self.queued.observe(started - arrived)
        self.inference.observe(ended - started)
        self.prefill.observe(first - started)
        self.decode.observe(ended - first)
        if generation.generated > 1:
            self.per_output_token.observe((ended - first) / (generation.generated - 1))
        self.request_prompt.observe(work.prompt_tokens)
        self.request_generation.observe(generation.generated)
        self.request_most.observe(generation.generated)
        if work.asked_tokens is not None:
            self.request_asked.observe(work.asked_tokens)
