"""How full endpoints are by what they report: of all together, and of each alone.

A detector has two parts. As the configuration's saturation detector it says when requests of a
negative priority are refused; named in a profile it is a filter, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView, EndpointKey, Key
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Freshness,
)
from pointsman.kernel.plugin import Mask
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import Duration, above, at_least, one_of, within

from .keys import IN_FLIGHT_LOAD

FULL: Final = 1.0
"""The saturation of an endpoint that does not say how it is, and of no endpoints at all."""


def fuller(
    queue: float | None,
    share: float | None,
    state: Freshness | None,
    thresholds: tuple[float, float],
) -> float | None:
    """The fuller of an endpoint's queue and KV cache, each as a share of its threshold.

    None where that cannot be known: the metrics are stale, or tell neither.
    """
    if state is Freshness.STALE or (queue is None and share is None):
        return None
    most_queue, most_share = thresholds
    return max((queue or 0.0) / most_queue, (share or 0.0) / most_share)


@final
@frozen(kw_only=True)
class UtilizationDetectorParameters:
    queue_depth_threshold: float = field(default=5.0, validator=above(0))
    """Waiting requests at which an endpoint is full."""
    kv_cache_util_threshold: float = field(default=0.8, validator=[above(0), within(0, 1)])
    """The share of the KV cache in use at which an endpoint is full."""
    metrics_staleness_threshold: Duration = field(default=Duration(0.2), validator=above(0))
    """Without effect: whether metrics are stale is found where they are fetched."""
    headroom: float = field(default=0.0, validator=at_least(0))
    """By which share of the thresholds the filter lets endpoints exceed them."""


@final
@define(eq=False)
class UtilizationDetector:
    """Says how full endpoints are by their queues and KV caches; as a filter, drops the full.

    Saturation is the mean over the endpoints of the fuller of queue and cache, each as a share
    of its threshold. An endpoint with stale metrics, or none of the two, counts as full, and the
    filter drops it. The filter keeps all where it would drop all.
    """

    type_name: ClassVar = "utilization-detector"
    stability: ClassVar = Stability.BETA
    # Optional: that nobody is asked must not keep a configuration without metrics from starting.
    consumes: ClassVar = Consumes(optional=[WAITING_QUEUE_SIZE, KV_CACHE_USAGE, FRESHNESS])
    parameters: UtilizationDetectorParameters

    def saturation(self, data: DataView, endpoints: Sequence[Endpoint]) -> float:
        if not endpoints:
            return FULL
        fullness = self._fullness(data, len(endpoints))
        return sum(FULL if known is None else known for known in fullness) / len(endpoints)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        most = 1 + self.parameters.headroom
        fullness = self._fullness(data, len(endpoints))
        mask = [known is not None and known < most for known in fullness]
        return mask if any(mask) else [True] * len(mask)

    def _fullness(self, data: DataView, number: int) -> list[float | None]:
        """How full each is, 1 at a threshold; None where that cannot be known."""
        nothing: list[None] = [None] * number
        waiting, cache = data.get(WAITING_QUEUE_SIZE), data.get(KV_CACHE_USAGE)
        freshness = data.get(FRESHNESS)
        if waiting is None and cache is None and freshness is None:
            return [0.0] * number  # nobody is asked, so nobody is silent
        rows = zip(waiting or nothing, cache or nothing, freshness or nothing, strict=True)
        return [self._fuller(queue, share, state) for queue, share, state in rows]

    def _fuller(
        self, queue: float | None, share: float | None, state: Freshness | None
    ) -> float | None:
        limits = self.parameters
        thresholds = (limits.queue_depth_threshold, limits.kv_cache_util_threshold)
        return fuller(queue, share, state, thresholds)


ACTIVE: Final = "active-requests"
KV: Final = "kv-cache-utilization"
_REPORTED: Final[Mapping[str, EndpointKey[float]]] = {
    "running-requests": RUNNING_REQUESTS,
    "waiting-queue": WAITING_QUEUE_SIZE,
    KV: KV_CACHE_USAGE,
}


@final
@frozen(kw_only=True)
class Condition:
    metric: str = field(validator=one_of(ACTIVE, *_REPORTED))
    max_value: float = field(validator=at_least(0))
    """An endpoint with just as much stays."""

    def __attrs_post_init__(self) -> None:
        if self.metric == KV and self.max_value > 1:
            raise ValueError(f"maxValue of {KV} must be from 0 to 1, not {self.max_value:g}")


@final
@frozen(kw_only=True)
class UtilizationFilterParameters:
    conditions: tuple[Condition, ...]
    """All of them must hold."""
    fallback_on_empty: bool = False
    """Whether all stay when none would."""
    in_flight_load_producer_name: str = ""

    @property
    def keys(self) -> Sequence[Key]:
        """What the conditions read."""
        metrics = dict.fromkeys(condition.metric for condition in self.conditions)
        return [IN_FLIGHT_LOAD if one == ACTIVE else _REPORTED[one] for one in metrics]


@final
@define(eq=False)
class UtilizationFilter:
    """Keeps the endpoints whose load is at most *maxValue*, in each of the conditions.

    What an endpoint does not report, or has not been able to renew for too long, keeps it from
    nothing: scorers put it behind the others.
    """

    type_name: ClassVar = "utilization-filter"
    stability: ClassVar = Stability.ALPHA
    parameters: UtilizationFilterParameters

    def __attrs_post_init__(self) -> None:
        if not self.parameters.conditions:
            raise ValueError("conditions must not be empty")

    @property
    def consumes(self) -> Consumes:
        return Consumes(*self.parameters.keys, optional=[FRESHNESS])

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {IN_FLIGHT_LOAD.name: self.parameters.in_flight_load_producer_name}

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        mask = [True] * len(endpoints)
        for condition in self.parameters.conditions:
            values = _values(data, condition.metric, len(endpoints))
            most = condition.max_value
            mask = [kept and not value > most for kept, value in zip(mask, values, strict=True)]
        if self.parameters.fallback_on_empty and not any(mask):
            return [True] * len(mask)
        return mask


def _values(data: DataView, metric: str, number: int) -> list[float]:
    """The load of each endpoint, 0 where it is not known."""
    if metric == ACTIVE:
        loads = data.get(IN_FLIGHT_LOAD) or ()
        return [0.0 if load is None else load.requests for load in loads] or [0.0] * number
    values = data.get(_REPORTED[metric])
    if values is None:
        return [0.0] * number
    freshness = data.get(FRESHNESS) or [None] * number
    return [
        0.0 if value is None or state is Freshness.STALE else value
        for value, state in zip(values, freshness, strict=True)
    ]
