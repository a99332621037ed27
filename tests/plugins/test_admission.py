"""The probabilistic admitter. Chance is seeded."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import refusal, refused

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Column
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    REQUEST_PRIORITY,
    WAITING_QUEUE_SIZE,
    Freshness,
)
from pointsman.kernel.testing import Bench, decide, endpoints, make_request, pool, wired
from pointsman.plugins.admission import ProbabilisticAdmitter, ProbabilisticAdmitterParameters

FRESH, STALE = Freshness.FRESH, Freshness.STALE
REPORTS: Final = st.lists(
    st.tuples(st.none() | st.floats(0, 1e300), st.none() | st.floats(0, 1)), min_size=1, max_size=5
)


class Fixed(Random):
    """Chance that always comes out the same."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self._value = value

    def random(self) -> float:
        return self._value


def passes(
    queues: Column[float],
    caches: Column[float],
    *,
    chance: float = 0.0,
    priority: int = -1,
    freshness: Sequence[Freshness] = (),
    **parameters: Any,
) -> bool:
    """Whether a request is let in when the die shows *chance*."""
    plugin = ProbabilisticAdmitter(ProbabilisticAdmitterParameters(**parameters), Fixed(chance))
    bench = Bench(plugin, endpoints(*(f"e{number}" for number in range(len(queues)))))
    data: dict[Any, Any] = {REQUEST_PRIORITY: priority}
    data |= {WAITING_QUEUE_SIZE: queues, KV_CACHE_USAGE: caches}
    data |= {FRESHNESS: freshness} if freshness else {}
    try:
        bench.call("admit", data, bench.endpoints)
    except Refusal:
        return False
    return True


def chance_of_refusal(queues: Column[float], caches: Column[float], **more: Any) -> float:
    """Found by bisection on the die."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if passes(queues, caches, chance=middle, **more):
            high = middle
        else:
            low = middle
    return low


@pytest.mark.parametrize("priority", [0, 1, 100])
def test_a_priority_of_0_and_above_always_passes(priority: int) -> None:
    assert passes([1000.0], [1.0], priority=priority)
    assert passes([None], [None], priority=priority)


def test_an_idle_pool_lets_everybody_in() -> None:
    assert passes([0.0, 0.0], [0.0, 0.0])


@pytest.mark.parametrize("saturation", [0.05, 0.1, 0.2, 0.3])
def test_the_chance_grows_with_the_fifth_power(saturation: float) -> None:
    found = chance_of_refusal([5 * saturation], [0.0])
    assert found == pytest.approx(300 * saturation**5, rel=1e-6)


def test_from_a_third_of_saturation_on_all_are_refused() -> None:
    assert chance_of_refusal([1.6], [0.0]) == pytest.approx(1.0)
    assert chance_of_refusal([1.5], [0.0]) < 0.75


def test_the_fuller_of_queue_and_cache_counts() -> None:
    assert chance_of_refusal([0.5], [0.16]) == pytest.approx(300 * 0.2**5)
    assert chance_of_refusal([1.0], [0.08]) == pytest.approx(300 * 0.2**5)


def test_the_mean_over_the_endpoints_counts() -> None:
    assert chance_of_refusal([1.0, 0.0], [0.0, 0.0]) == pytest.approx(300 * 0.1**5)


def test_an_endpoint_that_does_not_report_is_full() -> None:
    alone = {"power": 1.0, "k": 0.5}
    assert chance_of_refusal([None], [None], **alone) == pytest.approx(0.5)
    assert chance_of_refusal([None, 0.0], [None, 0.0], **alone) == pytest.approx(0.25)


def test_an_endpoint_with_stale_reports_is_full() -> None:
    found = chance_of_refusal([0.0], [0.0], power=1.0, k=0.5, freshness=[STALE])
    assert found == pytest.approx(0.5)


def test_of_an_endpoint_that_reports_half_the_other_half_counts() -> None:
    assert chance_of_refusal([None], [0.16]) == pytest.approx(300 * 0.2**5)
    assert chance_of_refusal([1.0], [None]) == pytest.approx(300 * 0.2**5)


def test_the_thresholds_say_what_full_is() -> None:
    more = {"queue_depth_threshold": 10.0, "kv_cache_util_threshold": 0.5, "power": 1.0, "k": 1.0}
    assert chance_of_refusal([2.0], [0.0], **more) == pytest.approx(0.2)
    assert chance_of_refusal([0.0], [0.2], **more) == pytest.approx(0.4)


def test_without_endpoints_nothing_is_refused() -> None:
    assert passes([], [])


def test_a_refusal_says_that_it_is_for_load() -> None:
    wiring = wired("plugins: [{type: probabilistic-admitter}]", ProbabilisticAdmitter)
    full = pool(endpoints("a"), {WAITING_QUEUE_SIZE: [9.0], KV_CACHE_USAGE: [0.9]})
    found = refusal(lambda: decide(wiring, full, make_request(priority=-1)))
    assert (found.status, found.reason, found.retry_after) == (429, "rejected-saturated", 1)
    assert decide(wiring, full, make_request(priority=0)).decision.destination


def test_a_pool_of_which_nothing_is_known_refuses() -> None:
    wiring = wired("plugins: [{type: probabilistic-admitter}]", ProbabilisticAdmitter)
    found = refusal(lambda: decide(wiring, pool(endpoints("a")), make_request(priority=-1)))
    assert found.status == 429


@given(REPORTS, st.floats(1e-3, 1e3), st.floats(1e-3, 1e6))
def test_whatever_is_reported_there_is_a_decision(
    reports: list[tuple[float | None, float | None]], power: float, k: float
) -> None:
    queues, caches = zip(*reports, strict=True)
    fresh = [FRESH] * len(reports)
    assert passes(queues, caches, chance=1.0, freshness=fresh, power=power, k=k)
    assert passes(queues, caches, priority=0, freshness=fresh, power=power, k=k)


@given(st.floats(0, 20), st.floats(0, 20), st.floats(0, 1))
def test_more_load_never_lets_more_in(one: float, other: float, chance: float) -> None:
    less, more = sorted((one, other))
    assert passes([less], [0.0], chance=chance) or not passes([more], [0.0], chance=chance)


@pytest.mark.parametrize("name", ["queueDepthThreshold", "kvCacheUtilThreshold", "power", "k"])
@pytest.mark.parametrize("value", ["0", "-1", ".nan"])
def test_every_parameter_is_above_0(name: str, value: str) -> None:
    text = f"plugins: [{{type: probabilistic-admitter, parameters: {{{name}: {value}}}}}]"
    (mistake,) = refused(text, ProbabilisticAdmitter)
    assert f"parameters.{name}: must be above 0" in mistake
