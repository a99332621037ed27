"""The load-aware scorer. M-xx and S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import in_profile, refused

from pointsman.kernel.keys import Column
from pointsman.kernel.model import FRESHNESS, WAITING_QUEUE_SIZE, Freshness
from pointsman.kernel.testing import Bench, decide, endpoints, pool, wired
from pointsman.plugins.keys import PREFIX_HIT, PrefixHit
from pointsman.plugins.load_aware import LoadAwareParameters, LoadAwareScorer
from pointsman.plugins.prefix_cache import PrefixCacheScorer

from .stand_ins import publishing

FRESH, STALE = Freshness.FRESH, Freshness.STALE
QUEUES: Final = st.lists(st.none() | st.floats(0, 1e9), min_size=1, max_size=8)


def score(
    waiting: Column[float], freshness: Column[Freshness] | None = None, threshold: int = 128
) -> list[float | None]:
    scorer = LoadAwareScorer(LoadAwareParameters(threshold=threshold))
    bench = Bench(scorer, endpoints(*(f"e{number}" for number in range(len(waiting)))))
    seen = {} if freshness is None else {FRESHNESS: freshness}
    return bench.score({WAITING_QUEUE_SIZE: waiting, **seen})


def test_an_idle_endpoint_gets_a_half_and_a_full_one_nothing() -> None:
    assert score([0.0, 32.0, 128.0, 500.0]) == [0.5, 0.375, 0.0, 0.0]


def test_the_threshold_says_what_full_is() -> None:
    assert score([0.0, 2.0, 10.0], threshold=10) == [0.5, 0.4, 0.0]


@pytest.mark.parametrize("threshold", [0, -3])
def test_a_threshold_of_0_and_below_means_the_default(threshold: int) -> None:
    assert score([64.0], threshold=threshold) == [0.25]


def test_the_others_do_not_change_a_score() -> None:
    assert score([1.0, 0.0])[1] == score([100.0, 0.0])[1] == 0.5


def test_m_10_an_endpoint_that_does_not_report_gets_the_mean() -> None:
    assert score([0.0, None, 128.0]) == [0.5, 0.25, 0.0]


def test_m_05_a_stale_report_is_not_believed() -> None:
    assert score([0.0, 64.0], [STALE, FRESH]) == [0.0, 0.25]


def test_when_nobody_reports_nobody_is_preferred() -> None:
    assert score([None, None]) == [None, None]


def test_s_07_an_unseen_prompt_goes_where_there_is_no_queue() -> None:
    unseen = publishing("index", {PREFIX_HIT: [PrefixHit(0, 9, 16), PrefixHit(0, 9, 16)]})
    classes = (PrefixCacheScorer, LoadAwareScorer)
    wiring = wired(in_profile(*classes, others=[unseen]), *classes, unseen)
    snapshot = pool(endpoints("a", "b"), {WAITING_QUEUE_SIZE: [20.0, 0.0]})
    assert decide(wiring, snapshot).decision.result.target.name == "b"


@given(QUEUES, st.integers())
def test_every_score_is_between_0_and_a_half(queues: list[float | None], threshold: int) -> None:
    scores = score(queues, threshold=threshold)
    assert all(one is None or 0.0 <= one <= 0.5 for one in scores)


@given(QUEUES)
def test_the_order_of_the_candidates_does_not_matter(queues: list[float | None]) -> None:
    assert score(queues[::-1])[::-1] == pytest.approx(score(queues))


def test_a_threshold_is_a_whole_number() -> None:
    (mistake,) = refused(
        "plugins: [{type: load-aware-scorer, parameters: {threshold: few}}]", LoadAwareScorer
    )
    assert "parameters.threshold: must be a whole number, not 'few'" in mistake
