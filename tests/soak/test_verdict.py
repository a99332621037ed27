from __future__ import annotations

import json

import pytest
from attrs import evolve

from . import verdict
from .__main__ import main
from .soaking import Soak
from .verdict import Finding, Sample

pytestmark = pytest.mark.long

METRICS = """\
# TYPE pointsman_open_streams gauge
pointsman_open_streams {streams}
# TYPE llm_d_epp_inflight_requests gauge
llm_d_epp_inflight_requests{{endpoint_name="a"}} 1
llm_d_epp_inflight_requests{{endpoint_name="b"}} {requests}
# TYPE pointsman_plugin_failures_total counter
pointsman_plugin_failures_total{{plugin_name="p"}} {failures}
"""


def samples(first: float, last: float, seconds: int = 100) -> list[Sample]:
    """Memory that grows at half-time."""
    return [Sample(at, first if at <= seconds / 2 else last, 500) for at in range(seconds)]


def line(level: str, text: str, **more: str) -> str:
    return json.dumps({"level": level, "msg": text, **more}) + "\n"


@pytest.mark.parametrize(("last", "well"), [(90.0, True), (104.9, True), (105.1, False)])
def test_memory_may_grow_by_a_twentieth(last: float, well: bool) -> None:
    assert verdict.memory(samples(100.0, last), 100.0).well is well


def test_a_moment_of_large_bodies_is_not_taken_for_growth() -> None:
    measured = samples(100.0, 100.0)
    measured[97] = evolve(measured[97], resident=300.0)
    assert verdict.memory(measured, 100.0).well


def test_without_samples_nothing_is_known_of_the_memory() -> None:
    assert not verdict.memory(samples(100.0, 100.0)[40:], 100.0).well


@pytest.mark.parametrize(("most", "well"), [(0.0, True), (79.9, True), (80.1, False)])
def test_a_reader_may_never_grow_large(most: float, well: bool) -> None:
    measured = samples(100.0, 100.0)
    measured[50] = evolve(measured[50], reader=most)
    assert verdict.readers(measured).well is well


def test_whatever_is_left_is_named() -> None:
    found = verdict.totals(METRICS.format(streams=2, requests=3, failures=0))
    assert verdict.unfinished(found) == "2 open streams, 4 requests in flight"


@pytest.mark.parametrize(("failures", "well"), [(0, True), (1, False)])
def test_a_failed_plugin_is_found(failures: int, well: bool) -> None:
    page = METRICS.format(streams=0, requests=-1, failures=failures)
    findings = {each.name: each.well for each in verdict.counters(verdict.totals(page))}
    assert findings == {"at rest": True, "plugin failures": well, "undeclared data": True}


@pytest.mark.parametrize(
    ("said", "well"),
    [
        (line("warn", "scrapes fail"), True),
        (line("error", "the configuration stays as it was:\nline 1"), True),
        (line("error", "a request failed inside the picker"), False),
        (line("fatal", "the daemon ends"), False),
        (line("warn", "crashed", stacktrace="..."), False),
        ("Traceback (most recent call last):\n", False),
    ],
)
def test_errors_that_nobody_asked_for_are_found_in_the_log(said: str, well: bool) -> None:
    assert verdict.log(line("info", "ready") + said).well is well


@pytest.mark.parametrize(("well", "status"), [(True, 0), (False, 1)])
def test_the_exit_status_says_whether_all_is_well(
    well: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(soak: Soak) -> list[Finding]:
        return [Finding("log", True, ""), Finding("memory", well, f"{soak.streams}")]

    monkeypatch.setattr(Soak, "run", run)
    assert main(["--seconds", "1", "--streams", "3", "--seed", "1"]) == status
