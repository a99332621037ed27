"""The LoRA affinity scorer."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import in_profile

from pointsman.kernel.keys import Column
from pointsman.kernel.model import FRESHNESS, LORA_ADAPTERS, MODEL_NAME, Freshness, LoraAdapters
from pointsman.kernel.testing import Bench, decide, endpoints, make_request, pool, wired
from pointsman.plugins.lora import LoraAffinityScorer

FRESH, STALE = Freshness.FRESH, Freshness.STALE
NAMES: Final = st.frozensets(st.sampled_from(["a", "b", "c", "d"]))


def adapters(running: str = "", waiting: str = "", most: int = 2) -> LoraAdapters:
    """One adapter for each letter."""
    return LoraAdapters(frozenset(running), frozenset(waiting), most)


def score(
    *reports: LoraAdapters | None, model: str = "a", freshness: Column[Freshness] | None = None
) -> list[float | None]:
    bench = Bench(LoraAffinityScorer(), endpoints(*(f"e{n}" for n in range(len(reports)))))
    seen = {} if freshness is None else {FRESHNESS: freshness}
    return bench.score({LORA_ADAPTERS: reports, MODEL_NAME: model, **seen})


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (adapters("ab"), 1.0),
        (adapters("a", "a"), 1.0),
        (adapters("b"), 0.8),
        (adapters("", "a", most=2), 0.8),
        (adapters("b", "a"), 0.6),
        (adapters("bc"), 0.0),
        (adapters("b", "c"), 0.0),
        (adapters(most=0), 0.0),
    ],
)
def test_running_beats_room_beats_waiting(report: LoraAdapters, expected: float) -> None:
    assert score(report) == [expected]


def test_running_and_waiting_adapters_take_room_together() -> None:
    assert score(adapters("b", "c", most=2), adapters("b", "c", most=3)) == [0.0, 0.8]


def test_an_endpoint_that_does_not_report_gets_the_mean() -> None:
    assert score(adapters("a"), None, adapters("bc")) == [1.0, 0.5, 0.0]


def test_a_stale_report_is_not_believed() -> None:
    assert score(adapters("a"), adapters("b"), freshness=[STALE, FRESH]) == [0.0, 0.8]


def test_a_request_without_a_model_prefers_nobody() -> None:
    assert score(adapters("a"), adapters("b"), model="") == [None, None]


def test_the_name_after_rewriting_is_looked_for() -> None:
    wiring = wired(in_profile(LoraAffinityScorer), LoraAffinityScorer)
    request = make_request(model="a")
    request.incoming_model = "b"
    snapshot = pool(endpoints("x", "y"), {LORA_ADAPTERS: [adapters("b"), adapters("a")]})
    assert decide(wiring, snapshot, request).decision.result.target.name == "y"


@given(st.lists(st.builds(LoraAdapters, NAMES, NAMES, st.integers(0, 5)), min_size=1))
def test_every_endpoint_is_scored_for_itself(reports: list[LoraAdapters]) -> None:
    assert score(*reports) == [score(report)[0] for report in reports]
    assert set(score(*reports)) <= {1.0, 0.8, 0.6, 0.0}
