"""Figures under their old names: the same values, added up where labels were fewer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.actors.figure_sources import show_deprecated, show_pool, show_version
from pointsman.actors.figures import Figures
from pointsman.kernel.model import FRESHNESS, WAITING_QUEUE_SIZE, Freshness
from pointsman.kernel.testing import endpoints, make_request, pool

from .figure_texts import measured, series, value
from .test_observation import Talk

SNAPSHOT = pool(
    endpoints("a", "b"), {FRESHNESS: [Freshness.FRESH] * 2, WAITING_QUEUE_SIZE: [1.0, 2.0]}
)


def of_plugins() -> Iterator[Metric]:
    yield GaugeMetricFamily("llm_d_epp_prefix_indexer_size", "Blocks.", value=5)
    yield GaugeMetricFamily("llm_d_epp_inflight_requests", "Requests.", value=6)


@pytest.fixture
def figures() -> Figures:
    """Two requests of flows of their own for the same model, and one for another."""
    clock = [0.0]
    figures = Figures(clock=lambda: clock[0])
    show_version(figures, {})
    twins = show_pool(figures, "p", lambda: SNAPSHOT)
    show_deprecated(figures, twins, of_plugins)
    for model, flow, size in (("m", "x", 100), ("m", "y", 200), ("n", "x", 50)):
        headers = {"x-llm-d-inference-fairness-id": flow}
        talk = Talk(figures, make_request(model=model, size=size, headers=headers), clock)
        talk.begin()
        talk.pick()
    figures.poll_errors.labels("metrics-data-source").inc(3)
    figures.calls.of("random-picker", "picker").took("Picker", 0.5)
    return figures


def old(figures: Figures, name: str, /, **labels: str) -> float | None:
    return value(figures, name, **labels)


def test_requests_are_added_up_over_flows(figures: Figures) -> None:
    m = {"model_name": "m", "target_model_name": "m"}
    assert old(figures, "inference_objective_request_total", **m, priority="0") == 2
    assert value(figures, "inference_objective_running_requests", model_name="m") == 2
    assert measured(figures, "inference_objective_request_sizes") == [(2, 300), (1, 50)]
    assert value(figures, "inference_objective_request_sizes_bucket", **m, le="128.0") == 1


def test_errors_have_their_code(figures: Figures) -> None:
    series_of_m = figures.requests.series(make_request(model="m"))
    series_of_m.failed("Internal")
    labels = {"model_name": "m", "target_model_name": "m", "error_code": "Internal"}
    assert old(figures, "inference_objective_request_error_total", **labels) == 1


def test_the_pool_has_pods_again(figures: Figures) -> None:
    assert value(figures, "inference_pool_average_queue_size", name="p") == 1.5
    assert value(figures, "inference_pool_ready_pods", name="p") == 2
    queue = {"name": "p", "model_server_pod": "b"}
    assert old(figures, "inference_pool_per_pod_queue_size", **queue) == 2


def test_attempts_name_the_pod(figures: Figures) -> None:
    attempts = series(figures, "inference_extension_scheduler_attempts_total")
    assert [(one["target_model_name"], one["pod_name"]) for one in attempts] == [
        ("m", "a"),
        ("n", "a"),
    ]


def test_the_rest_changed_nothing_but_the_name(figures: Figures) -> None:
    assert measured(figures, "inference_extension_scheduler_e2e_duration_seconds") == measured(
        figures, "llm_d_epp_scheduler_e2e_duration_seconds"
    )
    assert value(figures, "inference_extension_prefix_indexer_size") == 5
    assert series(figures, "inference_extension_plugin_duration_seconds_count") == [
        {"extension_point": "Picker", "plugin_type": "random-picker", "plugin_name": "picker"}
    ]
    assert measured(figures, "inference_extension_plugin_duration_seconds") == [(1, 0.5)]
    assert len(series(figures, "inference_extension_info")) == 1
    errors = "llm_d_inference_scheduler_datalayer_poll_errors_total"
    assert value(figures, errors, source_type="metrics-data-source") == 3
