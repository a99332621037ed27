"""Prefix affinity: what endpoints are believed to hold, and how that is rated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.errors import ConfigError, Refusal
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import CACHE_CONFIG, CacheConfig, Endpoint, PodDeleted
from pointsman.kernel.plugin import Results
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.keys import (
    PREFIX_HIT,
    REQUEST_PROMPT,
    TOKENIZED_PROMPT,
    Feature,
    Media,
    Part,
    PrefixHit,
    RequestPrompt,
    TokenizedPrompt,
    Tokens,
)
from pointsman.plugins.prefix_cache import (
    ApproxPrefixCacheProducer,
    PrefixCacheScorer,
    PrefixCacheScorerParameters,
)
from pointsman.plugins.prefix_figures import SUSPICIOUS
from pointsman.plugins.token_producer import TokenProducer

AB: Final = endpoints("a", "b")
A, B = AB
BLOCK: Final = 64 * 4  # bytes of text
CONFIG: Final = "plugins: [{type: prefix-cache-scorer}, {type: prompt}]"


class Prompt:
    """Gives the request the prompt that a test says."""

    type_name: ClassVar = "prompt"
    produces: ClassVar = keys(REQUEST_PROMPT)
    next: ClassVar[RequestPrompt | None] = None

    def on_request(self, data: DataView) -> None:
        if self.next is not None:
            data[REQUEST_PROMPT] = self.next


class Spy:
    """Notes the hits that scorers see."""

    type_name: ClassVar = "spy"
    consumes: ClassVar = Consumes(PREFIX_HIT)
    seen: ClassVar[list[Sequence[PrefixHit | None]]] = []

    def keep(self, data: DataView, given: Sequence[Endpoint]) -> list[bool]:
        hits = data[PREFIX_HIT]
        self.seen.append(list(hits))
        return [True] * len(given)


def text(content: str | bytes, *more: Part, salt: str = "") -> RequestPrompt:
    first = content.encode() if isinstance(content, str) else content
    return RequestPrompt(((first, *more),), salt=salt)


class Rig:
    """A wiring with the real producers, and what it says of each request."""

    def __init__(self, config: str = CONFIG) -> None:
        classes = (ApproxPrefixCacheProducer, PrefixCacheScorer, TokenProducer, Prompt, Spy)
        entries = config.replace("[", "[{type: spy}, ", 1)
        self.wiring: Wiring = wired(entries, *classes)
        self.pool: Snapshot = pool(AB)

    @property
    def producer(self) -> ApproxPrefixCacheProducer:
        name = "approx-prefix-cache-producer"
        found: ApproxPrefixCacheProducer = self.wiring.installed[name].plugin
        return found

    def send(
        self,
        prompt: RequestPrompt | None,
        to: Endpoint | None = None,
        model: str = "m",
        headers: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Route a request; how many blocks each endpoint was believed to hold."""
        Prompt.next = prompt
        Spy.seen.clear()
        request = make_request(model=model, headers=headers)
        if to is not None:
            request.subset = frozenset({to.host_port})
        decide(self.wiring, self.pool, request, {})
        request.end()
        return [hit.match if hit is not None else -1 for hit in Spy.seen[-1]] if Spy.seen else []


@pytest.fixture
def rig() -> Rig:
    return Rig()


def of(blocks: int, letter: str = "x") -> str:
    """A text of that many blocks, each another one."""
    return "".join(f"{letter}{n:07d}".ljust(BLOCK, letter) for n in range(blocks))


# -- what is believed ---------------------------------------------------------------------------


def test_producers_of_prefix_and_tokens_are_added(rig: Rig) -> None:
    assert {"approx-prefix-cache-producer", "token-producer"} <= rig.wiring.added.keys()


def test_an_endpoint_holds_what_was_sent_to_it(rig: Rig) -> None:
    assert rig.send(text(of(3)), to=A) == [0]
    assert rig.send(text(of(3))) == [3, 0]


def test_a_conversation_grows(rig: Rig) -> None:
    for turn in range(1, 5):
        assert rig.send(text(of(turn * 2)), to=A) == [turn * 2 - 2]


def test_only_a_common_beginning_matches(rig: Rig) -> None:
    rig.send(text(of(4)), to=A)
    assert rig.send(text(of(2) + "y" * BLOCK + of(4)[3 * BLOCK :])) == [2, 0]


@pytest.mark.parametrize(("warm", "asked"), [("A" * 400, "B" * 400), ("A" * 400, "B"), ("A", "A")])
def test_x02_unrelated_and_short_prompts_match_nothing(rig: Rig, warm: str, asked: str) -> None:
    rig.send(text(warm), to=A)
    assert rig.send(text(asked)) == [0, 0]


def test_x03_a_tail_counts_as_not_held(rig: Rig) -> None:
    rig.send(text(of(10) + "tail-one"), to=A)
    rig.send(text(of(10) + "tail-two"))
    (hit, _) = Spy.seen[-1]
    assert hit == PrefixHit(10, 11, 64)
    assert PrefixHit(10, 11, 64).share < 1


def test_x03_images_take_part(rig: Rig) -> None:
    one, other = (Media("image", url) for url in (b"http://x/1.png", b"http://x/2.png"))
    rig.send(text("", one, of(2).encode()), to=A)
    assert rig.send(text("", other, of(2).encode())) == [0, 0]
    (match, _) = rig.send(text("", one, of(2).encode()))
    assert match > 2


def test_x03_images_take_part_where_the_engine_made_the_tokens(rig: Rig) -> None:
    """Its placeholders are the same for all images of a size."""

    def rendered(digest: str) -> TokenizedPrompt:
        feature = Feature("image", digest, 0, 64)
        return TokenizedPrompt((Tokens(b"\1\0\0\0" * 64, (feature,)),))

    def hits(prompt: TokenizedPrompt) -> list[int]:
        bench = Bench(rig.producer, AB)
        found = bench.produce_now({TOKENIZED_PROMPT: prompt})[PREFIX_HIT]
        bench.call("before_request", None, decide(wired(""), pool([A])).decision.result)
        return [hit.match for hit in found]

    assert hits(rendered("cat")) == [0, 0]
    assert hits(rendered("dog")) == [0, 0]
    assert hits(rendered("cat")) == [1, 0]


def test_x06_salts_share_nothing(rig: Rig) -> None:
    matches = [rig.send(text(of(2), salt=salt), to=A)[0] for salt in ("s1", "s1", "s2", "", "s1")]
    assert matches == [0, 2, 0, 0, 2]


def test_x06_models_share_nothing_and_run_not_into_salts(rig: Rig) -> None:
    rig.send(text(of(2), salt="b"), to=A, model="a")
    assert rig.send(text(of(2), salt=""), model="ab") == [0, 0]
    assert rig.send(text(of(2), salt="b"), model="b") == [0, 0]
    assert rig.send(text(of(2), salt="b"), model="a") == [2, 0]


def test_x08_the_first_request_is_noted_on_every_path(rig: Rig) -> None:
    assert rig.send(text(of(1)), to=B) == [0]
    assert rig.send(text(of(1))) == [0, 1]


def test_several_prompts_are_summed(rig: Rig) -> None:
    parts = tuple((of(blocks, letter).encode(),) for blocks, letter in ((2, "p"), (1, "q")))
    rig.send(RequestPrompt(parts), to=A)
    assert rig.send(RequestPrompt(parts)) == [3, 0]
    assert rig.send(text(of(1, "q"))) == [1, 0]


def test_token_ids_are_looked_up_as_they_are(rig: Rig) -> None:
    ids = RequestPrompt(token_ids=(b"\7\0\0\0" * 128,))
    rig.send(ids, to=A)
    assert rig.send(ids) == [2, 0]


def test_without_a_prompt_nothing_is_said(rig: Rig) -> None:
    assert rig.send(None) == []
    assert rig.send(text("")) == []


# -- how much an endpoint holds -------------------------------------------------------------------


def tuned(**parameters: object) -> Rig:
    entry = ", ".join(f"{name}: {str(value).lower()}" for name, value in parameters.items())
    added = f", {{type: approx-prefix-cache-producer, parameters: {{{entry}}}}}]"
    return Rig(CONFIG[:-1] + added)


def test_x04_the_configured_capacity_binds() -> None:
    rig = tuned(lruCapacityPerServer=100, autoTune=False)
    rig.send(text(of(1000)), to=A)
    assert 0 < rig.producer.index.size(A.identity) <= 100


def test_capacity_is_counted_in_the_endpoints_own_tokens_and_follows_it(rig: Rig) -> None:
    def holds(config: CacheConfig | None) -> int:
        rig.pool = pool([A], {CACHE_CONFIG: [config]})
        rig.send(text(of(40)), to=A)
        return rig.producer.index.size(A.identity)

    assert holds(CacheConfig(16, 80)) <= 20  # 1,280 tokens are 20 blocks of 64
    assert holds(CacheConfig(16, 400)) == 40
    assert holds(CacheConfig(16, 40)) <= 10


@pytest.mark.parametrize(
    ("parameters", "configs", "size"),
    [
        ({}, [None, None], 64),
        ({}, [CacheConfig(16, None), None], 64),
        ({}, [None, CacheConfig(256, None)], 256),
        ({}, [CacheConfig(128, 9), CacheConfig(256, 9)], 256),
        ({"blockSizeFloor": 16}, [CacheConfig(16, 9), CacheConfig(32, 9)], 32),
        ({"blockSizeFloor": 16}, [None, None], 16),
        ({"blockSizeTokens": 128}, [None, None], 128),
        ({"blockSize": 96}, [None, None], 96),
        ({"blockSize": 96, "blockSizeTokens": 128}, [None, None], 128),
        ({"blockSizeTokens": 1}, [None, None], 64),
        ({"autoTune": False}, [CacheConfig(256, 9), None], 64),
    ],
)
def test_the_block_size_is_the_pools_largest_and_not_below_the_floor(
    parameters: dict[str, object], configs: Sequence[CacheConfig | None], size: int
) -> None:
    rig = tuned(**parameters)
    rig.pool = pool(AB, {CACHE_CONFIG: configs})
    rig.send(text(of(2)))
    (hit, _) = Spy.seen[-1]
    assert hit is not None
    assert hit.block_size == size


@pytest.mark.parametrize(
    ("parameters", "blocks"),
    [
        ({"maxPrefixTokensToMatch": 640}, 10),
        ({"maxPrefixTokensToMatch": 63}, 0),
        ({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 7}, 7),
        ({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0}, 50),
        ({"maxPrefixTokensToMatch": 640, "maxPrefixBlocksToMatch": 3}, 10),
    ],
)
def test_only_so_much_of_a_prompt_is_looked_at(parameters: dict[str, object], blocks: int) -> None:
    rig = tuned(**parameters)
    rig.send(text(of(50)), to=A)
    assert rig.send(text(of(50))) == [blocks, 0]


@pytest.mark.parametrize(
    "parameters",
    ["blockSizeTokens: 0", "blockSizeTokens: -1", "blockSizeFloor: 0", "lruCapacityPerServer: 0"],
)
def test_x05_a_size_that_makes_no_sense_is_refused(parameters: str) -> None:
    name = parameters.partition(":")[0]
    with pytest.raises(ConfigError, match=name):
        tuned(**{name: parameters.rpartition(" ")[2]})


def test_x05_the_index_is_bounded() -> None:
    rig = tuned(lruCapacityPerServer=50, autoTune=False)
    for number in range(100):
        rig.send(text(of(30, chr(200 + number))))
    assert len(rig.producer.index) <= 100


# -- endpoints come and go ------------------------------------------------------------------------


def test_x01_a_deleted_pod_is_forgotten(rig: Rig) -> None:
    rig.send(text(of(5)), to=B)
    rig.producer.forget(PodDeleted(B))
    assert rig.producer.index.size(B.identity) == 0
    again = endpoint("b", address=B.address)
    rig.pool = pool([A, again])
    assert rig.send(text(of(5))) == [0, 0]


def test_x01_a_pod_that_was_deleted_meanwhile_is_not_noted() -> None:
    rig = Rig()
    (gone,) = endpoints("gone")
    rig.pool = pool([gone])
    gone.identity.gone = True
    rig.send(text(of(2)))
    assert rig.producer.index.size(gone.identity) == 0


PREFILL: Final = """
plugins: [{type: prefix-cache-scorer}, {type: prompt}, {type: both}, {type: only}]
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: spy}, {pluginRef: prefix-cache-scorer}]}
- {name: prefill, plugins: [{pluginRef: only}]}
"""


class Both:
    """Runs both profiles."""

    type_name: ClassVar = "both"

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return () if results else available

    def primary(self, data: DataView, results: Results) -> str:
        return "decode"


class Only:
    """Keeps the last endpoint."""

    type_name: ClassVar = "only"

    def keep(self, data: DataView, given: Sequence[Endpoint]) -> list[bool]:
        return [one is given[-1] for one in given]


def test_a_prefill_endpoint_holds_the_prompt_too() -> None:
    classes = (ApproxPrefixCacheProducer, PrefixCacheScorer, TokenProducer, Prompt, Spy, Both, Only)
    rig = Rig()
    rig.wiring = wired(PREFILL.replace("[", "[{type: spy}, ", 1), *classes)
    rig.send(text(of(2)))
    assert rig.send(text(of(2))) == [2, 2]


# -- what is told ---------------------------------------------------------------------------------


def samples(rig: Rig, name: str) -> dict[str, float]:
    return {
        sample.labels.get("le", sample.name): sample.value
        for family in rig.producer.figures()
        if family.name == name
        for sample in family.samples
    }


def test_what_was_reachable_and_what_was_achieved_are_told(rig: Rig) -> None:
    rig.send(text(of(4)), to=A)
    rig.send(text(of(4)), to=A)
    rig.send(text(of(4)), to=B)
    assert samples(rig, "llm_d_epp_prefix_indexer_size") == {"llm_d_epp_prefix_indexer_size": 8.0}
    achieved = samples(rig, "llm_d_epp_prefix_indexer_hit_ratio")
    assert (achieved["0.0"], achieved["0.9"], achieved["1.0"], achieved["+Inf"]) == (2, 2, 3, 3)
    held = samples(rig, "llm_d_epp_prefix_indexer_hit_bytes")
    assert (held["0.0"], held["512.0"], held["1024.0"], held["+Inf"]) == (2, 2, 3, 3)
    assert held["llm_d_epp_prefix_indexer_hit_bytes_sum"] == 4 * 64 * 4
    reachable = samples(rig, "pointsman_prefix_reachable_ratio")
    assert (reachable["0.0"], reachable["+Inf"]) == (2, 3)  # B was the only candidate
    assert rig.producer.dump_state() == {"blocks": 8, "endpoints": {"a": 4, "b": 4}}


def test_the_figures_say_whose_they_are_and_come_with_the_first_request() -> None:
    rig = Rig(CONFIG.replace("]", ", {type: approx-prefix-cache-producer, name: mine}]"))
    producer: ApproxPrefixCacheProducer = rig.wiring.installed["mine"].plugin
    assert not list(producer.figures())
    rig.send(text(of(4)), to=A)
    shown = [(family.name, family.samples[0].labels) for family in producer.figures()]
    assert [name for name, _ in shown] == [
        "llm_d_epp_prefix_indexer_size",
        "pointsman_prefix_reachable_ratio",
        "llm_d_epp_prefix_indexer_hit_ratio",
        "llm_d_epp_prefix_indexer_hit_bytes",
    ]
    for _, labels in shown:
        assert labels["plugin_name"] == "mine"
        assert labels["plugin_type"] == "approx-prefix-cache-producer"


def test_the_buckets_are_those_of_the_reference_system(rig: Rig) -> None:
    rig.send(text(of(4)), to=A)
    bounds = {
        name: [bound for bound in samples(rig, f"llm_d_epp_prefix_indexer_{name}") if "." in bound]
        for name in ("hit_ratio", "hit_bytes")
    }
    assert bounds["hit_ratio"] == [f"0.{tenth}" for tenth in range(10)] + ["1.0"]
    assert bounds["hit_bytes"] == ["0.0", *(f"{2**n}.0" for n in range(4, 17))]


@pytest.mark.parametrize("preferred", ["if-available", "respond-async, If-Available"])
def test_a_client_may_want_an_answer_only_from_who_holds_some_of_the_prompt(
    rig: Rig, preferred: str
) -> None:
    only = {"prefer": preferred}
    for prompt in (text(of(3)), text(""), None):
        with pytest.raises(Refusal) as refused:
            rig.send(prompt, headers=only)
        assert refused.value.status == 412
    assert len(rig.producer.index) == 0
    rig.send(text(of(3)), to=A)
    assert rig.send(text(of(3)), to=A, headers=only) == [3]
    with pytest.raises(Refusal):
        rig.send(text(of(3)), to=B, headers=only)
    assert rig.send(text(of(3, "y")), headers={"prefer": "respond-async"}) == [0, 0]


def test_requests_that_never_have_tokens_are_a_dead_signal(rig: Rig) -> None:
    for _ in range(SUSPICIOUS - 1):
        rig.send(None)
    assert rig.producer.dead_signals() == {}
    rig.send(None)
    assert rig.producer.dead_signals().keys() == {"tokens"}
    rig.send(text("x"))
    assert rig.producer.dead_signals() == {}


def test_prompts_that_repeat_and_never_match_are_a_dead_signal(rig: Rig) -> None:
    """Here because every endpoint is gone before it can be asked again."""
    for number in range(SUSPICIOUS + 1):
        assert rig.producer.dead_signals() == {}
        rig.send(text(of(3)), to=A)
        rig.send(text(of(3, chr(200 + number))), to=A)  # what is new is no sign of anything
        rig.producer.forget(PodDeleted(A))
    assert rig.producer.dead_signals().keys() == {"match"}
    rig.send(text(of(3)), to=A)
    rig.send(text(of(3)), to=A)
    assert rig.producer.dead_signals() == {}


# -- the scorer -----------------------------------------------------------------------------------


def scores(hits: Sequence[PrefixHit | None], **parameters: Any) -> list[float | None]:
    scorer = PrefixCacheScorer(PrefixCacheScorerParameters(**parameters))
    return Bench(scorer, endpoints(*"abcd"[: len(hits)])).score({PREFIX_HIT: hits})


def test_the_share_is_the_score() -> None:
    hits = [PrefixHit(2, 4, 64), PrefixHit(4, 4, 64), PrefixHit(0, 0, 64), None]
    assert scores(hits) == [0.5, 1.0, 0.0, 0.0]


def test_the_length_of_the_match_may_count() -> None:
    hits = [PrefixHit(64, 128, 64), PrefixHit(128, 128, 64), PrefixHit(1000, 2000, 64)]
    found = scores(hits, match_length_weight=0.5)
    assert found == [0.5 * 0.25 + 0.25, 0.5 + 0.5, 0.5 + 0.25]


@given(
    st.lists(
        st.builds(PrefixHit, st.integers(0, 99), st.integers(99, 200), st.sampled_from([16, 64])),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 1),
    st.integers(1, 10**6),
)
def test_scores_are_shares(hits: list[PrefixHit], weight: float, scale: int) -> None:
    for score in scores(hits, match_length_weight=weight, match_length_scale_tokens=scale):
        assert score is not None
        assert 0 <= score <= 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("matchLengthWeight", 1.5), ("matchLengthScaleTokens", 0), ("matchLengthWait", 1)],
)
def test_wrong_parameters_of_the_scorer_are_refused(name: str, value: float) -> None:
    entry = f"plugins: [{{type: prefix-cache-scorer, parameters: {{{name}: {value}}}}}]"
    with pytest.raises(ConfigError, match=name):
        Rig(entry)


def test_the_scorer_follows_the_producer_that_is_named() -> None:
    rig = Rig(
        "plugins: [{type: prompt}, "
        "{type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: mine}}, "
        "{type: approx-prefix-cache-producer, name: mine, produces: {prefix-hit: my-hit}}]"
    )
    edges = {(edge.producer, edge.consumer, edge.key) for edge in rig.wiring.plan.edges}
    assert ("mine", "prefix-cache-scorer", "my-hit") in edges
