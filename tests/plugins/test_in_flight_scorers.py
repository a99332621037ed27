"""Scorers on load in flight. S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import always, in_profile, producer, refused

from pointsman.kernel.keys import keys
from pointsman.kernel.model import WAITING_QUEUE_SIZE, Identity
from pointsman.kernel.testing import Bench, decide, endpoints, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.in_flight_scorers import (
    ActiveRequestParameters,
    ActiveRequestScorer,
    TokenLoadParameters,
    TokenLoadScorer,
)
from pointsman.plugins.keys import (
    IN_FLIGHT_LOAD,
    PREFIX_HIT,
    TOKENIZED_PROMPT,
    UNCACHED_TOKENS,
    InFlightLoad,
    PrefixHit,
)
from pointsman.plugins.load import QueueScorer
from pointsman.plugins.pickers import MaxScorePicker
from pointsman.plugins.prefix_cache import PrefixCacheScorer

from .stand_ins import CountedAtThePick, publishing

COUNTS: Final = st.lists(st.none() | st.integers(0, 10**9), min_size=1, max_size=8)
PROMPT: Final = keys(TOKENIZED_PROMPT)
SILENT: Final = producer("token-producer", always(None), PROMPT, default_for=PROMPT)
"""Who would know the prompt's tokens: without one, there are none to count."""
BOTH: Final = pytest.mark.parametrize("scorer", [ActiveRequestScorer, TokenLoadScorer])


def bench(scorer: object, candidates: int) -> Bench:
    return Bench(scorer, endpoints(*(f"e{number}" for number in range(candidates))))


def active(*counts: int | None, **parameters: Any) -> list[float | None]:
    loads = [None if count is None else InFlightLoad(requests=count) for count in counts]
    scorer = ActiveRequestScorer(ActiveRequestParameters(**parameters))
    return bench(scorer, len(counts)).score({IN_FLIGHT_LOAD: loads})


def tokens(
    *counts: int | None, uncached: Sequence[int | None] | None = None, threshold: int = 1000
) -> list[float | None]:
    loads = [None if count is None else InFlightLoad(tokens=count) for count in counts]
    scorer = TokenLoadScorer(TokenLoadParameters(queue_threshold_tokens=threshold))
    own = {} if uncached is None else {UNCACHED_TOKENS: uncached}
    return bench(scorer, len(counts)).score({IN_FLIGHT_LOAD: loads, **own})


# -- requests --------------------------------------------------------------------------------


def test_fewer_requests_in_flight_are_better() -> None:
    assert active(0, 4, 1, 2) == [1.0, 0.0, 0.75, 0.5]


def test_equally_busy_endpoints_get_0_and_idle_ones_1() -> None:
    assert active(3, 3) == [0.0, 0.0]
    assert active(0, 0) == [1.0, 1.0]


def test_an_endpoint_that_was_sent_nothing_is_idle() -> None:
    assert active(None, 4, 2) == [1.0, 0.0, 0.5]
    assert active(None) == [1.0]


def test_endpoints_up_to_the_idle_threshold_are_alike() -> None:
    assert active(0, 2, 3, 4, idle_threshold=2) == [1.0, 1.0, 0.25, 0.0]


def test_an_idle_threshold_below_0_means_0() -> None:
    assert active(0, 1, 2, idle_threshold=-5) == [1.0, 0.5, 0.0]


def test_a_busy_endpoint_gets_at_most_the_highest_busy_score() -> None:
    assert active(0, 1, 4, max_busy_score=0.4) == pytest.approx([1.0, 0.3, 0.0])
    assert active(0, 1, 4, max_busy_score=0.0) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("parameters", "scores"),
    [
        ("", [0.75, 0.0]),
        (", parameters: {}", [0.75, 0.0]),
        (", parameters: {maxBusyScore: 0}", [0.0, 0.0]),
        (", parameters: {maxBusyScore: 0, idleThreshold: 1}", [1.0, 0.0]),
    ],
)
def test_c_05_a_setting_of_0_is_not_one_that_is_left_out(
    parameters: str, scores: Sequence[float]
) -> None:
    loads = {IN_FLIGHT_LOAD: [InFlightLoad(requests=1), InFlightLoad(requests=4)]}
    text = f"plugins: [{{type: known}}, {{type: active-request-scorer{parameters}}}]"
    wiring = wired(text, ActiveRequestScorer, publishing("known", loads))
    result = decide(wiring, pool(endpoints("a", "b"))).decision.result
    assert result.primary_result.scores == scores


@pytest.mark.parametrize("highest", [-0.1, 1.5, float("nan")])
def test_a_highest_busy_score_out_of_range_is_ignored(highest: float) -> None:
    assert active(1, 4, max_busy_score=highest) == [0.75, 0.0]


def test_the_retired_request_timeout_is_still_accepted() -> None:
    text = "plugins: [{type: active-request-scorer, parameters: {requestTimeout: 2m}}]"
    wiring = wired(text, ActiveRequestScorer, CountedAtThePick)
    assert "inflight-load-producer" in wiring.added


# -- tokens ----------------------------------------------------------------------------------


def test_fewer_tokens_in_flight_are_better() -> None:
    assert tokens(0, 250, 1000, 5000) == [1.0, 0.75, 0.0, 0.0]


def test_what_an_endpoint_lacks_of_the_prompt_is_added() -> None:
    assert tokens(100, 0, uncached=[0, 500]) == [0.9, 0.5]


def test_unknown_tokens_are_no_tokens() -> None:
    assert tokens(None, 250, None, uncached=[None, None, 500]) == [1.0, 0.75, 0.5]


def test_tokens_in_flight_count_where_those_of_the_request_are_unknown() -> None:
    assert tokens(500, 0) == [0.5, 1.0]


@pytest.mark.parametrize("threshold", [0, -1])
def test_a_token_threshold_of_0_and_below_means_the_default(threshold: int) -> None:
    assert tokens(4_194_304 // 4, threshold=threshold) == [0.75]


# -- both ------------------------------------------------------------------------------------


@given(COUNTS, st.integers(), st.floats(allow_nan=True))
def test_every_score_is_between_0_and_1(
    counts: list[int | None], threshold: int, busy: float
) -> None:
    scores = [
        *active(*counts, idle_threshold=threshold, max_busy_score=busy),
        *tokens(*counts, uncached=counts, threshold=threshold),
    ]
    assert all(one is not None and 0.0 <= one <= 1.0 for one in scores)


@given(COUNTS)
def test_the_order_of_the_candidates_does_not_matter(counts: list[int | None]) -> None:
    assert active(*counts[::-1])[::-1] == active(*counts)
    assert tokens(*counts[::-1])[::-1] == tokens(*counts)


@BOTH
def test_the_load_of_a_named_producer_is_read(scorer: type[Any]) -> None:
    loads = {IN_FLIGHT_LOAD: [InFlightLoad(9, 9), InFlightLoad()], UNCACHED_TOKENS: [0, 0]}
    mine = publishing("mine", loads)
    text = (
        "plugins:\n"
        f"- {{type: {scorer.type_name}, parameters: {{inFlightLoadProducerName: special}}}}\n"
        "- {type: inflight-load-producer}\n"
        "- {type: mine, name: special, produces:"
        " {in-flight-load: other-load, uncached-request-tokens: other-tokens}}\n"
    )
    wiring = wired(text, scorer, mine, CountedAtThePick, SILENT)
    assert decide(wiring, pool(endpoints("a", "b"))).decision.result.target.name == "b"


@BOTH
def test_a_producer_that_nobody_configured_cannot_be_named(scorer: type[Any]) -> None:
    parameters = "{inFlightLoadProducerName: nobody}"
    text = f"plugins: [{{type: {scorer.type_name}, parameters: {parameters}}}]"
    mistakes = refused(text, scorer, CountedAtThePick, SILENT)
    assert mistakes
    assert all("no plugin is named 'nobody'" in mistake for mistake in mistakes)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{type: active-request-scorer, parameters: {idleThreshold: 1.5}}", "a whole number"),
        ("{type: active-request-scorer, parameters: {maxBusyScore: high}}", "must be a number"),
        ("{type: active-request-scorer, parameters: {requestTimeout: 5}}", "must be a duration"),
        ("{type: token-load-scorer, parameters: {queueTresholdTokens: 5}}", "did you mean 'queue"),
    ],
)
def test_mistaken_parameters_are_refused(text: str, complaint: str) -> None:
    classes = (ActiveRequestScorer, TokenLoadScorer, CountedAtThePick, SILENT)
    (mistake,) = refused(f"plugins: [{text}]", *classes)
    assert complaint in mistake


# -- bursts ----------------------------------------------------------------------------------


def counting(wiring: Wiring) -> Counter[Identity]:
    """The requests in flight by endpoint, as the stand-in counts them."""
    requests: Counter[Identity] = wiring.installed["inflight-load-producer"].plugin.requests
    return requests


@BOTH
def test_s_01_a_burst_between_two_scrapes_spreads(scorer: type[Any]) -> None:
    """8 endpoints that all report the same, 800 requests before anyone reports again."""
    classes = (QueueScorer, scorer, MaxScorePicker)
    wiring = wired(in_profile(*classes), *classes, CountedAtThePick, SILENT)
    snapshot = pool(endpoints(*"abcdefgh"), {WAITING_QUEUE_SIZE: [1.0] * 8})
    for _ in range(800):
        decide(wiring, snapshot)
    assert set(counting(wiring).values()) == {100}


def test_s_06_one_prefix_of_all_requests_does_not_draw_them_to_one_endpoint() -> None:
    """4 endpoints, 200 requests 50 ms apart that take 2 s each: 40 at a time."""
    warm: list[PrefixHit | None] = [PrefixHit(0, 128, 16)] * 4
    index = publishing("index", {PREFIX_HIT: warm})
    classes = (PrefixCacheScorer, ActiveRequestScorer, MaxScorePicker)
    text = in_profile(
        *classes, others=[index], weights={"prefix-cache-scorer": 3, "active-request-scorer": 4}
    )
    wiring = wired(text, *classes, index, CountedAtThePick)
    snapshot = pool(endpoints("a", "b", "c", "d"))
    running: deque[Identity] = deque()
    served = Counter[str]()
    for _ in range(200):
        if len(running) == 40:
            counting(wiring)[running.popleft()] -= 1
        target = decide(wiring, snapshot).decision.result.target
        running.append(target.identity)
        served[target.name] += 1
        warm[snapshot.endpoints.index(target)] = PrefixHit(125, 128, 16)
    assert len(served) == 4
    assert max(served.values()) <= 100
    assert all(counting(wiring)[endpoint.identity] <= 16 for endpoint in snapshot.endpoints)
