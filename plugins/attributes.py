"""Filtering and scoring by any number that is known of endpoints, by its name.

What an endpoint reports is an attribute, and so is what a producer publishes of it. A value that
is no finite number, and one that the endpoint has not been able to renew for too long, count as
missing for the filter; the scorer treats them as the other scorers on reports do.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Column, Consumes, DataView, EndpointKey
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
from pointsman.kernel.structure import not_blank, one_of

from .keys import UNCACHED_TOKENS
from .load import Scores, score_reports

Number = EndpointKey[float] | EndpointKey[int]

DEFAULT_PRODUCER: Final = "core-metrics-extractor"
_REFERENCE_NAMES: Final[Mapping[str, Number]] = {
    "WaitingQueueSize": WAITING_QUEUE_SIZE,
    "RunningRequestsSize": RUNNING_REQUESTS,
    "KVCacheUsagePercent": KV_CACHE_USAGE,
    "UncachedRequestTokensDataKey": UNCACHED_TOKENS,
    UNCACHED_TOKENS.name: UNCACHED_TOKENS,
}
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "Equal": operator.eq,
    "NotEqual": operator.ne,
}
LOWER: Final = "linear_lower_is_better"
HIGHER: Final = "linear_higher_is_better"


def key_named(attribute: str, producer: str | None) -> Number:
    """The key of an attribute, by the reference's name for it or by ours.

    Raises:
        ValueError: *attribute* names its producer too, which is for *producer* to do.
    """
    if producer is None and "/" in attribute:
        name, _, owner = attribute.partition("/")
        raise ValueError(f"write {name!r} and producer: {owner!r} instead of {attribute!r}")
    return _REFERENCE_NAMES.get(attribute) or EndpointKey(attribute, float)


@define(eq=False)
class _OfAttribute:
    """What filter and scorer have in common: they read one attribute."""

    stability: ClassVar = Stability.ALPHA
    producer_names: Mapping[str, str] = field(init=False)
    _key: Number = field(init=False)

    @property
    def consumes(self) -> Consumes:
        return Consumes(optional=[self._key, FRESHNESS])

    def _look_at(self, attribute: str, producer: str | None) -> None:
        self._key = key_named(attribute, producer)
        self.producer_names = {self._key.name: DEFAULT_PRODUCER if producer is None else producer}

    def _read(self, data: DataView, number: int) -> tuple[Column[float], Column[Freshness]]:
        """The values, None where there is no finite one, and how fresh they are."""
        nothing: list[None] = [None] * number
        values = data.get(self._key) or nothing
        finite = [v if v is not None and math.isfinite(v) else None for v in values]
        return finite, data.get(FRESHNESS) or nothing


@final
@frozen(kw_only=True)
class Threshold:
    operator: str = field(validator=one_of(*_OPERATORS))
    value: float


@final
@frozen(kw_only=True)
class FilterAlgorithm:
    type: str = field(validator=one_of("threshold"))
    threshold: Threshold


@final
@frozen(kw_only=True)
class EndpointAttributeFilterParameters:
    attribute: str = field(validator=not_blank)
    producer: str | None = None
    """The plugin that publishes it: left out, core-metrics-extractor; empty, whoever does."""
    on_missing: str = field(default="Pass", validator=one_of("Pass", "Fail"))
    """What becomes of endpoints without the attribute."""
    fallback_on_empty: bool = False
    """Whether all stay when none would."""
    algorithm: FilterAlgorithm


@final
@define(eq=False)
class EndpointAttributeFilter(_OfAttribute):
    """Keeps the endpoints whose attribute compares to a threshold as the operator says."""

    type_name: ClassVar = "endpoint-attribute-filter"
    parameters: EndpointAttributeFilterParameters

    def __attrs_post_init__(self) -> None:
        self._look_at(self.parameters.attribute, self.parameters.producer)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        values, freshness = self._read(data, len(endpoints))
        threshold = self.parameters.algorithm.threshold
        compare, bound = _OPERATORS[threshold.operator], threshold.value
        passes = self.parameters.on_missing == "Pass"
        mask = [
            passes if value is None or state is Freshness.STALE else compare(value, bound)
            for value, state in zip(values, freshness, strict=True)
        ]
        if self.parameters.fallback_on_empty and not any(mask):
            return [True] * len(mask)
        return mask


@final
@frozen(kw_only=True)
class FixedRange:
    min: float
    max: float

    def __attrs_post_init__(self) -> None:
        if not (math.isfinite(self.max - self.min) and self.min < self.max):
            raise ValueError(f"min must be below max, not {self.min:g} and {self.max:g}")


@final
@frozen(kw_only=True)
class AdaptiveRange:
    """The range of the candidates' own values."""


@final
@frozen(kw_only=True)
class Normalization:
    """What is the least and what the most; one of the two."""

    fixed_range: FixedRange | None = None
    """Values outside are taken for its ends."""
    adaptive_range: AdaptiveRange | None = None

    def __attrs_post_init__(self) -> None:
        if self.fixed_range is not None and self.adaptive_range is not None:
            raise ValueError("fixedRange and adaptiveRange exclude each other")


@final
@frozen(kw_only=True)
class ScorerAlgorithm:
    type: str = field(validator=one_of(LOWER, HIGHER))
    normalization: Normalization = Normalization()

    def rate(self, values: Sequence[float]) -> list[float]:
        """From 0 for the worst of the range to 1 for the best; 1 for all when there is none."""
        fixed = self.normalization.fixed_range
        least = min(values) if fixed is None else fixed.min
        most = max(values) if fixed is None else fixed.max
        worst, best = (most, least) if self.type == LOWER else (least, most)
        half = best / 2 - worst / 2  # the whole of it need not be a float
        if half == 0:
            return [1.0] * len(values)
        return [min(1.0, max(0.0, (value / 2 - worst / 2) / half)) for value in values]


@final
@frozen(kw_only=True)
class EndpointAttributeScorerParameters:
    attribute_key: str = field(validator=not_blank)
    producer: str | None = None
    """The plugin that publishes it: left out, core-metrics-extractor; empty, whoever does."""
    algorithm: ScorerAlgorithm


@final
@define(eq=False)
class EndpointAttributeScorer(_OfAttribute):
    """Prefers endpoints with a lower (or a higher) attribute.

    ``(value - min) / (max - min)``, or 1 less that: in the candidates' own range, where equals
    all get 1, or in a fixed one.
    """

    type_name: ClassVar = "endpoint-attribute-scorer"
    parameters: EndpointAttributeScorerParameters

    def __attrs_post_init__(self) -> None:
        self._look_at(self.parameters.attribute_key, self.parameters.producer)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Scores:
        values, freshness = self._read(data, len(endpoints))
        return score_reports(values, freshness, self.parameters.algorithm.rate)
