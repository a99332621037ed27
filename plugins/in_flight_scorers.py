"""Scorers on what was sent to an endpoint and has not ended: load that is known at once.

Unlike reports these counts are our own. An endpoint without any has been sent nothing: it is
idle, not unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import Duration

from .keys import IN_FLIGHT_LOAD, TOKENIZED_PROMPT, UNCACHED_TOKENS

FULL_OF_TOKENS: Final = 4_194_304


@final
@frozen(kw_only=True)
class ActiveRequestParameters:
    idle_threshold: int = 0
    """Requests up to which an endpoint counts as idle; below 0 means 0."""
    max_busy_score: float = 1.0
    """What the least busy of the busy could get at most; outside 0 to 1 means 1."""
    request_timeout: Duration | None = None
    """Deprecated: requests are counted until they end."""
    in_flight_load_producer_name: str = ""

    @property
    def idle(self) -> int:
        return max(0, self.idle_threshold)

    @property
    def busy(self) -> float:
        return self.max_busy_score if 0.0 <= self.max_busy_score <= 1.0 else 1.0


@final
@define(eq=False)
class ActiveRequestScorer:
    """Prefers endpoints with fewer requests in flight.

    1 up to *idleThreshold*, else ``(max - requests) / max * maxBusyScore``.
    """

    type_name: ClassVar = "active-request-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(IN_FLIGHT_LOAD)
    parameters: ActiveRequestParameters

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {IN_FLIGHT_LOAD.name: self.parameters.in_flight_load_producer_name}

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        counts = [0 if load is None else load.requests for load in data[IN_FLIGHT_LOAD]]
        idle, busy = self.parameters.idle, self.parameters.busy
        most = max(counts, default=0)
        if most <= idle:
            return [1.0] * len(counts)
        return [1.0 if count <= idle else (most - count) / most * busy for count in counts]


@final
@frozen(kw_only=True)
class TokenLoadParameters:
    queue_threshold_tokens: int = FULL_OF_TOKENS
    """Tokens from which on an endpoint gets 0; 0 and below mean 4194304."""
    in_flight_load_producer_name: str = ""

    @property
    def full(self) -> int:
        return self.queue_threshold_tokens if self.queue_threshold_tokens > 0 else FULL_OF_TOKENS


@final
@define(eq=False)
class TokenLoadScorer:
    """Prefers endpoints that would have fewer tokens to compute with this request.

    ``1 - tokens / queueThresholdTokens``, at least 0; tokens are those in flight and those of
    this request that the endpoint does not hold.
    """

    type_name: ClassVar = "token-load-scorer"
    stability: ClassVar = Stability.BETA
    # The prompt is not read here: but without it there are no tokens to count.
    consumes: ClassVar = Consumes(IN_FLIGHT_LOAD, UNCACHED_TOKENS, TOKENIZED_PROMPT)
    parameters: TokenLoadParameters

    @property
    def producer_names(self) -> Mapping[str, str]:
        producer = self.parameters.in_flight_load_producer_name
        return {IN_FLIGHT_LOAD.name: producer, UNCACHED_TOKENS.name: producer}

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        loads, full = data[IN_FLIGHT_LOAD], self.parameters.full
        own = data.get(UNCACHED_TOKENS) or [None] * len(loads)
        tokens = [
            (0 if load is None else load.tokens) + (uncached or 0)
            for load, uncached in zip(loads, own, strict=True)
        ]
        return [
            1.0 if number <= 0 else (full - number) / full if number < full else 0.0
            for number in tokens
        ]
