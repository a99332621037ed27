"""Refusing what may be refused, the more surely the fuller the pool is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat
from random import Random
from typing import ClassVar, final

from attrs import define, field, frozen

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    REQUEST_PRIORITY,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Freshness,
)
from pointsman.kernel.registry import Stability
from pointsman.kernel.scheduling import SATURATED
from pointsman.kernel.structure import above

from .utilization import FULL, fuller


@final
@frozen(kw_only=True)
class ProbabilisticAdmitterParameters:
    queue_depth_threshold: float = field(default=5.0, validator=above(0))
    """Waiting requests at which an endpoint is full."""
    kv_cache_util_threshold: float = field(default=0.8, validator=above(0))
    """The share of the KV cache in use at which an endpoint is full."""
    power: float = field(default=5.0, validator=above(0))
    """The higher, the later and the more suddenly requests are refused."""
    k: float = field(default=300.0, validator=above(0))
    """The higher, the earlier; with a power of 5, 300 refuses all from a saturation of 0.32 on."""


@final
@define(eq=False)
class ProbabilisticAdmitter:
    """Refuses requests of negative priority, with a chance that grows with the saturation.

    The chance is ``min(1, saturation ** power * k)``; saturation is the mean over the endpoints
    of the fuller of queue and KV cache, each as a share of its threshold.
    """

    type_name: ClassVar = "probabilistic-admitter"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(
        REQUEST_PRIORITY, WAITING_QUEUE_SIZE, KV_CACHE_USAGE, optional=[FRESHNESS]
    )
    parameters: ProbabilisticAdmitterParameters
    random: Random

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        if data[REQUEST_PRIORITY] >= 0 or not endpoints:
            return
        if self.random.random() < self._chance(self._saturation(data, len(endpoints))):
            message = "the pool is too full for a request of this priority"
            raise Refusal(429, message, reason=SATURATED, retry_after=1)

    def _saturation(self, data: DataView, number: int) -> float:
        waiting = data.get(WAITING_QUEUE_SIZE) or repeat(None, number)
        cache = data.get(KV_CACHE_USAGE) or repeat(None, number)
        freshness = data.get(FRESHNESS) or repeat(None, number)
        fullness = map(self._fullness, waiting, cache, freshness)
        return sum(fullness) / number

    def _fullness(
        self, waiting: float | None, cache: float | None, freshness: Freshness | None
    ) -> float:
        limits = self.parameters
        thresholds = (limits.queue_depth_threshold, limits.kv_cache_util_threshold)
        known = fuller(waiting, cache, freshness, thresholds)
        return FULL if known is None else known

    def _chance(self, saturation: float) -> float:
        if saturation <= 0:
            return 0.0
        # In logarithms: what is far above 1 need not be a float.
        exponent = self.parameters.power * math.log(saturation) + math.log(self.parameters.k)
        return math.exp(min(0.0, exponent))
