"""How full endpoints report to be. F-xx and S-xx are field reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import in_profile, refusal, refused

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import keys
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Freshness,
)
from pointsman.kernel.testing import Bench, decide, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.keys import IN_FLIGHT_LOAD, InFlightLoad
from pointsman.plugins.utilization import (
    Condition,
    UtilizationDetector,
    UtilizationDetectorParameters,
    UtilizationFilter,
    UtilizationFilterParameters,
)

from .stand_ins import CountedAtThePick

FRESH, STALE = Freshness.FRESH, Freshness.STALE
REPORTS: Final = st.tuples(
    st.none() | st.floats(0, 1e9),
    st.none() | st.floats(0, 1),
    st.sampled_from([FRESH, STALE, None]),
)


def columns(
    queues: Sequence[float | None] | None = None,
    caches: Sequence[float | None] | None = None,
    freshness: Sequence[Freshness | None] | None = None,
) -> Mapping[Any, Sequence[Any]]:
    """What is reported; a column that is left out is reported by nobody."""
    all_of_them = {WAITING_QUEUE_SIZE: queues, KV_CACHE_USAGE: caches, FRESHNESS: freshness}
    return {key: column for key, column in all_of_them.items() if column is not None}


def bench(data: Mapping[Any, Sequence[Any]], plugin: object, number: int = 2) -> Bench:
    size = max((len(column) for column in data.values()), default=number)
    return Bench(plugin, endpoints(*(f"e{i}" for i in range(size))))


def detector(**parameters: Any) -> UtilizationDetector:
    return UtilizationDetector(UtilizationDetectorParameters(**parameters))


def saturation(data: Mapping[Any, Sequence[Any]], number: int = 2, **parameters: Any) -> float:
    one = bench(data, detector(**parameters), number)
    found: float = one.call("saturation", data, one.endpoints)
    return found


def kept(data: Mapping[Any, Sequence[Any]], plugin: object | None = None, **parameters: Any) -> str:
    """The numbers of those that stay, in one text."""
    one = bench(data, detector(**parameters) if plugin is None else plugin)
    return "".join(endpoint.name.removeprefix("e") for endpoint in one.keep(data))


# -- the detector ----------------------------------------------------------------------------


def test_the_fuller_of_queue_and_cache_counts() -> None:
    assert saturation(columns([4.0], [0.2])) == pytest.approx(0.8)
    assert saturation(columns([1.0], [0.4])) == pytest.approx(0.5)


def test_the_mean_over_the_endpoints_counts() -> None:
    assert saturation(columns([0.0, 5.0, 10.0], [0.0, 0.0, 0.0])) == pytest.approx(1.0)
    assert saturation(columns([1.0, 3.0], [0.0, 0.0])) == pytest.approx(0.4)


def test_the_thresholds_are_what_is_full() -> None:
    assert saturation(columns([6.0], [0.0]), queue_depth_threshold=12.0) == 0.5
    assert saturation(columns([0.0], [0.3]), kv_cache_util_threshold=0.6) == 0.5


def test_headroom_is_for_the_filter_only() -> None:
    assert saturation(columns([5.0], [0.0]), headroom=1.0) == 1.0


def test_no_endpoints_are_full_by_definition() -> None:
    assert saturation({}, 0) == 1.0


def test_one_stale_endpoint_of_four_adds_a_quarter() -> None:
    idle = columns([0.0] * 4, [0.0] * 4, [STALE, FRESH, FRESH, None])
    assert saturation(idle) == 0.25


def test_an_endpoint_that_reports_neither_counts_as_full() -> None:
    assert saturation(columns([None, 0.0], [None, 0.0])) == 0.5


def test_an_endpoint_that_reports_one_of_the_two_is_judged_by_that() -> None:
    assert saturation(columns([2.0, None], [None, 0.4])) == pytest.approx(0.45)
    assert saturation(columns(queues=[2.0, 3.0])) == pytest.approx(0.5)


def test_where_nobody_is_asked_nobody_is_full() -> None:
    assert saturation({}) == 0.0
    assert kept({}) == "01"


def test_endpoints_that_never_answered_are_full() -> None:
    assert saturation(columns(freshness=[STALE, STALE])) == 1.0


def test_f_08_a_pool_that_is_known_to_be_idle_is_not_saturated() -> None:
    assert saturation(columns([0.0, 0.0], [0.0, 0.0], [FRESH, FRESH])) == 0.0


@given(st.lists(REPORTS, min_size=1, max_size=8))
def test_saturation_is_never_negative_and_at_least_the_share_of_the_unknown(
    reports: list[tuple[float | None, float | None, Freshness | None]],
) -> None:
    queues, caches, freshness = map(list, zip(*reports, strict=True))
    unknown = sum(
        state is STALE or (queue is None and cache is None) for queue, cache, state in reports
    )
    found = saturation(columns(queues, caches, freshness))
    assert found >= unknown / len(reports) - 1e-9


# -- the detector as a filter ----------------------------------------------------------------


def test_endpoints_at_a_threshold_or_above_go() -> None:
    assert kept(columns([4.0, 5.0, 0.0, 0.0], [0.7, 0.0, 0.8, 0.79])) == "03"


def test_endpoints_that_are_stale_or_silent_go() -> None:
    assert kept(columns([0.0, 0.0, None], [0.0, 0.0, None], [FRESH, STALE, FRESH])) == "0"


def test_headroom_widens_both_thresholds() -> None:
    assert kept(columns([7.0, 7.5, 0.0], [0.0, 0.0, 1.0]), headroom=0.5) == "02"


def test_when_all_are_full_all_stay() -> None:
    assert kept(columns([9.0, 5.0], [0.0, 0.0])) == "01"
    assert kept(columns([0.0, 0.0], [0.0, 0.0], [STALE, STALE])) == "01"


@given(st.lists(REPORTS, min_size=1, max_size=8), st.floats(0, 2))
def test_the_filter_never_leaves_nobody(
    reports: list[tuple[float | None, float | None, Freshness | None]], headroom: float
) -> None:
    queues, caches, freshness = map(list, zip(*reports, strict=True))
    assert kept(columns(queues, caches, freshness), headroom=headroom)


# -- the detector in the daemon --------------------------------------------------------------


def shed(wiring: Wiring, data: Mapping[Any, Sequence[Any]], priority: int) -> Refusal | None:
    snapshot = pool(endpoints("a", "b"), data)
    try:
        decide(wiring, snapshot, make_request(priority=priority))
    except Refusal as exc:
        return exc
    return None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "saturationDetector: {pluginRef: utilization-detector}\n"
        "plugins: [{type: utilization-detector}]",
        "flowControl: {saturationDetector: {pluginRef: mine}}\n"
        "plugins: [{type: utilization-detector, name: mine}]",
    ],
)
def test_a_negative_priority_is_refused_when_the_candidates_are_full(text: str) -> None:
    wiring = wired(text, UtilizationDetector)
    full, half = columns([5.0, 5.0], [0.0, 0.0]), columns([5.0, 0.0], [0.0, 0.0])
    refused_with = shed(wiring, full, -1)
    assert refused_with is not None
    assert (refused_with.status, refused_with.reason) == (429, "rejected-saturated")
    assert shed(wiring, full, 0) is None
    assert shed(wiring, half, -1) is None


def test_only_the_proxy_s_candidates_count() -> None:
    wiring = wired("", UtilizationDetector)
    snapshot = pool(endpoints("full", "idle"), columns([9.0, 0.0], [0.0, 0.0]))
    request = make_request(priority=-1, subset=frozenset({"127.0.1.1"}))
    assert refusal(lambda: decide(wiring, snapshot, request)).status == 429
    request = make_request(priority=-1, subset=frozenset({"127.0.1.2"}))
    assert decide(wiring, snapshot, request).decision.result.target.name == "idle"


def test_a_detector_is_no_filter_unless_a_profile_names_it() -> None:
    """The reference makes it one when there is no profile at all."""
    data = columns([9.0, 0.0], [0.0, 0.0])
    implicit = wired("plugins: [{type: utilization-detector}]", UtilizationDetector)
    assert decide(implicit, pool(endpoints("a", "b"), data)).decision.result.target.name == "a"
    named = wired(in_profile(UtilizationDetector), UtilizationDetector)
    assert decide(named, pool(endpoints("a", "b"), data)).decision.result.target.name == "b"


def test_a_configuration_without_metrics_can_do_with_the_default_detector() -> None:
    wiring = wired("dataLayer: {injectDefaults: false}", UtilizationDetector)
    assert "utilization-detector" in wiring.added
    assert shed(wiring, {}, -1) is None


# -- the filter ------------------------------------------------------------------------------


def utilization(*conditions: tuple[str, float], fallback: bool = False) -> UtilizationFilter:
    made = tuple(Condition(metric=metric, max_value=value) for metric, value in conditions)
    return UtilizationFilter(
        UtilizationFilterParameters(conditions=made, fallback_on_empty=fallback)
    )


@pytest.mark.parametrize(
    ("metric", "key", "most", "values"),
    [
        ("waiting-queue", WAITING_QUEUE_SIZE, 5, [5.0, 5.5, None, 0.0]),
        ("running-requests", RUNNING_REQUESTS, 7, [7.0, 8.0, None, 1.0]),
        ("kv-cache-utilization", KV_CACHE_USAGE, 0.5, [0.5, 0.51, None, 0.0]),
        (
            "active-requests",
            IN_FLIGHT_LOAD,
            3,
            [InFlightLoad(3), InFlightLoad(4), None, InFlightLoad()],
        ),
    ],
)
def test_endpoints_with_at_most_the_value_stay_and_those_without_any(
    metric: str, key: Any, most: float, values: Sequence[Any]
) -> None:
    assert kept({key: values}, utilization((metric, most))) == "023"


def test_what_is_not_known_is_less_than_any_value() -> None:
    assert kept(columns([None, 1.0]), utilization(("waiting-queue", 0))) == "0"
    assert (
        kept(columns([1.0, 1.0], freshness=[STALE, FRESH]), utilization(("waiting-queue", 0)))
        == "0"
    )
    loads = [None, InFlightLoad(1)]
    assert kept({IN_FLIGHT_LOAD: loads}, utilization(("active-requests", 0))) == "0"


def test_a_full_cache_may_be_allowed() -> None:
    assert kept(columns(caches=[1.0]), utilization(("kv-cache-utilization", 1))) == "0"


def test_all_conditions_must_hold() -> None:
    both = utilization(("waiting-queue", 2), ("kv-cache-utilization", 0.5))
    assert kept(columns([1.0, 3.0, 1.0], [0.1, 0.1, 0.6]), both) == "0"


def test_without_the_figures_all_stay() -> None:
    one = utilization(("waiting-queue", 0), ("active-requests", 0))
    assert kept({}, one) == "01"


def test_when_none_would_stay_all_do_if_wanted() -> None:
    data = columns([3.0, 4.0])
    assert kept(data, utilization(("waiting-queue", 2))) == ""
    assert kept(data, utilization(("waiting-queue", 2), fallback=True)) == "01"
    assert kept(data, utilization(("waiting-queue", 3), fallback=True)) == "0"


def test_s_05_filtered_for_load_is_429() -> None:
    text = (
        "plugins: [{type: utilization-filter, parameters:"
        " {conditions: [{metric: waiting-queue, maxValue: 1}]}}]"
    )
    snapshot = pool(endpoints("a"), columns([2.0]))
    found = refusal(lambda: decide(wired(text, UtilizationFilter), snapshot))
    assert (found.status, found.reason) == (429, "rejected-saturated")


def test_load_in_flight_is_counted_only_if_a_condition_asks_for_it() -> None:
    assert utilization(("waiting-queue", 1)).consumes.required == keys(WAITING_QUEUE_SIZE)
    assert utilization(("active-requests", 1)).consumes.required == keys(IN_FLIGHT_LOAD)


def test_the_load_of_a_named_producer_is_read() -> None:
    text = (
        "plugins:\n"
        "- {type: utilization-filter, parameters: {inFlightLoadProducerName: mine,"
        " conditions: [{metric: active-requests, maxValue: 0}]}}\n"
        "- {type: inflight-load-producer}\n"
        "- {type: inflight-load-producer, name: mine, produces:"
        " {in-flight-load: my-load, uncached-request-tokens: my-tokens}}\n"
    )
    wiring = wired(text, UtilizationFilter, CountedAtThePick)
    both = pool(endpoints("a", "b"))
    busy = wiring.installed["mine"].plugin.requests
    busy[both.endpoints[0].identity] = 1
    assert decide(wiring, both).decision.result.target.name == "b"


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{type: utilization-detector, parameters: {queueDepthThreshold: 0}}", "above 0"),
        ("{type: utilization-detector, parameters: {kvCacheUtilThreshold: 0}}", "above 0"),
        ("{type: utilization-detector, parameters: {kvCacheUtilThreshold: 1.1}}", "from 0 to 1"),
        ("{type: utilization-detector, parameters: {kvCacheUtilThreshold: .nan}}", "above 0"),
        ("{type: utilization-detector, parameters: {headroom: -0.1}}", "at least 0"),
        (
            "{type: utilization-detector, parameters: {metricsStalenessThreshold: 0s}}",
            "metricsStalenessThreshold: must be above 0",
        ),
        ("{type: utilization-detector, parameters: {queueDepth: 5}}", "did you mean 'queueDepth"),
        ("{type: utilization-filter}", "conditions: is required"),
        ("{type: utilization-filter, parameters: {conditions: []}}", "must not be empty"),
        (
            "{type: utilization-filter, parameters: {conditions: [{metric: waiting-queue}]}}",
            "conditions[0].maxValue: is required",
        ),
        (
            "{type: utilization-filter, parameters: {conditions: [{metric: load, maxValue: 1}]}}",
            "conditions[0].metric: must be one of active-requests,",
        ),
        (
            "{type: utilization-filter, parameters:"
            " {conditions: [{metric: waiting-queue, maxValue: -1}]}}",
            "conditions[0].maxValue: must be at least 0",
        ),
        (
            "{type: utilization-filter, parameters:"
            " {conditions: [{metric: kv-cache-utilization, maxValue: 80}]}}",
            "maxValue of kv-cache-utilization must be from 0 to 1, not 80",
        ),
    ],
)
def test_mistaken_parameters_are_refused(text: str, complaint: str) -> None:
    classes = (UtilizationDetector, UtilizationFilter, CountedAtThePick)
    (mistake,) = refused(f"plugins: [{text}]", *classes)
    assert complaint in mistake
