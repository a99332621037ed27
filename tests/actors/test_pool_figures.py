"""The pool in figures. M-12 and M-13 are field reports whose fault a test keeps away."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from pointsman.actors.figure_sources import show_pool
from pointsman.actors.figures import Figures
from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Freshness,
)
from pointsman.kernel.pool import ModelRewrite, Pool, RewriteRule, Rewrites, RewriteTarget
from pointsman.kernel.testing import endpoints, make_request, pool

from .figure_texts import series, value

PREFIX = "llm_d_epp_"
FRESH, STALE = Freshness.FRESH, Freshness.STALE
EMPTY = Snapshot(1, (), {})


class Shown:
    """Figures of a pool whose snapshot the test sets."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.figures = Figures()
        show_pool(self.figures, "p", lambda: self.snapshot)

    def value(self, name: str, /, **labels: str) -> float | None:
        return value(self.figures, PREFIX + name, **(labels or {"name": "p"}))


def of(*freshness: Freshness | None, **columns: list[float | None]) -> Snapshot:
    keys: dict[str, Any] = {
        "waiting": WAITING_QUEUE_SIZE,
        "running": RUNNING_REQUESTS,
        "cache": KV_CACHE_USAGE,
    }
    named = {keys[name]: values for name, values in columns.items()}
    names = [f"e{number}" for number in range(len(freshness))]
    return pool(endpoints(*names), {FRESHNESS: freshness, **named})


def test_m_13_averages_are_no_whole_numbers() -> None:
    shown = Shown(of(FRESH, FRESH, waiting=[1, 2], running=[4, 4], cache=[0.25, 0.75]))
    assert shown.value("average_queue_size") == 1.5
    assert shown.value("std_dev_queue_size") == 0.5
    assert shown.value("average_running_requests") == 4
    assert shown.value("std_dev_running_requests") == 0
    assert shown.value("average_kv_cache_utilization") == 0.5
    assert shown.value("std_dev_kv_cache_utilization") == 0.25
    assert shown.value("ready_endpoints") == 2


def test_only_endpoints_with_a_recent_report_count() -> None:
    shown = Shown(of(FRESH, STALE, None, FRESH, waiting=[1, 100, 100, 3]))
    assert shown.value("average_queue_size") == 2
    assert shown.value("ready_endpoints") == 4
    queues = series(shown.figures, f"{PREFIX}per_endpoint_queue_size")
    assert [labels["model_server_endpoint"] for labels in queues] == ["e0", "e3"]


def test_an_endpoint_that_does_not_report_a_value_does_not_count_as_nothing() -> None:
    shown = Shown(of(FRESH, FRESH, waiting=[None, 3]))
    assert shown.value("average_queue_size") == 3


def test_m_12_averages_are_absent_when_no_report_is_recent() -> None:
    shown = Shown(of(FRESH, waiting=[3]))
    assert shown.value("average_queue_size") == 3
    shown.snapshot = of(STALE, waiting=[3])
    assert shown.value("average_queue_size") is None
    assert shown.value("std_dev_queue_size") is None
    assert shown.value("ready_endpoints") == 1


def test_m_12_pods_that_are_gone_leave_a_zero_and_no_names() -> None:
    shown = Shown(of(FRESH, FRESH, waiting=[1, 2]))
    assert len(series(shown.figures, f"{PREFIX}per_endpoint_queue_size")) == 2
    shown.snapshot = EMPTY
    assert shown.value("ready_endpoints") == 0
    assert series(shown.figures, f"{PREFIX}per_endpoint_queue_size") == []


def test_what_no_plugin_reads_is_absent() -> None:
    shown = Shown(of(FRESH, waiting=[1]))
    assert shown.value("average_kv_cache_utilization") is None


def test_kubernetes_knows_the_name_of_the_pool_better() -> None:
    shown = Shown(EMPTY)
    assert shown.value("ready_endpoints") == 0
    shown.snapshot = evolve(EMPTY, pool=Pool(namespace="default", name="other"))
    assert shown.value("ready_endpoints") is None
    assert shown.value("ready_endpoints", name="other") == 0


def test_z_01_models_of_rewrites_keep_their_names_after_a_flood() -> None:
    shown = Shown(EMPTY)
    requests = shown.figures.requests
    for number in range(1100):
        requests.series(make_request(model=f"m{number}"))
    rule = RewriteRule(models=frozenset({"alias"}), targets=(RewriteTarget("served"),))
    rewrites = Rewrites.of([ModelRewrite(name="r", created="", rules=(rule,))])
    shown.snapshot = evolve(EMPTY, rewrites=rewrites)
    request = make_request(model="served")
    request.incoming_model = "alias"
    assert requests.series(request).labels[:2] == ("alias", "served")
