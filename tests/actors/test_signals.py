"""Signals that cannot work are said once, and shown while they last."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import anyio
import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.signals import Dead, Signals
from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import FRESHNESS, WAITING_QUEUE_SIZE, Endpoint, Freshness
from pointsman.kernel.testing import endpoints, pool, wired
from pointsman.plugins.core_metrics import CoreMetricsExtractor
from pointsman.plugins.load import QueueScorer
from pointsman.plugins.sources import MetricsSource

FRESH, STALE = Freshness.FRESH, Freshness.STALE
QUEUE = Dead("queue-scorer", "waiting-queue-size")


class Deaf:
    """Says what it misses."""

    type_name: ClassVar = "deaf"
    misses: ClassVar[Any] = {}

    def score(self, data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        return [0.0] * len(given)

    def dead_signals(self) -> Mapping[str, str]:
        if self.misses is None:
            raise RuntimeError("a prompt")
        return dict(self.misses)


CONFIG = "plugins: [{type: queue-scorer}, {type: deaf}]"


class Rig:
    def __init__(self) -> None:
        classes = (QueueScorer, MetricsSource, CoreMetricsExtractor, Deaf)
        self.wiring = Latest(wired(CONFIG, *classes))
        self.pool = endpoints("a", "b")
        self.snapshot: Snapshot = pool(self.pool)
        self.signals = Signals(self.wiring, lambda: self.snapshot)

    def reports(
        self, queue: Sequence[float | None], *fresh: Freshness | None
    ) -> Mapping[Dead, str]:
        self.snapshot = pool(self.pool, {WAITING_QUEUE_SIZE: queue, FRESHNESS: fresh})
        self.signals.look()
        return self.signals.dead


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(Deaf, "misses", {})
    return Rig()


@pytest.mark.parametrize(
    ("queue", "fresh", "dead"),
    [
        ([None, None], [FRESH, FRESH], True),
        ([None, 0.0], [FRESH, FRESH], False),
        ([None, None], [None, None], False),
        ([None, None], [FRESH, None], True),
        ([None, None], [STALE, STALE], False),
        ([None, 3.0], [FRESH, STALE], True),
    ],
)
def test_what_no_reporting_endpoint_reports_is_dead_for_whom_reads_it(
    rig: Rig, queue: Sequence[float | None], fresh: Sequence[Freshness | None], dead: bool
) -> None:
    found = rig.reports(queue, *fresh)
    assert found == ({QUEUE: "no endpoint reports it"} if dead else {})


def test_without_endpoints_nothing_is_dead(rig: Rig) -> None:
    rig.snapshot = pool([], {WAITING_QUEUE_SIZE: [], FRESHNESS: []})
    rig.signals.look()
    assert not rig.signals.dead


def test_a_dead_signal_is_said_once_and_its_return_too(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(3):
        rig.reports([None, None], FRESH, FRESH)
    for _ in range(2):
        rig.reports([1.0, None], FRESH, FRESH)
    assert [record.getMessage() for record in caplog.records] == [
        "plugin queue-scorer: no waiting-queue-size: no endpoint reports it",
        "plugin queue-scorer: waiting-queue-size is there",
    ]


def test_plugins_say_themselves_what_they_miss(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deaf, "misses", {"tokens": "this API has none"})
    rig.signals.look()
    assert rig.signals.dead == {Dead("deaf", "tokens"): "this API has none"}


def test_a_plugin_that_cannot_say_it_is_isolated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deaf, "misses", None)
    found = rig.reports([None, None], FRESH, FRESH)
    assert set(found) == {QUEUE}
    assert rig.wiring.value.installed["deaf"].failures == 1


async def test_it_looks_from_time_to_time(
    rig: Rig, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    nursery.start_soon(rig.signals.run)
    await anyio.sleep(rig.signals.every / 2)
    monkeypatch.setattr(Deaf, "misses", {"tokens": "?"})
    assert not rig.signals.dead
    await anyio.sleep(rig.signals.every)
    assert rig.signals.dead
