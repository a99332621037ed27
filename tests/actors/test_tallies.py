"""Histograms, against those of the client library."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pointsman.actors import tallies
from pointsman.actors.tallies import SETS, Tallies, histogram, histograms, number
from pointsman.kernel.tally import Bounds, Tally

LABELS = ("model", "a", "z", "le_")


class Shown(Collector):
    def __init__(self, family: Metric) -> None:
        self.family = family

    def collect(self) -> Sequence[Metric]:
        return [self.family]


def ours(bounds: Bounds, values: Sequence[str], amounts: Sequence[float]) -> Tallies:
    tally = Tally(bounds)
    for amount in amounts:
        tally.observe(amount)
    return Tallies("h", "Text.", LABELS[: len(values)], [(values, tally)])


def theirs(bounds: Bounds, values: Sequence[str], amounts: Sequence[float]) -> str:
    registry = CollectorRegistry()
    made = Histogram("h", "Text.", LABELS[: len(values)], registry=registry, buckets=bounds)
    known = made.labels(*values) if values else made
    for amount in amounts:
        known.observe(amount)
    return lines(registry)


def lines(registry: CollectorRegistry) -> str:
    text = generate_latest(registry).decode()
    return "".join(
        line for line in text.splitlines(keepends=True) if line[0] != "#" and "_created" not in line
    )


amounts = st.one_of(st.floats(0, 1e9), st.sampled_from([b for bs in SETS.values() for b in bs]))
texts = st.text(st.characters(codec="utf-8"))


@given(
    bounds=st.sampled_from([*SETS.values()]),
    values=st.lists(texts.filter(lambda text: text.splitlines() in ([], [text])), max_size=4),
    some=st.lists(amounts, min_size=1),
)
def test_a_tally_shows_what_a_histogram_of_the_library_would(
    bounds: Bounds, values: list[str], some: list[float]
) -> None:
    family = ours(bounds, values, some)
    registry = CollectorRegistry()
    registry.register(Shown(family))
    assert family.lines() == lines(registry) == theirs(bounds, values, some)


@given(texts)
def test_any_name_can_be_a_label(name: str) -> None:
    family = ours(tallies.SHORT, [name], [1.0])
    registry = CollectorRegistry()
    registry.register(Shown(family))
    assert generate_latest(registry).decode().endswith(family.lines())


@given(st.one_of(st.floats(0, allow_infinity=False), st.integers(0, 2**53)))
def test_numbers_are_written_as_the_library_does(amount: float) -> None:
    registry = CollectorRegistry()
    registry.register(Shown(GaugeMetricFamily("g", "Text.", value=amount)))
    assert lines(registry) == f"g {number(amount)}\n"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0.0"), (0.00205, "0.00205"), (1_048_576, "1.048576e+06"), (1_000_000, "1e+06")],
)
def test_how_numbers_are_written(amount: float, text: str) -> None:
    assert number(amount) == text


@given(st.lists(amounts), st.lists(amounts))
def test_tallies_add_up(some: list[float], more: list[float]) -> None:
    one, other, both = (Tally(tallies.LONG) for _ in range(3))
    for value in some:
        one.observe(value)
    for value in more:
        other.observe(value)
    for value in some + more:
        both.observe(value)
    one.absorb(other)
    assert (one.counts, one.count) == (both.counts, len(some + more))


def test_what_was_never_observed_is_absent() -> None:
    family = histogram("h", "Text.", Tally(tallies.SHORT))
    assert family.samples == []
    assert family.lines() == ""


def test_a_large_family_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "PART", 2)
    few = [((name,), Tally(tallies.SHORT)) for name in "abcde"]
    for _, tally in few:
        tally.observe(1)
    parts = [[values for values, _ in p.tallies] for p in histograms("h", "Text.", ("n",), few)]
    assert parts == [[("a",), ("b",)], [("c",), ("d",)], [("e",)]]


def test_an_empty_family_is_one_part() -> None:
    assert len([*histograms("h", "Text.", (), [])]) == 1


def test_all_bounds_rise() -> None:
    assert all(list(bounds) == sorted(set(bounds)) for bounds in SETS.values())
