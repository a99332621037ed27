"""Runs of iterations: when each is over, and where a run is cut."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.latency import LatencyProfile, Pace
from pointsman.actors.sim.steps import Step

PACE = Pace.draw(LatencyProfile(), Random(1))


def step(index: int, iterations: int) -> Step:
    return Step(pace=PACE, index=index, start=100.0, unit=0.012, iterations=iterations)


@given(st.integers(0, 3000), st.integers(1, 400), st.floats(0.0, 1.0))
def test_a_run_is_cut_after_the_iteration_that_is_running(
    index: int, iterations: int, part: float
) -> None:
    whole, cut = step(index, iterations), step(index, iterations)
    now = whole.start + part * (whole.end - whole.start)
    cut.cut(now)
    assert now <= cut.end <= whole.end
    assert cut.iterations == 1 or cut.end_of(cut.iterations - 1) < now


@given(st.integers(0, 3000), st.integers(1, 50))
def test_a_cut_at_an_iterations_end_begins_no_other(index: int, iterations: int) -> None:
    run = step(index, iterations + 5)
    run.cut(run.end_of(iterations))
    assert run.iterations == iterations


@given(st.integers(0, 3000), st.integers(1, 50))
def test_an_iteration_is_over_at_its_end(index: int, iterations: int) -> None:
    run = step(index, 50)
    assert run.ended_by(run.end_of(iterations)) == iterations
    assert run.ended_by(run.start) == 0
