"""The figures of a run, against cases worked out by hand."""

from __future__ import annotations

import pytest

from pointsman.actors.sim.work import Generation, Work

from .tallies import Spread, Tally, percentile

pytestmark = pytest.mark.long


def generation(*, arrived: float, first: float, ended: float, cached: int = 0) -> Generation:
    """A finished request of 100 tokens that generated 10."""
    made = Generation(Work(prompt_tokens=100, output_tokens=10), arrived)
    made.first_token, made.ended, made.generated, made.cached_tokens = first, ended, 10, cached
    return made


def two_requests() -> Tally:
    tally = Tally(2)
    tally.decided("a", held=0, best=4)
    tally.decided("b", held=3, best=6)
    tally.finished("b", generation(arrived=2.0, first=2.5, ended=4.0, cached=80))
    tally.finished("a", generation(arrived=1.0, first=3.0, ended=6.0))
    return tally


def test_the_hit_ratio_is_of_all_prompt_tokens() -> None:
    assert two_requests().result().hit == 0.4


def test_captured_is_what_the_chosen_servers_held_of_what_the_best_ones_did() -> None:
    assert two_requests().result().captured == 0.3


def test_all_of_nothing_is_captured() -> None:
    tally = Tally(1)
    tally.decided("a", held=0, best=0)
    tally.finished("a", generation(arrived=0.0, first=1.0, ended=2.0))
    assert tally.result().captured == 1.0


def test_throughput_runs_from_the_first_arrival_to_the_last_token() -> None:
    assert two_requests().result().tokens_per_second == 20 / 5


def test_time_to_the_first_token_counts_from_the_arrival() -> None:
    result = two_requests().result()
    assert (result.ttft_p50, result.ttft_p90) == (0.5, 2.0)


def test_load_is_compared_at_each_arrival() -> None:
    """Three arrivals: 1 and 0, then 2 and 0, then 1 and 1 in flight. 1 + 2 + 1 by 0.5 + 1 + 1."""
    tally = Tally(2)
    ended = generation(arrived=0.0, first=1.0, ended=2.0)
    tally.decided("a", held=0, best=0)
    tally.decided("a", held=0, best=0)
    tally.finished("a", ended)
    tally.decided("b", held=0, best=0)
    assert tally.in_flight == {"a": 1, "b": 1}
    tally.finished("a", ended)
    tally.finished("b", ended)
    assert tally.result().unevenness == 4 / 2.5


def test_a_request_that_has_not_finished_is_not_counted() -> None:
    with pytest.raises(ValueError, match="not finished"):
        Tally(1).finished("a", Generation(Work(prompt_tokens=1, output_tokens=1), 0.0))


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 10.0), (10, 10.0), (50, 50.0), (51, 60.0), (90, 90.0), (100, 100.0)]
)
def test_a_percentile_is_one_of_the_values(percent: float, value: float) -> None:
    assert percentile([float(n) for n in range(100, 0, -10)], percent) == value


def test_a_spread_is_mean_and_deviation() -> None:
    assert Spread.of([1.0, 3.0]) == Spread(2.0, 1.0)
    assert Spread.of([7.0]) == Spread(7.0, 0.0)
