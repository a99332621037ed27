"""What the daemon counts and measures, under the reference system's names where it has them.

What every request passes is in objects of its own (`request_figures`, `decision_figures`,
`call_figures`); here is what is rare, and the registry that shows all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import final

from attrs import define
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pointsman.kernel.model import Endpoint

from .call_figures import CallFigures
from .decision_figures import OWN, DecisionFigures
from .observation import Observation
from .request_figures import PREFIX, RequestFigures
from .rewrite_figures import RewriteFigures
from .stream_figures import StreamFigures

__all__ = ["OWN", "PREFIX", "Figures"]


@final
@define(eq=False)
class _Collected(Collector):
    read: Callable[[], Iterable[Metric]]

    def collect(self) -> Iterable[Metric]:
        return self.read()


@final
class Figures:
    """All series, made once."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        quieten: Callable[[], None] = disable_created_metrics
        quieten()  # a series more for each series, and nobody reads them
        self.registry = registry or CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.clock = clock
        self.tokens = True
        """Whether tokens are counted in responses that pass by."""
        self.requests = RequestFigures()
        self.decisions = DecisionFigures()
        self.rewrites = RewriteFigures()
        self.calls = CallFigures()
        self.streams: StreamFigures | None = None
        """Only for whoever asks for it."""
        self.collect(self.requests.families)
        self.collect(self.decisions.families)
        self.collect(self.rewrites.families)
        self.collect(self.calls.families)
        self._make_rest()

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, text, list(labels), registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(name, text, list(labels), registry=self.registry)

    def _make_rest(self) -> None:
        self.poll_errors = self._counter(
            f"{PREFIX}datalayer_poll_errors_total", "Failed scrapes.", ("source_type",)
        )
        self.extract_errors = self._counter(
            f"{PREFIX}datalayer_extract_errors_total",
            "Scrapes in whose text an extractor did not find all that it was asked for.",
            ("source_type", "extractor_type"),
        )
        self.scrapes = self._counter(f"{OWN}scrapes_total", "Scrapes of endpoints that worked.")
        self.stale = self._gauge(
            f"{OWN}stale_endpoints", "Endpoints whose metrics could not be fetched for too long."
        )
        self.reloads = self._counter(
            f"{OWN}config_reload_total", "Reloads of the configuration.", ("result",)
        )
        self.info = self._gauge(f"{OWN}info", "The running version.", ("version",))
        text = "The running build."
        self.build = self._gauge(f"{PREFIX}info", text, ("commit", "build_ref"))

    def watch_streams(self, open_streams: Callable[[], int]) -> None:
        """From now on, count streams and how they end."""
        self.streams = StreamFigures(open_streams)
        self.collect(self.streams.families)

    # -- what happens -------------------------------------------------------------------------

    def observe(self) -> Observation:
        """An observer for a conversation that begins."""
        return Observation(self.requests, self.decisions, self.rewrites, self.tokens, self.clock)

    def forget(self, endpoint: Endpoint) -> None:
        """Remove the series that name an endpoint which is gone."""
        self.decisions.forget(endpoint)

    def collect(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Families that are made when they are looked at."""
        self.registry.register(_Collected(read))

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is looked at."""
        self._gauge(name, text).set_function(read)
