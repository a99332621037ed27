"""Reads what figures show, as a scrape would."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.actors.figures import Figures


def value(figures: Figures, name: str, /, **labels: str) -> float | None:
    return figures.registry.get_sample_value(name, labels)


def series(figures: Figures, name: str) -> list[dict[str, str]]:
    """The labels of every series of that name."""
    families = text_string_to_metric_families(generate_latest(figures.registry).decode())
    return [s.labels for family in families for s in family.samples if s.name == name]


def measured(figures: Figures, name: str) -> list[tuple[float, float]]:
    """Count and sum of every series of a histogram."""
    return [
        (
            value(figures, f"{name}_count", **labels) or 0.0,
            value(figures, f"{name}_sum", **labels) or 0.0,
        )
        for labels in series(figures, f"{name}_count")
    ]
