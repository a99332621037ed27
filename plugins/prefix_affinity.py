"""Prompts stay where most of them is cached, until that has become slower than starting over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import not_
from random import Random
from typing import Any, ClassVar, Final, final

from attrs import Attribute, define, field, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.plugin import Mask
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import FieldError, at_least, within

from .keys import IN_FLIGHT_LOAD, PREFIX_HIT

THROUGHPUT: Final = "prefillThroughput"
PREDICTOR: Final = "latencyPredictor"


def _is_source(_: object, attribute: Attribute[Any], value: str) -> None:
    if value == PREDICTOR:
        message = f"{PREDICTOR} needs predicted latency, which is out of scope: use {THROUGHPUT}"
        raise FieldError(attribute.name, message)
    if value != THROUGHPUT:
        raise FieldError(attribute.name, f"must be {THROUGHPUT}, not {value!r}")


def _at_most_one(_: object, attribute: Attribute[Any], value: float) -> None:
    if not value <= 1:
        raise FieldError(attribute.name, f"must be at most 1, not {value:g}")


@final
@frozen(kw_only=True)
class PrefixCacheAffinityParameters:
    affinity_threshold: float = field(default=0.80, validator=_at_most_one)
    """The share of the prompt that a sticky endpoint holds; 0 and below disable the filter."""
    exploration_probability: float = field(default=0.0, validator=within(0, 1))
    """How often a request may go anywhere, so that others come to hold its prompt, too."""
    max_ttft_penalty_ms: float = field(
        default=18000.0, validator=at_least(0), metadata={"key": "maxTTFTPenaltyMs"}
    )
    """How much longer the first token may take for stickiness, in milliseconds; 0: any time."""
    ttft_source: str = field(default=THROUGHPUT, validator=_is_source)
    """How the time to the first token is known: from the tokens in flight."""
    peak_prefill_throughput: float = field(default=15928.0, validator=at_least(0))
    """Tokens of prompts that an endpoint computes in a second."""
    prefix_match_info_producer_name: str = ""
    in_flight_load_producer_name: str = ""
    latency_prediction_info_producer_name: str = ""
    """Without effect: latency is not predicted."""

    def __attrs_post_init__(self) -> None:
        if self.max_ttft_penalty_ms and not self.peak_prefill_throughput:
            raise ValueError("peakPrefillThroughput must be above 0 unless maxTTFTPenaltyMs is 0")

    @property
    def most_tokens_behind(self) -> float:
        """The penalty in tokens: how many more may be in flight where stickiness leads."""
        return self.max_ttft_penalty_ms / 1000 * self.peak_prefill_throughput


@final
@define(eq=False)
class PrefixCacheAffinityFilter:
    """Keeps the sticky endpoints, those that hold at least *affinityThreshold* of the prompt.

    Keeps all where none is sticky, by chance, and where the first token would come more than
    *maxTTFTPenaltyMs* later than from the others: the time is
    ``tokens in flight / peakPrefillThroughput``, of the least loaded endpoint of either side.
    """

    type_name: ClassVar = "prefix-cache-affinity-filter"
    stability: ClassVar = Stability.BETA
    parameters: PrefixCacheAffinityParameters
    random: Random

    @property
    def consumes(self) -> Consumes:
        if self.parameters.affinity_threshold <= 0:
            return Consumes()
        if self.parameters.max_ttft_penalty_ms:
            return Consumes(PREFIX_HIT, IN_FLIGHT_LOAD)
        return Consumes(PREFIX_HIT)

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {
            PREFIX_HIT.name: self.parameters.prefix_match_info_producer_name,
            IN_FLIGHT_LOAD.name: self.parameters.in_flight_load_producer_name,
        }

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        everyone = [True] * len(endpoints)
        threshold = self.parameters.affinity_threshold
        if len(endpoints) <= 1 or threshold <= 0 or self._explores():
            return everyone
        sticky = [hit is not None and hit.share >= threshold for hit in data[PREFIX_HIT]]
        if not any(sticky) or (not all(sticky) and self._is_too_slow(data, sticky)):
            return everyone
        return sticky

    def _explores(self) -> bool:
        chance = self.parameters.exploration_probability
        return chance > 0 and self.random.random() < chance

    def _is_too_slow(self, data: DataView, sticky: Sequence[bool]) -> bool:
        """Whether even the least loaded sticky endpoint is too far behind the least of the rest."""
        if not self.parameters.max_ttft_penalty_ms:
            return False
        loads = data.get(IN_FLIGHT_LOAD)
        if loads is None:
            return False
        tokens = [0 if load is None else load.tokens for load in loads]
        behind = min(compress(tokens, sticky)) - min(compress(tokens, map(not_, sticky)))
        return behind > self.parameters.most_tokens_behind
