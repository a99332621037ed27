"""What /metrics shows of plugins: read when it is looked at, for they come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from attrs import define
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from pointsman.kernel.channel import Latest
from pointsman.kernel.installed import Installed
from pointsman.kernel.plugin import Role
from pointsman.kernel.wiring import Wiring

from .figures import OWN
from .listeners import Listeners
from .signals import Signals


@final
@define(eq=False)
class PluginFigures:
    wiring: Latest[Wiring]
    listeners: Listeners
    signals: Signals

    def families(self) -> Iterator[Metric]:
        yield self._states()
        yield self._dropped()
        yield self._dead_signals()
        yield from merged(self.wiring.value.installed.values())

    def _states(self) -> Metric:
        text = "Requests for which a plugin keeps state."
        family = GaugeMetricFamily(f"{OWN}plugin_state_requests", text, labels=["plugin_name"])
        for name, installed in self.wiring.value.installed.items():
            if len(installed.state):
                family.add_metric([name], len(installed.state))
        return family

    def _dropped(self) -> Metric:
        text = "Events that a plugin did not hear of, because it did not keep up."
        family = GaugeMetricFamily(f"{OWN}dropped_events", text, labels=["event", "plugin_name"])
        for labels, count in self.listeners.dropped.items():
            family.add_metric(labels, count)
        return family

    def _dead_signals(self) -> Metric:
        text = "1 for what a plugin should see and cannot."
        family = GaugeMetricFamily(f"{OWN}dead_signal", text, labels=["plugin_name", "signal"])
        for dead in self.signals.dead:
            family.add_metric([dead.plugin, dead.signal], 1)
        return family


def merged(plugins: Iterable[Installed]) -> Iterator[Metric]:
    """The plugins' own families; where two have the same one, its series say whose they are."""
    families: dict[str, Metric] = {}
    owners: dict[str, Installed] = {}
    for installed in plugins:
        for family in _own(installed):
            known = families.setdefault(family.name, family)
            if owners.setdefault(family.name, installed) is not installed:
                for sample in family.samples:
                    labels = {**sample.labels, "plugin_name": installed.name}
                    known.add_sample(sample.name, labels, sample.value)
    yield from families.values()


def _own(installed: Installed) -> Iterable[Metric]:
    figures = getattr(installed.plugin, "figures", None)
    if figures is None:
        return ()
    try:
        return list(figures())
    except Exception as exc:
        installed.failed(Role.REPORTER, exc)
        return ()
