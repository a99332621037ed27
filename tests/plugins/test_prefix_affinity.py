"""Prompts stay where they are cached. S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import in_profile, refused

from pointsman.kernel.keys import keys
from pointsman.kernel.testing import Bench, decide, endpoints, pool, wired
from pointsman.plugins.keys import IN_FLIGHT_LOAD, PREFIX_HIT, InFlightLoad, PrefixHit
from pointsman.plugins.prefix_affinity import (
    PrefixCacheAffinityFilter,
    PrefixCacheAffinityParameters,
)

from .stand_ins import CountedAtThePick, publishing

PENALTY: Final = 15928 * 18
"""The tokens that the default penalty is worth."""
HITS: Final = st.lists(
    st.none() | st.builds(PrefixHit, st.integers(0, 10), st.integers(0, 10), st.just(16)),
    min_size=1,
    max_size=8,
)


def hit(percent: int) -> PrefixHit:
    return PrefixHit(percent, 100, 16)


def filtering(seed: int = 0, **parameters: Any) -> PrefixCacheAffinityFilter:
    return PrefixCacheAffinityFilter(PrefixCacheAffinityParameters(**parameters), Random(seed))


def kept(
    *hits: PrefixHit | None,
    tokens: Sequence[int | None] | None = None,
    plugin: PrefixCacheAffinityFilter | None = None,
    **parameters: Any,
) -> str:
    """The numbers of those that stay, in one text."""
    one = plugin or filtering(**parameters)
    data: dict[Any, Any] = {PREFIX_HIT: hits}
    if tokens is not None:
        loads = [None if number is None else InFlightLoad(1, number) for number in tokens]
        data[IN_FLIGHT_LOAD] = loads
    bench = Bench(one, endpoints(*(str(number) for number in range(len(hits)))))
    return "".join(endpoint.name for endpoint in bench.keep(data))


def test_endpoints_that_hold_enough_of_the_prompt_stay() -> None:
    assert kept(hit(79), hit(80), hit(100), None) == "12"
    assert kept(hit(49), hit(50), None, affinity_threshold=0.5) == "1"


def test_where_none_holds_enough_all_stay() -> None:
    assert kept(hit(79), hit(0), None) == "012"


def test_a_prompt_without_blocks_is_held_by_nobody() -> None:
    assert kept(PrefixHit(0, 0, 16), PrefixHit(0, 0, 16)) == "01"


def test_a_single_endpoint_stays() -> None:
    assert kept(hit(0)) == "0"


@pytest.mark.parametrize("threshold", [0.0, -1.0])
def test_a_threshold_of_0_and_below_disables_it(threshold: float) -> None:
    plugin = filtering(affinity_threshold=threshold)
    assert kept(hit(0), hit(100), plugin=plugin) == "01"
    assert plugin.consumes.all == keys()


# -- chance ----------------------------------------------------------------------------------


def test_a_request_that_explores_may_go_anywhere() -> None:
    assert kept(hit(0), hit(100), exploration_probability=1.0) == "01"


def test_requests_explore_as_often_as_configured() -> None:
    plugin = filtering(exploration_probability=0.3)
    explored = sum(kept(hit(0), hit(100), plugin=plugin) == "01" for _ in range(1000))
    assert 250 <= explored <= 350


def test_without_exploration_no_chance_is_taken() -> None:
    random = Random(0)
    state = random.getstate()
    plugin = PrefixCacheAffinityFilter(PrefixCacheAffinityParameters(), random)
    kept(hit(0), hit(100), plugin=plugin)
    assert random.getstate() == state


# -- the price of stickiness -----------------------------------------------------------------


def test_stickiness_ends_where_starting_over_is_faster_by_more_than_the_penalty() -> None:
    assert kept(hit(100), hit(0), tokens=[PENALTY, 0]) == "0"
    assert kept(hit(100), hit(0), tokens=[PENALTY + 1, 0]) == "01"
    assert kept(hit(100), hit(0), tokens=[PENALTY + 1, 1]) == "0"


def test_the_least_loaded_of_either_side_counts() -> None:
    loads = [10**9, PENALTY, 10**9, 0]
    assert kept(hit(90), hit(90), None, None, tokens=loads) == "01"
    assert kept(hit(90), None, hit(90), None, tokens=loads) == "0123"


def test_penalty_and_throughput_make_the_price() -> None:
    price: dict[str, Any] = {"max_ttft_penalty_ms": 500.0, "peak_prefill_throughput": 2000.0}
    assert kept(hit(100), None, tokens=[1000, 0], **price) == "0"
    assert kept(hit(100), None, tokens=[1001, 0], **price) == "01"


def test_without_a_penalty_stickiness_has_no_end() -> None:
    plugin = filtering(max_ttft_penalty_ms=0.0, peak_prefill_throughput=0.0)
    assert kept(hit(100), None, tokens=[10**12, 0], plugin=plugin) == "0"
    assert plugin.consumes.all == keys(PREFIX_HIT)


def test_when_all_are_sticky_there_is_nobody_to_go_to() -> None:
    assert kept(hit(100), hit(90), tokens=[10**9, 0]) == "01"


def test_an_endpoint_that_was_sent_nothing_is_idle() -> None:
    assert kept(hit(100), None, tokens=[None, None]) == "0"
    assert kept(hit(100), None, tokens=[10**9, None]) == "01"


def test_without_figures_of_load_stickiness_holds() -> None:
    assert kept(hit(100), None) == "0"


@given(HITS, st.floats(-1, 1), st.lists(st.integers(0, 10**6), min_size=8, max_size=8))
def test_the_filter_never_leaves_nobody_and_keeps_who_holds_most(
    hits: list[PrefixHit | None], threshold: float, tokens: list[int]
) -> None:
    stay = kept(*hits, affinity_threshold=threshold, tokens=tokens[: len(hits)])
    shares = [0.0 if one is None else one.share for one in hits]
    assert str(shares.index(max(shares))) in stay


# -- in the daemon ---------------------------------------------------------------------------


def test_s_06_one_prefix_of_all_requests_goes_elsewhere_when_its_endpoint_is_far_behind() -> None:
    """Each request costs 100 tokens where it goes, and the penalty is worth 1000."""
    index = publishing("index", {PREFIX_HIT: [hit(100), None, None, None]})
    classes = (PrefixCacheAffinityFilter,)
    text = in_profile(*classes, others=[index]).replace(
        "{type: prefix-cache-affinity-filter}",
        "{type: prefix-cache-affinity-filter, parameters:"
        " {maxTTFTPenaltyMs: 1000, peakPrefillThroughput: 1000}}",
    )
    wiring = wired(text, *classes, index, CountedAtThePick)
    snapshot = pool(endpoints("warm", "b", "c", "d"))
    targets = [decide(wiring, snapshot).decision.result.target.name for _ in range(12)]
    assert targets[:11] == ["warm"] * 11
    everywhere = decide(wiring, snapshot).decision.result.profiles["only"]
    assert everywhere is not None
    assert len(everywhere.candidates) == 4


def test_what_named_producers_publish_is_read() -> None:
    mine = publishing("mine", {PREFIX_HIT: [None, hit(100)]})
    other = publishing("other", {PREFIX_HIT: [hit(100), None]})
    text = (
        "plugins:\n"
        "- {type: prefix-cache-affinity-filter, parameters: {maxTTFTPenaltyMs: 0,"
        " prefixMatchInfoProducerName: mine}}\n"
        "- {type: other}\n"
        "- {type: mine, produces: {prefix-hit: my-hit}}\n"
    )
    wiring = wired(text, PrefixCacheAffinityFilter, mine, other)
    assert decide(wiring, pool(endpoints("a", "b"))).decision.result.target.name == "b"


def test_what_is_left_out_is_the_default() -> None:
    index = publishing("index", {PREFIX_HIT: []})
    text = (
        "plugins: [{type: prefix-cache-affinity-filter, parameters: {affinityThreshold: 0.5}},"
        " {type: index}]"
    )
    wiring = wired(text, PrefixCacheAffinityFilter, index, CountedAtThePick)
    assert wiring.installed["prefix-cache-affinity-filter"].plugin.parameters == (
        PrefixCacheAffinityParameters(
            affinity_threshold=0.5,
            exploration_probability=0.0,
            max_ttft_penalty_ms=18000.0,
            ttft_source="prefillThroughput",
            peak_prefill_throughput=15928.0,
        )
    )


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("{affinityThreshold: 1.01}", "affinityThreshold: must be at most 1, not 1.01"),
        ("{affinityThreshold: .nan}", "affinityThreshold: must be at most 1"),
        ("{explorationProbability: -0.1}", "explorationProbability: must be from 0 to 1"),
        ("{explorationProbability: 1.1}", "explorationProbability: must be from 0 to 1"),
        ("{maxTTFTPenaltyMs: -1}", "maxTTFTPenaltyMs: must be at least 0"),
        ("{maxTtftPenaltyMs: 1}", "did you mean 'maxTTFTPenaltyMs'"),
        ("{ttftSource: ''}", "ttftSource: must be prefillThroughput, not ''"),
        ("{ttftSource: latencyPredictor}", "ttftSource: latencyPredictor needs predicted latency"),
        ("{peakPrefillThroughput: 0}", "peakPrefillThroughput must be above 0 unless"),
        ("{peakPrefillThroughput: -1}", "peakPrefillThroughput: must be at least 0"),
    ],
)
def test_mistaken_parameters_are_refused(said: str, complaint: str) -> None:
    index = publishing("index", {PREFIX_HIT: []})
    text = f"plugins: [{{type: prefix-cache-affinity-filter, parameters: {said}}}, {{type: index}}]"
    (mistake,) = refused(text, PrefixCacheAffinityFilter, index, CountedAtThePick)
    assert complaint in mistake
