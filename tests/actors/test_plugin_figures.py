"""What /metrics shows of plugins."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import ClassVar

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from pointsman.actors.figures import Figures
from pointsman.actors.listeners import Listeners
from pointsman.actors.plugin_figures import PluginFigures, merged
from pointsman.actors.signals import Dead, Signals
from pointsman.kernel.channel import Latest
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import endpoints, make_request, pool, wired
from pointsman.kernel.topic import Topics

NOTE = StateKey("note", str)


class Counting:
    """Counts its own cats."""

    type_name: ClassVar = "counting"
    broken: ClassVar = False

    def score(self, data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        return [0.0] * len(given)

    def figures(self) -> Iterable[Metric]:
        if self.broken:
            raise RuntimeError("a prompt")
        family = CounterMetricFamily("cats_total", "Cats.", labels=["colour"])
        family.add_metric(["grey"], 3)
        yield family


CONFIG = "plugins: [{type: counting}, {type: counting, name: second}]"


@pytest.fixture
def shown() -> Generator[PluginFigures]:
    topics = Topics()
    wiring = Latest(wired(CONFIG, Counting))
    listeners = Listeners(wiring, topics, Latest(endpoints("a")))
    yield PluginFigures(wiring, listeners, Signals(wiring, lambda: pool(endpoints("a"))))
    topics.close()


def lines(shown: PluginFigures) -> list[str]:
    figures = Figures(CollectorRegistry())
    figures.collect(shown.families)
    text = generate_latest(figures.registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_two_plugins_of_a_kind_are_told_apart(shown: PluginFigures) -> None:
    found = [line for line in lines(shown) if line.startswith("cats")]
    assert found == [
        'cats_total{colour="grey"} 3.0',
        'cats_total{colour="grey",plugin_name="second"} 3.0',
    ]


def test_a_plugin_that_cannot_count_is_isolated(
    shown: PluginFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "broken", True)
    installed = shown.wiring.value.installed
    assert not list(merged(installed.values()))
    assert installed["second"].failures == 1


def test_state_and_dead_signals_are_shown_where_there_are_any(shown: PluginFigures) -> None:
    request = make_request()
    shown.wiring.value.installed["second"].state.write(request, NOTE, "x")
    shown.signals.dead = {Dead("second", "cats"): "none came"}
    found = lines(shown)
    assert 'pointsman_plugin_state_requests{plugin_name="second"} 1.0' in found
    assert 'pointsman_dead_signal{plugin_name="second",signal="cats"} 1.0' in found
    assert not [line for line in found if 'state_requests{plugin_name="counting"' in line]
