"""Prefix affinity: a producer that guesses what endpoints hold, and the scorer that uses it.

What an endpoint holds follows from what was sent to it; engines keep whole blocks and drop the
least recently used, and so does the index. Differences from the reference are deliberate: only
contiguous matches count, only whole blocks are kept, an endpoint's capacity is counted in its
own tokens and follows its metrics, and its entries are dropped when it goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from xxhash import xxh64_digest

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Column, Consumes, DataView, keys, on
from pointsman.kernel.model import (
    CACHE_CONFIG,
    MODEL_NAME,
    POD_DELETED,
    REQUEST_HEADERS,
    CacheConfig,
    Endpoint,
    Headers,
    Identity,
    PodDeleted,
    SchedulingResult,
)
from pointsman.kernel.registry import Stability
from pointsman.kernel.state import StateKey
from pointsman.kernel.structure import above, at_least, within
from pointsman.kernel.tally import Tally

from .keys import PREFIX_HIT, TOKEN_BYTES, TOKENIZED_PROMPT, PrefixHit, TokenizedPrompt, Tokens
from .prefix_figures import BYTES, SHARES, Suspicion, family
from .prefix_index import BlockHashes, PrefixIndex, root_hash

BLOCK_FLOOR: Final = 64  # tokens; smaller blocks cost more than they tell apart
DEFAULT_BLOCK: Final = 16  # tokens, before the floor
DEFAULT_CAPACITY: Final = 31250  # blocks


@final
@frozen(kw_only=True)
class ApproxPrefixCacheParameters:
    auto_tune: bool = True
    """Whether block size and capacity follow the endpoints' own metrics."""
    block_size_tokens: int = field(default=DEFAULT_BLOCK, validator=at_least(1))
    """Where an endpoint does not say; raised to 64."""
    block_size: int = field(default=0, validator=at_least(0))
    """Deprecated spelling of ``blockSizeTokens``."""
    max_prefix_tokens_to_match: int = field(default=131072, validator=at_least(0))
    """Tokens of a prompt that are looked at; 0 leaves it to the number of blocks."""
    max_prefix_blocks_to_match: int = field(default=2048, validator=at_least(0))
    """Used only when the token limit is 0; 0 too: no limit."""
    lru_capacity_per_server: int = field(default=DEFAULT_CAPACITY, validator=at_least(1))
    """Blocks of an endpoint that does not say how much it holds."""
    block_size_floor: int = field(default=BLOCK_FLOOR, validator=at_least(1))
    """Not in the reference: the smallest block, in tokens, whatever its origin."""
    prefill_profile_name: str = "prefill"
    """Not in the reference: the profile whose endpoint computes the prompt too."""

    @property
    def configured_block(self) -> int:
        old = self.block_size and self.block_size_tokens == DEFAULT_BLOCK
        return self.block_size if old else self.block_size_tokens


@final
@frozen(eq=False)
class _Looked:
    """What one request's look-up found, kept until it is sent."""

    prompts: Sequence[BlockHashes]
    matches: Mapping[Identity, int]
    total: int
    block_size: int


LOOKED: Final = StateKey("looked", _Looked)


@final
@define(eq=False)
class ApproxPrefixCacheProducer:
    """Estimates how much of the prompt each endpoint holds, from the prompts sent to it."""

    type_name: ClassVar = "approx-prefix-cache-producer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(
        TOKENIZED_PROMPT, optional=[CACHE_CONFIG, MODEL_NAME, REQUEST_HEADERS]
    )
    produces: ClassVar = keys(PREFIX_HIT)
    default_for: ClassVar = keys(PREFIX_HIT)
    parameters: ApproxPrefixCacheParameters
    index: PrefixIndex[Identity] = field(init=False)
    _configs: dict[Identity, CacheConfig] = field(factory=dict[Identity, CacheConfig], init=False)
    _reachable: Tally = field(factory=lambda: Tally(SHARES), init=False)
    _achieved: Tally = field(factory=lambda: Tally(SHARES), init=False)
    _achieved_bytes: Tally = field(factory=lambda: Tally(BYTES), init=False)
    _name: str = field(default="", init=False)
    """Its own; known from the first request on that the index learned from."""
    _suspicion: Suspicion = field(factory=Suspicion, init=False)

    def __attrs_post_init__(self) -> None:
        self.index = PrefixIndex(self.parameters.lru_capacity_per_server)

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        prompt = data.get(TOKENIZED_PROMPT)
        if prompt is None:
            self._suspicion.no_tokens()
            return
        configs = data.get(CACHE_CONFIG)
        if not self.parameters.auto_tune:
            configs = None
        block = self._block_size(configs)
        if configs is not None:
            self._follow(endpoints, configs, block)
        chains = self._chains(prompt, data.get(MODEL_NAME) or "", block)
        identities = [endpoint.identity for endpoint in endpoints]
        matches = self._match(identities, chains)
        total = sum(chain.total for chain in chains)
        kinds = {match: PrefixHit(match, total, block) for match in set(matches)}
        data[PREFIX_HIT] = [kinds[match] for match in matches]
        first = next((chain.up_to(1)[0] for chain in chains if len(chain)), None)
        self._suspicion.looked(first, matched=any(matches))
        by_identity = {one: n for one, n in zip(identities, matches, strict=True) if n}
        data.state.write(LOOKED, _Looked(chains, by_identity, total, block))

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        """Note the prompt as held by whoever computes it.

        Raises:
            Refusal: 412, when the client wants an answer only from who holds some of the prompt.
        """
        looked = data.state.read(LOOKED)
        target = result.target.identity
        if _if_available(data.get(REQUEST_HEADERS)) and not (looked and looked.matches.get(target)):
            raise Refusal(412, "no decode worker has the requested KV cache")
        if looked is None or not looked.total:
            return
        self._note(looked, looked.matches.get(target, 0))
        self._name = data.plugin
        prefill = result.profiles.get(self.parameters.prefill_profile_name)
        computing = {target, *([prefill.targets[0].identity] if prefill is not None else [])}
        for identity in computing:
            if identity.gone:  # since the request was looked at; nobody would forget it again
                continue
            for chain in looked.prompts:
                self.index.record(identity, chain)
        data.state.delete(LOOKED)

    @on(POD_DELETED)
    def forget(self, event: PodDeleted) -> None:
        self.index.forget(event.endpoint.identity)
        self._configs.pop(event.endpoint.identity, None)

    def _block_size(self, configs: Column[CacheConfig] | None) -> int:
        """One size for the request, so that endpoints can be compared: the pool's largest."""
        said = [c.block_size for c in configs or () if c is not None and c.block_size]
        return max(
            self.parameters.block_size_floor,
            max(said, default=0) or self.parameters.configured_block,
        )

    def _follow(
        self, endpoints: Sequence[Endpoint], configs: Column[CacheConfig], block: int
    ) -> None:
        """Give each endpoint the capacity that its metrics tell, when they tell something new."""
        for endpoint, config in zip(endpoints, configs, strict=True):
            if config is not None and self._configs.get(endpoint.identity) is not config:
                self._configs[endpoint.identity] = config
                if config.blocks and config.block_size:
                    held = config.blocks * config.block_size // block
                    self.index.set_capacity(endpoint.identity, max(1, held))

    def _chains(self, prompt: TokenizedPrompt, model: str, block: int) -> Sequence[BlockHashes]:
        root = root_hash(model, prompt.salt)
        size = block * TOKEN_BYTES
        longest = self._longest(block) * size
        return [
            BlockHashes(_told_apart(one, prompt.estimated)[:longest], size, root)
            for one in prompt.prompts
        ]

    def _longest(self, block: int) -> int:
        """Blocks of a prompt that are looked at."""
        limit = self.parameters
        if limit.max_prefix_tokens_to_match:
            return limit.max_prefix_tokens_to_match // block
        return limit.max_prefix_blocks_to_match or 2**32

    def _match(self, identities: Sequence[Identity], chains: Sequence[BlockHashes]) -> list[int]:
        found = [self.index.match(identities, chain) for chain in chains]
        return found[0] if len(found) == 1 else [sum(each) for each in zip(*found, strict=True)]

    def _note(self, looked: _Looked, achieved: int) -> None:
        """Count what could be had of a prompt, and how many blocks of it were."""
        self._reachable.observe(max(looked.matches.values(), default=0) / looked.total)
        self._achieved.observe(achieved / looked.total)
        self._achieved_bytes.observe(achieved * looked.block_size * TOKEN_BYTES)

    def figures(self) -> Iterable[Metric]:
        """What /metrics shows of the index, once it learned something."""
        if not self._name:
            return
        labels = {"plugin_name": self._name, "plugin_type": self.type_name}
        text = "Blocks in the prefix index."
        size = GaugeMetricFamily("llm_d_epp_prefix_indexer_size", text, labels=list(labels))
        size.add_metric(list(labels.values()), len(self.index))
        yield size
        text = "Share of the prompt that the best endpoint held."
        yield family("pointsman_prefix_reachable_ratio", text, labels, self._reachable)
        text = "Share of the prompt that the chosen endpoint held."
        yield family("llm_d_epp_prefix_indexer_hit_ratio", text, labels, self._achieved)
        text = "Bytes of the prompt's tokens, four for each, that the chosen endpoint held."
        yield family("llm_d_epp_prefix_indexer_hit_bytes", text, labels, self._achieved_bytes)

    def dead_signals(self) -> Mapping[str, str]:
        return self._suspicion.dead()

    def dump_state(self) -> object:
        """The hundred largest endpoints of the index."""
        sizes = sorted(
            ((self.index.size(one), one.uid) for one in self.index.endpoints), reverse=True
        )
        return {"blocks": len(self.index), "endpoints": {uid: n for n, uid in sizes[:100]}}


def _if_available(headers: Headers | None) -> bool:
    """Whether the client says ``prefer: if-available``, as a coordinator of stages does."""
    if headers is None or (preferred := headers.get("prefer")) is None:
        return False
    return "if-available" in (token.strip().lower() for token in preferred.split(","))


def _told_apart(prompt: Tokens, estimated: bool) -> bytes:
    """The prompt's tokens, where an engine's placeholders of media say which media they are."""
    if estimated or not prompt.features:
        return prompt.data
    data = bytearray(prompt.data)
    for feature in prompt.features:
        start, end = feature.offset * TOKEN_BYTES, (feature.offset + feature.length) * TOKEN_BYTES
        length = max(0, min(end, len(data)) - start)
        digest = xxh64_digest(feature.hash.encode())[:TOKEN_BYTES]
        data[start : start + length] = (digest * (length // TOKEN_BYTES + 1))[:length]
    return bytes(data)


@final
@frozen(kw_only=True)
class PrefixCacheScorerParameters:
    prefix_match_info_producer_name: str = ""
    match_length_weight: float = field(default=0.0, validator=within(0, 1))
    """How much the length of the match counts, beside its share of the prompt."""
    match_length_scale_tokens: int = field(default=8192, validator=above(0))
    """The match from which on its length counts in full."""


@final
@define(eq=False)
class PrefixCacheScorer:
    """Prefers endpoints that hold more of the prompt.

    ``w * min(1, match * blockSize / scale) ** 2 + (1 - w) * match / total``; 0 without prompt.
    """

    type_name: ClassVar = "prefix-cache-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(PREFIX_HIT)
    parameters: PrefixCacheScorerParameters

    @property
    def producer_names(self) -> Mapping[str, str]:
        return {PREFIX_HIT.name: self.parameters.prefix_match_info_producer_name}

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        hits = data[PREFIX_HIT]
        known: dict[PrefixHit, float] = {}
        scores: list[float] = []
        for hit in hits:
            if hit is None:
                scores.append(0.0)
                continue
            if hit not in known:
                known[hit] = self._rate(hit)
            scores.append(known[hit])
        return scores

    def _rate(self, hit: PrefixHit) -> float:
        weight = self.parameters.match_length_weight
        if not weight:
            return hit.share
        length = min(1.0, hit.cached_tokens / self.parameters.match_length_scale_tokens)
        return weight * length**2 + (1 - weight) * hit.share
