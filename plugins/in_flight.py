"""What was sent to each endpoint and has not ended: the load that no scrape shows yet.

A request is counted when it is sent and uncounted when its stream is over, whatever the ending:
the count is a value of the request's own state, and dropping it is what uncounts it. So it can be
neither lost nor doubled nor negative, and an endpoint that goes and comes again starts at nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from pointsman.kernel.keys import Column, Consumes, DataView, keys
from pointsman.kernel.model import (
    REQUEST_HEADERS,
    REQUEST_PRIORITY,
    Endpoint,
    Identity,
    SchedulingResult,
)
from pointsman.kernel.names import Names, flow_of
from pointsman.kernel.plugin import Role
from pointsman.kernel.registry import Stability
from pointsman.kernel.state import StateKey
from pointsman.kernel.structure import at_least

from .keys import (
    IN_FLIGHT_LOAD,
    MAX_OUTPUT_TOKENS,
    PREFIX_HIT,
    TOKENIZED_PROMPT,
    UNCACHED_TOKENS,
    InFlightLoad,
    PrefixHit,
)

NOTHING: Final = InFlightLoad()
LABELS: Final = ("endpoint_name", "namespace", "producer_name", "fairness_id", "priority")

Sender = tuple[str, int]
"""Whose request it is: its flow, a label, and its priority."""


@final
@frozen(kw_only=True)
class InFlightLoadParameters:
    add_estimated_output_tokens: bool = False
    """Whether a request also counts for the tokens that it is expected to generate."""
    output_ratio: float = field(default=1.5, validator=at_least(0))
    """Expected output tokens for each token of the prompt."""
    max_estimated_output_tokens: int | None = field(default=None, validator=at_least(0))
    """The most that are expected, whatever the prompt; the client's own limit binds, too."""
    prefix_match_info_producer_name: str = ""
    sync_cross_replica_state: bool = True
    """Read for compatibility; each daemon counts what it sent itself."""
    release_tokens_at_first_chunk: bool = False
    """Not in the reference, which always does: the prompt counts until the first output, not until
    the end. Then the response has to pass by, which every chunk of it pays for."""


@final
@define(eq=False)
class Ledger:
    """The load of every endpoint that has any, in all and by whose it is."""

    _loads: dict[Identity, InFlightLoad] = field(factory=dict[Identity, InFlightLoad], init=False)
    _shares: dict[tuple[Identity, Sender], tuple[Endpoint, InFlightLoad]] = field(
        factory=dict[tuple[Identity, Sender], tuple[Endpoint, InFlightLoad]], init=False
    )

    def add(self, endpoint: Endpoint, sender: Sender, requests: int, tokens: int) -> None:
        identity = endpoint.identity
        load = self._loads.get(identity, NOTHING).plus(requests, tokens)
        self._loads[identity] = load
        _, share = self._shares.get((identity, sender), (endpoint, NOTHING))
        share = share.plus(requests, tokens)
        self._shares[identity, sender] = endpoint, share
        if not load.requests:
            del self._loads[identity]
        if not share.requests:
            del self._shares[identity, sender]

    def column(self, endpoints: Sequence[Endpoint]) -> Column[InFlightLoad]:
        loads = self._loads
        if not loads:
            return [NOTHING] * len(endpoints)
        return [loads.get(endpoint.identity, NOTHING) for endpoint in endpoints]

    def shares(self) -> Iterator[tuple[Endpoint, Sender, InFlightLoad]]:
        """Endpoint, sender, and what is in flight of both."""
        for (_, sender), (endpoint, share) in self._shares.items():
            yield endpoint, sender, share

    def __len__(self) -> int:
        """How many endpoints have load."""
        return len(self._loads)


@final
@define(eq=False)
class _Count:
    """What one request counts for, at the endpoints it was sent to."""

    ledger: Ledger
    sender: Sender
    parts: list[tuple[Endpoint, int]]
    """Endpoints, with the tokens that are counted there still."""

    def take(self) -> None:
        for endpoint, tokens in self.parts:
            self.ledger.add(endpoint, self.sender, 1, tokens)

    def release_tokens(self) -> None:
        parts, self.parts = self.parts, [(endpoint, 0) for endpoint, _ in self.parts]
        for endpoint, tokens in parts:
            if tokens:
                self.ledger.add(endpoint, self.sender, 0, -tokens)

    def on_evicted(self) -> None:
        for endpoint, tokens in self.parts:
            self.ledger.add(endpoint, self.sender, -1, -tokens)


COUNT: Final = StateKey("count", _Count)


@final
@define(eq=False)
class InFlightLoadProducer:
    """Counts requests and the tokens that endpoints have to compute for them, from the pick on.

    A request costs an endpoint the tokens of its prompt that the endpoint is not believed to hold,
    and if asked for ``min(prompt * outputRatio, max_tokens, maxEstimatedOutputTokens)`` more.
    """

    type_name: ClassVar = "inflight-load-producer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(
        optional=[
            TOKENIZED_PROMPT,
            PREFIX_HIT,
            MAX_OUTPUT_TOKENS,
            REQUEST_PRIORITY,
            REQUEST_HEADERS,
        ]
    )
    produces: ClassVar = keys(IN_FLIGHT_LOAD, UNCACHED_TOKENS)
    default_for: ClassVar = keys(IN_FLIGHT_LOAD, UNCACHED_TOKENS)
    parameters: InFlightLoadParameters
    ledger: Ledger = field(factory=Ledger, init=False)
    _flows: Names = field(factory=Names, init=False)
    _name: str = field(default="", init=False)
    """Its own; known from the first request on that it counts."""

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {PREFIX_HIT.name: self.parameters.prefix_match_info_producer_name}

    @property
    def idle_roles(self) -> frozenset[Role]:
        eager = self.parameters.release_tokens_at_first_chunk
        return frozenset() if eager else frozenset({Role.RESPONSE_CHUNK})

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        data[IN_FLIGHT_LOAD] = self.ledger.column(endpoints)
        prompt = data.get(TOKENIZED_PROMPT)
        if prompt is None:  # nothing is known of its size: it counts as a request only
            data[UNCACHED_TOKENS] = [0] * len(endpoints)
            return
        hits = data.get(PREFIX_HIT)
        if hits is None:
            data[UNCACHED_TOKENS] = [prompt.count] * len(endpoints)
            return
        known = {hit: _uncached(prompt.count, hit) for hit in set(hits)}
        data[UNCACHED_TOKENS] = [known[hit] for hit in hits]

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        """Count the request at the first target of every profile that found one."""
        output = self._output(data)
        parts = [
            (target, (data.of(UNCACHED_TOKENS, target) or 0) + output)
            for profile in result.profiles.values()
            if profile is not None
            for target in profile.targets[:1]
        ]
        self._name = data.plugin
        count = _Count(self.ledger, self._sender(data), parts)
        count.take()
        data.state.write(COUNT, count)

    def _sender(self, data: DataView) -> Sender:
        headers = data.get(REQUEST_HEADERS)
        flow = self._flows.label(flow_of(headers)) if headers is not None else ""
        return flow, data.get(REQUEST_PRIORITY) or 0

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None:
        count = data.state.read(COUNT)
        if count is not None:
            count.release_tokens()

    def _output(self, data: DataView) -> int:
        """Tokens that the request is expected to generate, if that is to be counted."""
        limits = self.parameters
        prompt = data.get(TOKENIZED_PROMPT)
        if not limits.add_estimated_output_tokens or prompt is None:
            return 0
        caps = (data.get(MAX_OUTPUT_TOKENS), limits.max_estimated_output_tokens)
        guess = round(prompt.count * limits.output_ratio)
        return min([guess, *(cap for cap in caps if cap is not None)])

    def figures(self) -> Iterable[Metric]:
        requests = GaugeMetricFamily(
            "llm_d_epp_inflight_requests", "Requests that have not ended.", labels=LABELS
        )
        tokens = GaugeMetricFamily(
            "llm_d_epp_inflight_tokens", "Tokens that they were sent with.", labels=LABELS
        )
        for endpoint, (flow, priority), load in self.ledger.shares():
            labels = [endpoint.name, endpoint.namespace, self._name, flow, str(priority)]
            requests.add_metric(labels, load.requests)
            tokens.add_metric(labels, load.tokens)
        return requests, tokens

    def dump_state(self) -> object:
        """The hundred busiest endpoints."""
        busiest = sorted(self.ledger.shares(), key=lambda share: -share[2].requests)[:100]
        return [
            {
                "endpoint": endpoint.id,
                "flow": flow,
                "priority": priority,
                "requests": load.requests,
                "tokens": load.tokens,
            }
            for endpoint, (flow, priority), load in busiest
        ]


def _uncached(prompt: int, hit: PrefixHit | None) -> int:
    return prompt if hit is None else max(0, prompt - hit.cached_tokens)
