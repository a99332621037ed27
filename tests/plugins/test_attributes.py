"""Filtering and scoring by any number of endpoints. M-xx are field reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import pytest
from attrs import define
from hypothesis import example, given
from hypothesis import strategies as st
from tests.kernel.zoo import refused

from pointsman.kernel.keys import DataView, EndpointKey, keys
from pointsman.kernel.model import FRESHNESS, WAITING_QUEUE_SIZE, Endpoint, Freshness
from pointsman.kernel.testing import Bench, decide, endpoints, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins import BUILT_IN
from pointsman.plugins.attributes import (
    HIGHER,
    LOWER,
    AdaptiveRange,
    EndpointAttributeFilter,
    EndpointAttributeFilterParameters,
    EndpointAttributeScorer,
    EndpointAttributeScorerParameters,
    FilterAlgorithm,
    FixedRange,
    Normalization,
    ScorerAlgorithm,
    Threshold,
)
from pointsman.plugins.keys import UNCACHED_TOKENS

QUEUE: Final = "WaitingQueueSize"
FRESH, STALE = Freshness.FRESH, Freshness.STALE
NAN, INF = float("nan"), float("inf")
VALUES: Final = st.lists(st.none() | st.floats(-1e300, 1e300), min_size=1, max_size=8)
ANY_VALUES: Final = st.lists(st.none() | st.floats(), min_size=1, max_size=8)


def bench(plugin: object, number: int) -> Bench:
    return Bench(plugin, endpoints(*(str(one) for one in range(number))))


def kept(
    operator: str,
    bound: float,
    *values: float | None,
    freshness: Sequence[Freshness | None] | None = None,
    **parameters: Any,
) -> str:
    """The numbers of those that stay, in one text."""
    algorithm = FilterAlgorithm(
        type="threshold", threshold=Threshold(operator=operator, value=bound)
    )
    made = EndpointAttributeFilterParameters(attribute=QUEUE, algorithm=algorithm, **parameters)
    data: dict[Any, Any] = {WAITING_QUEUE_SIZE: values}
    if freshness is not None:
        data[FRESHNESS] = freshness
    found = bench(EndpointAttributeFilter(made), len(values)).keep(data)
    return "".join(one.name for one in found)


def scores(
    kind: str,
    *values: float | None,
    normalization: Normalization | None = None,
    freshness: Sequence[Freshness | None] | None = None,
) -> list[float | None]:
    algorithm = ScorerAlgorithm(type=kind, normalization=normalization or Normalization())
    made = EndpointAttributeScorerParameters(attribute_key=QUEUE, algorithm=algorithm)
    data: dict[Any, Any] = {WAITING_QUEUE_SIZE: values}
    if freshness is not None:
        data[FRESHNESS] = freshness
    return bench(EndpointAttributeScorer(made), len(values)).score(data)


def fixed(least: float, most: float) -> Normalization:
    return Normalization(fixed_range=FixedRange(min=least, max=most))


# -- the filter ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("LessThan", "0"),
        ("LessThanOrEqual", "01"),
        ("GreaterThan", "2"),
        ("GreaterThanOrEqual", "12"),
        ("Equal", "1"),
        ("NotEqual", "02"),
    ],
)
def test_an_endpoint_stays_when_its_value_compares_so(operator: str, expected: str) -> None:
    assert kept(operator, 5, 4.0, 5.0, 6.0) == expected


@pytest.mark.parametrize("nothing", [None, NAN, INF, -INF])
def test_endpoints_without_a_number_pass_or_fail_as_configured(nothing: float | None) -> None:
    assert kept("LessThan", 5, nothing, 9.0, 1.0) == "02"
    assert kept("LessThan", 5, nothing, 9.0, 1.0, on_missing="Pass") == "02"
    assert kept("LessThan", 5, nothing, 9.0, 1.0, on_missing="Fail") == "2"


def test_a_stale_value_is_a_missing_one() -> None:
    freshness = [STALE, STALE, FRESH, None]
    assert kept("LessThan", 5, 9.0, 1.0, 9.0, 1.0, freshness=freshness) == "013"
    assert kept("LessThan", 5, 9.0, 1.0, 9.0, 1.0, freshness=freshness, on_missing="Fail") == "3"


def test_where_nobody_publishes_it_all_are_without() -> None:
    algorithm = FilterAlgorithm(type="threshold", threshold=Threshold(operator="Equal", value=0))
    for on_missing, expected in (("Pass", 2), ("Fail", 0)):
        made = EndpointAttributeFilterParameters(
            attribute="anything", algorithm=algorithm, on_missing=on_missing
        )
        assert len(bench(EndpointAttributeFilter(made), 2).keep()) == expected


def test_the_fallback_keeps_all_when_none_would_stay_and_only_then() -> None:
    assert kept("LessThan", 5, 6.0, 7.0) == ""
    assert kept("LessThan", 5, 6.0, 7.0, fallback_on_empty=True) == "01"
    assert kept("LessThan", 5, 6.0, 4.0, fallback_on_empty=True) == "1"


# -- the scorer ------------------------------------------------------------------------------


def test_the_candidates_own_range_is_the_default() -> None:
    assert scores(LOWER, 2.0, 6.0, 4.0) == [1.0, 0.0, 0.5]
    assert scores(HIGHER, 2.0, 6.0, 4.0) == [0.0, 1.0, 0.5]
    adaptive = Normalization(adaptive_range=AdaptiveRange())
    assert scores(LOWER, 2.0, 6.0, 4.0, normalization=adaptive) == [1.0, 0.0, 0.5]


def test_equals_all_get_1_in_their_own_range_and_their_place_in_a_fixed_one() -> None:
    assert scores(LOWER, 3.0, 3.0) == [1.0, 1.0]
    assert scores(LOWER, 3.0, 3.0, normalization=fixed(0, 4)) == [0.25, 0.25]


def test_values_outside_a_fixed_range_are_its_ends() -> None:
    assert scores(LOWER, -1.0, 0.0, 1.0, 4.0, 9.0, normalization=fixed(0, 4)) == [1, 1, 0.75, 0, 0]
    assert scores(HIGHER, -1.0, 1.0, 9.0, normalization=fixed(0, 4)) == [0.0, 0.25, 1.0]


@pytest.mark.parametrize("nothing", [None, NAN, INF])
def test_m_10_an_endpoint_without_a_number_gets_the_mean_of_the_others(
    nothing: float | None,
) -> None:
    assert scores(LOWER, 0.0, nothing, 10.0) == [1.0, 0.5, 0.0]


def test_a_stale_endpoint_gets_0() -> None:
    assert scores(LOWER, 0.0, 5.0, 10.0, freshness=[STALE, FRESH, FRESH]) == [0.0, 1.0, 0.0]


def test_where_nobody_has_a_number_nobody_gets_a_score() -> None:
    assert scores(LOWER, None, NAN) == [None, None]


@given(ANY_VALUES, st.sampled_from([LOWER, HIGHER]), st.sampled_from([None, fixed(-5, 5)]))
@example([-1.7e308, 1.7e308, 0.0], LOWER, None)
@example([0.0, 5e-324], HIGHER, None)
def test_every_score_is_between_0_and_1(
    values: list[float | None], kind: str, normalization: Normalization | None
) -> None:
    found = scores(kind, *values, normalization=normalization)
    assert all(score is None or 0.0 <= score <= 1.0 for score in found)


@given(VALUES)
def test_lower_and_higher_are_each_other_s_reverse(values: list[float | None]) -> None:
    mirrored = [None if value is None else -value for value in values]
    assert scores(LOWER, *values) == scores(HIGHER, *mirrored)


# -- names -----------------------------------------------------------------------------------

THRESHOLD: Final = "algorithm: {type: threshold, threshold: {operator: LessThan, value: 5}}"
BETTER: Final = f"algorithm: {{type: {LOWER}}}"


def filtering(attribute: str) -> str:
    return f"{{type: endpoint-attribute-filter, parameters: {{{attribute}, {THRESHOLD}}}}}"


def scoring(attribute: str) -> str:
    return f"{{type: endpoint-attribute-scorer, parameters: {{{attribute}, {BETTER}}}}}"


def chosen(wiring: Wiring, key: EndpointKey[float], *values: float) -> str:
    names = [chr(ord("a") + number) for number in range(len(values))]
    return decide(wiring, pool(endpoints(*names), {key: values})).decision.result.target.name


@pytest.mark.parametrize(
    "attribute",
    [
        "WaitingQueueSize",
        "waiting-queue-size",
        "WaitingQueueSize, producer: ''",
        "WaitingQueueSize, producer: core-metrics-extractor",
    ],
)
def test_reported_load_goes_by_the_reference_s_name_and_by_ours(attribute: str) -> None:
    wiring = wired(f"plugins: [{filtering(f'attribute: {attribute}')}]", *BUILT_IN)
    assert {chosen(wiring, WAITING_QUEUE_SIZE, 9.0, 1.0) for _ in range(9)} == {"b"}
    wiring = wired(f"plugins: [{scoring(f'attributeKey: {attribute}')}]", *BUILT_IN)
    assert {chosen(wiring, WAITING_QUEUE_SIZE, 9.0, 1.0) for _ in range(9)} == {"b"}


def test_a_custom_metric_goes_by_its_own_name() -> None:
    text = (
        f"plugins: [{scoring('attributeKey: GPUUtilization')},"
        " {type: core-metrics-extractor, parameters: {engineConfigs: [{name: mine,"
        " customMetrics: [{attributeKey: GPUUtilization, metricSpec: gpu}]}]}}]"
    )
    wiring = wired(text, *BUILT_IN)
    assert "GPUUtilization" in wiring.processing.endpoint_values
    assert chosen(wiring, EndpointKey("GPUUtilization", float), 0.9, 0.1, 0.5) == "b"


WARMTH: Final = EndpointKey("acme/warmth", float)


@define(eq=False)
class Warmth:
    """Publishes a number of its own."""

    type_name: ClassVar = "warmth"
    produces: ClassVar = keys(WARMTH)

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        data[WARMTH] = [20.0, 1.0]


@pytest.mark.parametrize("producer", ["''", "warmth"])
def test_a_name_may_have_a_slash_where_the_producer_is_said(producer: str) -> None:
    attribute = f"attributeKey: acme/warmth, producer: {producer}"
    wiring = wired(f"plugins: [{scoring(attribute)}, {{type: warmth}}]", *BUILT_IN, Warmth)
    assert decide(wiring, pool(endpoints("a", "b"))).decision.result.target.name == "b"


def test_whole_numbers_that_a_producer_publishes_are_numbers() -> None:
    attribute = "attributeKey: UncachedRequestTokensDataKey, producer: inflight-load-producer"
    wiring = wired(f"plugins: [{scoring(attribute)}, {{type: inflight-load-producer}}]", *BUILT_IN)
    assert UNCACHED_TOKENS.name in wiring.plan.consumed
    assert wiring.plan.unmet.get("endpoint-attribute-scorer") is None


def test_an_attribute_that_nobody_publishes_is_told_of_and_starts_nevertheless() -> None:
    wiring = wired(f"plugins: [{filtering('attribute: nothing')}]", *BUILT_IN)
    assert wiring.plan.unmet["endpoint-attribute-filter"] == ("nothing",)


# -- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (filtering("attribute: ''"), "attribute: must not be empty"),
        (filtering("onMissing: Pass"), "attribute: is required"),
        (filtering("attribute: x, onMissing: pass"), "onMissing: must be one of Pass, Fail"),
        (
            filtering("attribute: x/y"),
            "write 'x' and producer: 'y' instead of 'x/y'",
        ),
        (filtering("attribute: x, producer: nobody"), "no plugin is named 'nobody'"),
        (
            "{type: endpoint-attribute-filter, parameters: {attribute: x}}",
            "algorithm: is required",
        ),
        (
            "{type: endpoint-attribute-filter, parameters: {attribute: x, algorithm:"
            " {type: threshold, threshold: {operator: Less, value: 1}}}}",
            "algorithm.threshold.operator: must be one of LessThan,",
        ),
        (
            "{type: endpoint-attribute-filter, parameters: {attribute: x, algorithm:"
            " {type: range, threshold: {operator: LessThan, value: 1}}}}",
            "algorithm.type: must be one of threshold",
        ),
        (scoring("attributeKey: ' '"), "attributeKey: must not be empty"),
        (scoring("attributeKey: x/y"), "write 'x' and producer: 'y'"),
        (
            "{type: endpoint-attribute-scorer, parameters: {attributeKey: x,"
            " algorithm: {type: linear}}}",
            f"algorithm.type: must be one of {LOWER}, {HIGHER}",
        ),
        *(
            (
                "{type: endpoint-attribute-scorer, parameters: {attributeKey: x, algorithm:"
                f" {{type: {LOWER}, normalization: {normalization}}}}}}}",
                complaint,
            )
            for normalization, complaint in (
                ("{fixedRange: {min: 1, max: 1}}", "min must be below max, not 1 and 1"),
                ("{fixedRange: {min: 0, max: .inf}}", "min must be below max, not 0 and inf"),
                ("{fixedRange: {min: 0}}", "fixedRange.max: is required"),
                ("{fixedRange: {min: 0, max: 1}, adaptiveRange: {}}", "exclude each other"),
            )
        ),
    ],
)
def test_mistaken_parameters_are_refused(text: str, complaint: str) -> None:
    mistake, *_ = refused(f"plugins: [{text}]", *BUILT_IN)
    assert complaint in mistake
