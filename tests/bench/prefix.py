"""What long prompts cost: a whole decision over 100 endpoints, and the prefix index by itself.

A decision is everything between the last byte of a JSON chat body and the answer: reading the
body, estimating its tokens, hashing and looking up its blocks, scoring by prefix, queue and cache
use, picking, and noting the prompt as held. Beside it stands a straightforward index: a set of
holders for each block, walked block by block and copied at each.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from time import perf_counter
from typing import Any, ClassVar, Final

from attrs import define, field

from pointsman import plugins
from pointsman.kernel.candidates import Surroundings
from pointsman.kernel.config import read_config
from pointsman.kernel.datastore import Datastore
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    CacheConfig,
    EndCause,
    Headers,
    Request,
    RequestEnd,
    SchedulingResult,
)
from pointsman.kernel.registry import Registry
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring, wire
from pointsman.plugins.keys import PREFIX_HIT, TOKENIZED_PROMPT, PrefixHit, TokenizedPrompt
from pointsman.plugins.prefix_index import BlockHashes, PrefixIndex, root_hash

from .cycle import make_pool, timed

PATH: Final = "/v1/chat/completions"
MODEL: Final = "m"
ENDPOINTS: Final = 100
CONFIG: Final = """
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: witness
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
"""
LONG: Final = 400_000  # bytes of prompt, 100,000 tokens
SHORT: Final = 32_000
BLOCK_BYTES: Final = 64 * 4
BLOCKS: Final = 1_000_000  # in the index, over all endpoints
PROMPT_BLOCKS: Final = 125  # 8,000 tokens


def rows() -> list[tuple[str, float]]:
    """Name and CPU microseconds per operation; two rows have a unit of their own."""
    return [*_decisions(), *_lookups(), *_large_index()]


# -- a whole decision ---------------------------------------------------------------------------


def _decisions() -> Iterator[tuple[str, float]]:
    for tokens, length in (("100k", LONG), ("8k", SHORT)):
        decider = _Decider.make()
        yield f"prefix, {tokens} tokens, 100 endpoints: cold", timed(decider.cold(length))
        yield f"prefix, {tokens} tokens, 100 endpoints: 90 % known", timed(decider.warm(length))


@define(eq=False)
class Witness:
    """Notes what is known of a prompt: after the decision it is gone."""

    type_name: ClassVar = "witness"
    consumes: ClassVar = Consumes(TOKENIZED_PROMPT, PREFIX_HIT)
    tokenized: TokenizedPrompt | None = field(default=None, init=False)
    hits: Sequence[PrefixHit | None] = field(default=(), init=False)

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        hits = data[PREFIX_HIT]
        self.tokenized, self.hits = data[TOKENIZED_PROMPT], hits


@define(eq=False)
class _Decider:
    """Decides requests whose prompts are made beforehand, so that making them costs nothing."""

    wiring: Wiring
    store: Datastore

    @classmethod
    def make(cls) -> _Decider:
        registry = Registry()
        for plugin_class in (*plugins.BUILT_IN, Witness):
            registry.register(plugin_class)
        around = Surroundings(registry=registry, topics=Topics(), random=Random(1))
        wiring = wire(read_config(CONFIG, "bench"), around)
        cache = {"cache-config": CacheConfig(block_size=16, blocks=27_000)}
        return cls(wiring, make_pool(wiring, ENDPOINTS, cache))

    @property
    def witness(self) -> Witness:
        plugin: Witness = self.wiring.installed["witness"].plugin
        return plugin

    def decide(self, body: bytes | bytearray) -> None:
        request = Request(Headers({}), PATH)
        read = self.wiring.routes.find(PATH).read
        assert read is not None
        parsed = read(bytes(body))
        request.model = request.incoming_model = MODEL
        outcome = self.wiring.director.decide_now(request, parsed, self.store.snapshot)
        self.wiring.director.response_end(outcome, RequestEnd(EndCause.NATURAL))
        request.end()

    def cold(self, length: int) -> Any:
        """Prompts that differ from their beginning."""
        bodies = _Bodies(length, fresh_from=0)
        return lambda: self.decide(bodies.another())

    def warm(self, length: int) -> Any:
        """Prompts whose last tenth is new; half of the endpoints know the rest."""
        bodies = _Bodies(length, fresh_from=length * 9 // 10)
        self.decide(bodies.another())
        index = self.wiring.installed["approx-prefix-cache-producer"].plugin.index
        known = _known(self.witness.tokenized, length * 9 // 10)
        for endpoint in self.store.members.value[: ENDPOINTS // 2]:
            index.record(endpoint.identity, known)
        return lambda: self.decide(bodies.another())


def _known(tokenized: TokenizedPrompt | None, length: int) -> BlockHashes:
    """The blocks of the first *length* bytes of a prompt."""
    assert tokenized is not None
    data = tokenized.prompts[0].data[:length]
    return BlockHashes(data, BLOCK_BYTES, root_hash(MODEL, tokenized.salt))


@define(eq=False)
class _Bodies:
    """A chat body of so many bytes, changed in place from some position of its text on."""

    length: int
    fresh_from: int
    _body: bytearray = field(init=False)
    _at: int = field(init=False)
    _numbers: Iterator[int] = field(factory=count, init=False)

    def __attrs_post_init__(self) -> None:
        text = "".join(Random(2).choices("abcdefghij klmno", k=self.length))
        half = self.length // 2
        messages = [
            {"role": "system", "content": text[:half]},
            {"role": "user", "content": text[half:]},
        ]
        self._body = bytearray(json.dumps({"model": MODEL, "messages": messages}).encode())
        part = text[self.fresh_from :][:64].encode()
        self._at = self._body.index(part)

    def another(self) -> bytearray:
        fresh = f"{next(self._numbers):016d}".encode()
        self._body[self._at : self._at + len(fresh)] = fresh
        return self._body


# -- the index by itself ------------------------------------------------------------------------


class _SetPerBlock:
    """The straightforward index: who holds a block, and a walk that copies the answer."""

    def __init__(self) -> None:
        self.holders: dict[int, set[int]] = {}

    def record(self, endpoint: int, hashes: Sequence[int]) -> None:
        for each in hashes:
            self.holders.setdefault(each, set()).add(endpoint)

    def match(self, endpoints: Sequence[int], hashes: Sequence[int]) -> list[int]:
        found = dict.fromkeys(endpoints, 0)
        for each in hashes:
            holders = set(self.holders.get(each, ()))
            if not holders:
                break
            for endpoint in holders:
                found[endpoint] += 1
        return list(found.values())


def _lookups() -> Iterator[tuple[str, float]]:
    """A prompt of 100k tokens of which each endpoint knows another share, hashes made."""
    prompt = BlockHashes(Random(3).randbytes(LONG), BLOCK_BYTES, 1)
    hashes = prompt.up_to(len(prompt))
    everybody = range(ENDPOINTS)
    ours, simple = PrefixIndex[int](len(hashes)), _SetPerBlock()
    for endpoint in everybody:
        part = len(hashes) * endpoint // ENDPOINTS
        ours.record(endpoint, BlockHashes(prompt.data[: part * BLOCK_BYTES], BLOCK_BYTES, 1))
        simple.record(endpoint, hashes[:part])
    assert ours.match(everybody, prompt) == simple.match(everybody, hashes)
    yield (
        "prefix look-up, 1,562 blocks, 100 endpoints",
        timed(lambda: ours.match(everybody, prompt)),
    )
    yield (
        "the same, a set for each block, walked and copied",
        timed(lambda: simple.match(everybody, hashes)),
    )
    fresh = lambda: BlockHashes(prompt.data, BLOCK_BYTES, 1).up_to(len(prompt))  # noqa: E731
    yield "hashing 1,562 blocks of 64 tokens", timed(fresh)


def _large_index() -> Iterator[tuple[str, float]]:
    """A million blocks over 100 endpoints, filled, and then replaced by as many others."""
    capacity = BLOCKS // ENDPOINTS
    random = Random(4)
    prompts = BLOCKS // PROMPT_BLOCKS
    tracemalloc.start()
    index = PrefixIndex[int](capacity)
    _fill(index, random, prompts)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield "prefix index, memory of a block and endpoint (bytes)", size / len(index)
    pauses = _fill(index, random, prompts)
    yield "prefix index of 1M blocks, insert and evict a block", sum(pauses) / BLOCKS * 1e6
    yield "prefix index of 1M blocks, longest pause", max(pauses) * 1e6


def _fill(index: PrefixIndex[int], random: Random, prompts: int) -> list[float]:
    """Record so many new prompts, in turn for each endpoint; the seconds that each took."""
    pauses: list[float] = []
    for number in range(prompts):
        prompt = BlockHashes(random.randbytes(PROMPT_BLOCKS * BLOCK_BYTES), BLOCK_BYTES, number)
        prompt.up_to(len(prompt))
        started = perf_counter()
        index.record(number % ENDPOINTS, prompt)
        pauses.append(perf_counter() - started)
    return pauses
