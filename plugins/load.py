"""Scorers on what model servers report of their load.

What an endpoint does not report is neither good nor bad: it gets the mean of the others'
scores. What it has not been able to report for too long is bad: a server whose metrics
cannot be fetched gets 0, until they can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, final

from attrs import define

from pointsman.kernel.keys import Column, Consumes, DataView, EndpointKey
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Freshness,
)
from pointsman.kernel.registry import Stability

Scores = Sequence[float | None]
Formula = Callable[[Sequence[float]], list[float]]


def fewest_is_best(values: Sequence[float]) -> list[float]:
    """``(max - value) / (max - min)``; 1 for all when they are equal."""
    most = max(values)
    span = most - min(values)
    if span == 0:
        return [1.0] * len(values)
    return [(most - value) / span for value in values]


def free_share(values: Sequence[float]) -> list[float]:
    """``1 - value``, for values that are fractions in use."""
    return [1.0 - value for value in values]


def score_reports(values: Column[float], freshness: Column[Freshness], formula: Formula) -> Scores:
    """*formula* over what is known; the module says what the rest gets."""
    if None not in values and Freshness.STALE not in freshness:
        return formula(values)  # type: ignore[arg-type]
    return _with_gaps(values, freshness, formula)


def _with_gaps(values: Column[float], freshness: Column[Freshness], formula: Formula) -> Scores:
    trusted = [
        value is not None and state is not Freshness.STALE
        for value, state in zip(values, freshness, strict=True)
    ]
    known = [value for value, ok in zip(values, trusted, strict=True) if ok and value is not None]
    if not known:
        return [None] * len(values)
    scores = formula(known)
    neutral = sum(scores) / len(scores)
    queue = iter(scores)
    return [
        next(queue) if ok else 0.0 if state is Freshness.STALE else neutral
        for ok, state in zip(trusted, freshness, strict=True)
    ]


def _score(data: DataView, key: EndpointKey[float], formula: Formula) -> Scores:
    values = data[key]
    freshness = data.get(FRESHNESS)
    if freshness is None:
        freshness = [None] * len(values)
    return score_reports(values, freshness, formula)


@final
@define(eq=False)
class QueueScorer:
    """Prefers endpoints where fewer requests wait."""

    type_name: ClassVar = "queue-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(WAITING_QUEUE_SIZE, optional=[FRESHNESS])

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Scores:
        return _score(data, WAITING_QUEUE_SIZE, fewest_is_best)


@final
@define(eq=False)
class RunningRequestsScorer:
    """Prefers endpoints where fewer requests run."""

    type_name: ClassVar = "running-requests-size-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(RUNNING_REQUESTS, optional=[FRESHNESS])

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Scores:
        return _score(data, RUNNING_REQUESTS, fewest_is_best)


@final
@define(eq=False)
class KvCacheUtilizationScorer:
    """Prefers endpoints with more of their KV cache free."""

    type_name: ClassVar = "kv-cache-utilization-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(KV_CACHE_USAGE, optional=[FRESHNESS])

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Scores:
        return _score(data, KV_CACHE_USAGE, free_share)
