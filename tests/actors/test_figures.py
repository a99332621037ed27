"""What the daemon counts. M-12 is a field report whose fault a test keeps away."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from pointsman.actors.figures import Figures

from .figure_texts import series, value


@pytest.fixture
def figures() -> Figures:
    return Figures()


def test_m_12_a_gauge_of_a_function_is_zero_when_there_is_nothing(figures: Figures) -> None:
    members = ["a", "b"]
    figures.watch("pointsman_things", "Things.", lambda: len(members))
    members.clear()
    assert value(figures, "pointsman_things") == 0


def test_families_can_be_made_when_they_are_looked_at(figures: Figures) -> None:
    names = ["a"]

    def families() -> list[GaugeMetricFamily]:
        family = GaugeMetricFamily("pointsman_lengths", "Lengths.", labels=["name"])
        for name in names:
            family.add_metric([name], len(name))
        return [family]

    figures.collect(families)
    assert series(figures, "pointsman_lengths") == [{"name": "a"}]
    names.append("bb")
    assert value(figures, "pointsman_lengths", name="bb") == 2


def test_the_process_describes_itself(figures: Figures) -> None:
    text = generate_latest(figures.registry).decode()
    assert "process_cpu_seconds_total" in text
    assert "python_gc_collections_total" in text
    assert "_created" not in text


def test_a_registry_may_be_shared() -> None:
    registry = CollectorRegistry()
    assert Figures(registry).registry is registry


def test_streams_are_counted_only_for_whoever_asks_for_it(figures: Figures) -> None:
    assert figures.streams is None
    assert b"extproc_streams" not in generate_latest(figures.registry)
    figures.watch_streams(lambda: 7)
    assert figures.streams is not None
    figures.streams.ended("OK", 0.5)
    figures.streams.ended("OK", 0.5)
    figures.streams.ended("Canceled", 1.0)
    assert value(figures, "llm_d_epp_extproc_streams_inflight") == 7
    assert value(figures, "llm_d_epp_extproc_streams_total", code="OK") == 2
    assert value(figures, "llm_d_epp_extproc_streams_total", code="Canceled") == 1
    assert value(figures, "llm_d_epp_extproc_stream_duration_seconds_sum") == 2
