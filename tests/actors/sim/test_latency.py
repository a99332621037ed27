"""The latency model: load, profiles, jitter and the pace of iterations."""

from __future__ import annotations

from random import Random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.latency import PROFILES, LatencyProfile, Pace, jitter


@pytest.mark.parametrize(("running", "load"), [(1, 1.0), (2, 8 / 7), (8, 2.0)])
def test_latencies_grow_with_the_requests_that_run(running: int, load: float) -> None:
    assert LatencyProfile(time_factor_under_load=2.0).load(running, 8) == pytest.approx(load)


def test_a_server_with_one_slot_knows_no_load() -> None:
    assert LatencyProfile(time_factor_under_load=3.0).load(1, 1) == 1.0


def test_a_prompt_costs_its_overhead_once() -> None:
    profile = LatencyProfile(prefill_overhead=0.03, prefill_time_per_token=0.001)
    whole = profile.prefill(tokens=100, starts=True)
    parts = profile.prefill(tokens=60, starts=True) + profile.prefill(tokens=40, starts=False)
    assert whole == pytest.approx(0.13)
    assert parts == pytest.approx(whole)


def test_every_profile_has_its_own_speed() -> None:
    speeds = {name: profile.inter_token_latency for name, profile in PROFILES.items()}
    assert speeds == {"8b-h100": 0.012, "70b-tp8": 0.025, "small-l40s": 0.015}


@given(st.floats(0.0001, 10), st.floats(0, 10), st.integers())
def test_jitter_stays_within_seventy_percent_of_the_mean(
    average: float, std: float, seed: int
) -> None:
    drawn = jitter(average, std, Random(seed))
    assert 0.3 * average <= drawn <= 1.7 * average


def test_jitter_does_not_move_the_mean() -> None:
    random = Random(1)
    assert mean(jitter(1.0, 0.2, random) for _ in range(5000)) == pytest.approx(1.0, abs=0.01)


def test_without_deviation_every_iteration_takes_the_mean() -> None:
    pace = Pace.draw(LatencyProfile(inter_token_std=0.0), Random(1))
    assert [pace.factor(index) for index in (0, 1, 5000)] == [1.0, 1.0, 1.0]


@given(st.integers(0, 20_000), st.integers(0, 50))
def test_skipping_iterations_takes_as_long_as_stepping_through_them(first: int, count: int) -> None:
    pace = Pace.draw(LatencyProfile(), Random(1))
    stepped = sum(pace.factor(index) for index in range(first, first + count))
    assert pace.elapsed(first + count) - pace.elapsed(first) == pytest.approx(stepped)


@given(st.integers(0, 20_000))
def test_the_iteration_of_a_time_is_found_again(index: int) -> None:
    pace = Pace.draw(LatencyProfile(), Random(1))
    assert abs(pace.index_at(pace.elapsed(index)) - index) <= 1
