"""What is counted and measured of the calls of plugins."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, final

from attrs import define, field
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.tally import Tally

from .decision_figures import OWN
from .request_figures import PREFIX
from .tallies import SHORT, histograms

LABELS: Final = ("extension_point", "plugin_type", "plugin_name")


@final
@define(eq=False)
class PluginCalls:
    """The calls of one plugin, by extension point."""

    times: defaultdict[str, Tally] = field(
        factory=lambda: defaultdict[str, Tally](lambda: Tally(SHORT)), init=False
    )
    failures: Counter[str] = field(factory=Counter[str], init=False)
    violations: Counter[tuple[str, str]] = field(factory=Counter[tuple[str, str]], init=False)
    """By what was tried, too; not by the key, which the log names."""

    def took(self, point: str, seconds: float) -> None:
        self.times[point].observe(seconds)

    def failed(self, point: str) -> None:
        self.failures[point] += 1

    def violated(self, point: str, key: str, access: str) -> None:
        self.violations[point, access] += 1


@final
@define(eq=False)
class CallFigures:
    """The calls of all plugins; what a reload leaves out stays as it was."""

    _plugins: dict[tuple[str, str], PluginCalls] = field(
        factory=dict[tuple[str, str], PluginCalls], init=False
    )

    def of(self, type_name: str, name: str) -> PluginCalls:
        """Where the calls of the plugin of that type and name are counted."""
        return self._plugins.setdefault((type_name, name), PluginCalls())

    def families(self) -> Iterator[Metric]:
        text = "What a call of a plugin took."
        times = [
            ((point, *plugin), tally)
            for plugin, calls in self._plugins.items()
            for point, tally in calls.times.items()
        ]
        yield from histograms(f"{PREFIX}plugin_duration_seconds", text, LABELS, times)
        text = "Calls of a plugin that raised; its contribution was dropped."
        failures = (
            ((point, *plugin), count)
            for plugin, calls in self._plugins.items()
            for point, count in calls.failures.items()
        )
        yield _counter(f"{OWN}plugin_failures", text, LABELS, failures)
        text = "Reads and writes of data that a plugin did not declare."
        violations = (
            ((point, *plugin, access), count)
            for plugin, calls in self._plugins.items()
            for (point, access), count in calls.violations.items()
        )
        name = f"{PREFIX}plugin_data_scope_violations"
        yield _counter(name, text, (*LABELS, "access"), violations)


def _counter(
    name: str, text: str, labels: Iterable[str], counts: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=list(labels))
    for values, count in counts:
        family.add_metric(values, count)
    return family
