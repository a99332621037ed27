"""What is counted and measured of the calls of plugins."""

from __future__ import annotations

import pytest
from attrs import evolve

from pointsman.actors.call_figures import LABELS
from pointsman.actors.figures import Figures
from pointsman.actors.tallies import SHORT
from pointsman.kernel.calls import PROCESS_RESULTS
from pointsman.kernel.config import read_config
from pointsman.kernel.keys import DataView
from pointsman.kernel.plugin import Role
from pointsman.kernel.testing import decide, endpoints, pool, surroundings
from pointsman.kernel.wiring import Wiring, wire

from .figure_texts import measured, series, value

TIMES = "llm_d_epp_plugin_duration_seconds"
FAILURES = "pointsman_plugin_failures_total"
VIOLATIONS = "llm_d_epp_plugin_data_scope_violations_total"


def labelled(point: str, plugin_type: str, name: str) -> dict[str, str]:
    return dict(zip(LABELS, (point, plugin_type, name), strict=True))


@pytest.fixture
def figures() -> Figures:
    return Figures()


def test_a_call_is_measured_by_where_it_was_and_whose(figures: Figures) -> None:
    first, second = figures.calls.of("queue-scorer", "a"), figures.calls.of("queue-scorer", "b")
    first.took(Role.SCORER, 0.0001)
    first.took(Role.SCORER, 0.0004)
    first.took(Role.FILTER, 0.002)
    second.took(PROCESS_RESULTS, 1.0)
    assert series(figures, f"{TIMES}_count") == [
        labelled("Scorer", "queue-scorer", "a"),
        labelled("Filter", "queue-scorer", "a"),
        labelled("ProcessProfilesResults", "queue-scorer", "b"),
    ]
    assert measured(figures, TIMES) == [(2, 0.0005), (1, 0.002), (1, 1.0)]
    scorer = labelled("Scorer", "queue-scorer", "a")
    buckets = [value(figures, f"{TIMES}_bucket", **scorer, le=str(bound)) for bound in SHORT]
    assert buckets == [1, 1, 2, 2, 2, 2, 2, 2, 2, 2]


def test_nothing_is_shown_of_a_plugin_that_was_never_called(figures: Figures) -> None:
    figures.calls.of("queue-scorer", "a")
    assert [series(figures, name) for name in (f"{TIMES}_count", FAILURES, VIOLATIONS)] == [[]] * 3


def test_failures_and_violations_are_counted(figures: Figures) -> None:
    calls = figures.calls.of("random-picker", "mine")
    calls.failed(Role.PICKER)
    calls.failed(Role.PICKER)
    calls.violated(Role.PICKER, "kv-cache-usage", "read")
    calls.violated(Role.PICKER, "prefix-hit", "read")
    calls.violated(Role.PICKER, "prefix-hit", "write")
    labels = labelled("Picker", "random-picker", "mine")
    assert value(figures, FAILURES, **labels) == 2
    assert value(figures, VIOLATIONS, **labels, access="read") == 2
    assert value(figures, VIOLATIONS, **labels, access="write") == 1


class Quiet:
    type_name = "quiet"

    def on_request(self, data: DataView) -> None: ...


def test_a_reload_goes_on_counting_where_it_was(figures: Figures) -> None:
    around = evolve(surroundings(Quiet), calls_of=figures.calls.of)

    def reloaded(text: str, before: Wiring | None = None) -> Wiring:
        wiring = wire(read_config(f"plugins: {text}", "test"), around, before)
        decide(wiring, pool(endpoints("a")))
        return wiring

    wiring = reloaded("[{type: quiet}]")
    wiring = reloaded("[{type: quiet}, {type: quiet, name: second}]", wiring)
    reloaded("[{type: quiet, name: second}]", wiring)
    counts = {
        name: value(figures, f"{TIMES}_count", **labelled("RequestHeader", "quiet", name))
        for name in ("quiet", "second")
    }
    assert counts == {"quiet": 2, "second": 2}
