"""How full endpoints are by what was sent to them and has not ended: it is known at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.plugin import Mask
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import at_least, one_of

from .keys import IN_FLIGHT_LOAD, TOKENIZED_PROMPT, InFlightLoad
from .utilization import FULL

REQUESTS: Final = "requests"
TOKENS: Final = "tokens"
HYBRID: Final = "hybrid"
ROUNDING: Final = 1e-6  # below it, a headroom is a whole number that was not quite met


@final
@frozen(kw_only=True)
class ConcurrencyDetectorParameters:
    max_concurrency: int = field(default=100, validator=at_least(1))
    """Requests in flight at which an endpoint is full."""
    max_token_concurrency: int = field(default=1_000_000, validator=at_least(1))
    """Tokens in flight at which an endpoint is full."""
    headroom: float = field(default=0.0, validator=at_least(0))
    """By which share of the limits the filter lets endpoints exceed them."""
    concurrency_mode: str = field(default=REQUESTS, validator=one_of(REQUESTS, TOKENS, HYBRID))
    """What is counted; ``hybrid``: both, and the fuller of the two."""
    in_flight_load_producer_name: str = ""

    def counts(self, load: InFlightLoad | None) -> list[tuple[int, int]]:
        """What is counted of a load, each with its limit; an endpoint without any is idle."""
        load = load or InFlightLoad()
        requests = (load.requests, self.max_concurrency)
        tokens = (load.tokens, self.max_token_concurrency)
        if self.concurrency_mode == HYBRID:
            return [requests, tokens]
        return [requests if self.concurrency_mode == REQUESTS else tokens]

    def fullness(self, load: InFlightLoad | None) -> float:
        """1 at the limit."""
        return max(count / limit for count, limit in self.counts(load))

    def has_room(self, load: InFlightLoad | None) -> bool:
        return all(count < self._most(limit) for count, limit in self.counts(load))

    def _most(self, limit: int) -> int:
        return limit + int(limit * self.headroom + ROUNDING)


@final
@define(eq=False)
class ConcurrencyDetector:
    """Says how full endpoints are by what was sent to them; as a filter, drops the full.

    Saturation is the load of all endpoints as a share of what all may have, in hybrid mode the
    mean over the endpoints. The filter has no fallback: where all are full, the request is
    refused.
    """

    type_name: ClassVar = "concurrency-detector"
    stability: ClassVar = Stability.BETA
    parameters: ConcurrencyDetectorParameters

    @property
    def consumes(self) -> Consumes:
        if self.parameters.concurrency_mode == REQUESTS:
            return Consumes(IN_FLIGHT_LOAD)
        # The prompt is not read here: but without it there are no tokens to count.
        return Consumes(IN_FLIGHT_LOAD, TOKENIZED_PROMPT)

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {IN_FLIGHT_LOAD.name: self.parameters.in_flight_load_producer_name}

    def saturation(self, data: DataView, endpoints: Sequence[Endpoint]) -> float:
        if not endpoints:
            return FULL
        # All have the same limits: the share of the sums is the mean of the shares.
        fullness = [self.parameters.fullness(load) for load in data[IN_FLIGHT_LOAD]]
        return sum(fullness) / len(fullness)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        return [self.parameters.has_room(load) for load in data[IN_FLIGHT_LOAD]]
