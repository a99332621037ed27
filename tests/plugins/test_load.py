"""Scorers on reported load. M-xx and S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.keys import Column, EndpointKey
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Freshness,
)
from pointsman.kernel.testing import Bench, endpoints
from pointsman.plugins.load import KvCacheUtilizationScorer, QueueScorer, RunningRequestsScorer

Scorer = QueueScorer | RunningRequestsScorer | KvCacheUtilizationScorer

QUEUE = QueueScorer()
RUNNING = RunningRequestsScorer()
CACHE = KvCacheUtilizationScorer()
KEYS: dict[Scorer, EndpointKey[float]] = {
    QUEUE: WAITING_QUEUE_SIZE,
    RUNNING: RUNNING_REQUESTS,
    CACHE: KV_CACHE_USAGE,
}
COUNTING = pytest.mark.parametrize("scorer", [QUEUE, RUNNING], ids=lambda s: s.type_name)
EVERY = pytest.mark.parametrize("scorer", [QUEUE, RUNNING, CACHE], ids=lambda s: s.type_name)
FRESH, STALE = Freshness.FRESH, Freshness.STALE


def score(
    scorer: Scorer, values: Column[float], freshness: Column[Freshness] | None = None
) -> list[float | None]:
    bench = Bench(scorer, endpoints(*(f"e{number}" for number in range(len(values)))))
    seen = {} if freshness is None else {FRESHNESS: freshness}
    return bench.score({KEYS[scorer]: values, **seen})


@COUNTING
def test_the_fewest_get_1_the_most_0_and_the_rest_in_proportion(scorer: Scorer) -> None:
    assert score(scorer, [0.0, 4.0, 1.0]) == [1.0, 0.0, 0.75]


@COUNTING
@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [7.0, 7.0], [3.0]])
def test_s_02_equals_all_get_1(scorer: Scorer, values: list[float]) -> None:
    assert score(scorer, values) == [1.0] * len(values)


def test_m_13_halves_stay_halves() -> None:
    assert score(QUEUE, [1.0, 2.0, 1.5]) == [1.0, 0.0, 0.5]


def test_the_free_share_of_the_cache_is_the_score() -> None:
    assert score(CACHE, [0.0, 1.0, 0.25]) == [1.0, 0.0, 0.75]


@EVERY
def test_m_10_an_endpoint_that_does_not_report_is_neither_best_nor_worst(scorer: Scorer) -> None:
    assert score(scorer, [0.0, None, 1.0], [FRESH, FRESH, FRESH]) == [1.0, 0.5, 0.0]


@EVERY
def test_an_endpoint_that_was_never_asked_is_neither_best_nor_worst(scorer: Scorer) -> None:
    assert score(scorer, [0.0, None, 1.0], [FRESH, None, FRESH]) == [1.0, 0.5, 0.0]


@EVERY
def test_m_05_a_stale_report_is_not_believed(scorer: Scorer) -> None:
    assert score(scorer, [0.0, 0.5, 1.0], [STALE, FRESH, FRESH])[0] == 0.0


def test_m_05_stale_reports_do_not_stretch_the_scale_of_the_others() -> None:
    assert score(QUEUE, [100.0, 0.0, 2.0, 1.0], [STALE, FRESH, FRESH, FRESH]) == [
        0.0,
        1.0,
        0.0,
        0.5,
    ]


@EVERY
def test_a_stale_endpoint_is_worse_than_one_that_is_merely_silent(scorer: Scorer) -> None:
    scores = score(scorer, [None, None, 0.0], [STALE, FRESH, FRESH])
    assert scores == [0.0, 1.0, 1.0]


@EVERY
def test_m_05_when_all_are_stale_nobody_is_preferred(scorer: Scorer) -> None:
    assert score(scorer, [0.0, 1.0], [STALE, STALE]) == [None, None]


@EVERY
def test_when_nobody_reports_nobody_is_preferred(scorer: Scorer) -> None:
    assert score(scorer, [None, None], [FRESH, FRESH]) == [None, None]


@EVERY
def test_scores_do_without_knowing_how_fresh_reports_are(scorer: Scorer) -> None:
    assert score(scorer, [0.0, None, 1.0]) == [1.0, 0.5, 0.0]


fractions = st.none() | st.floats(0, 1, allow_subnormal=False)
states = st.sampled_from([FRESH, STALE, None])


@given(st.sampled_from([QUEUE, RUNNING, CACHE]), st.lists(st.tuples(fractions, states), min_size=1))
def test_every_score_is_between_0_and_1(
    scorer: Scorer, reports: list[tuple[float | None, Freshness | None]]
) -> None:
    scores = score(scorer, [value for value, _ in reports], [state for _, state in reports])
    assert len(scores) == len(reports)
    assert all(one is None or 0.0 <= one <= 1.0 for one in scores)


def test_scorers_touch_only_what_they_declare() -> None:
    bench = Bench(QUEUE, endpoints("a"))
    bench.score({WAITING_QUEUE_SIZE: [1.0]})
    assert bench.violations == []
