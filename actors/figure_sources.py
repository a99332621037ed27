"""Joins the figures with what they are read from, once everything is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import final

from attrs import define, field
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman import __version__
from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.pool import NO_REWRITES, Rewrites

from .build import commit
from .deprecated_figures import DeprecatedFigures
from .figures import OWN, Figures
from .pool_figures import PoolFigures


@final
@define(eq=False)
class NamedModels:
    """The models that rewrites name, when there are other rewrites than before."""

    snapshot: Callable[[], Snapshot]
    _told: Rewrites = field(default=NO_REWRITES, init=False)

    def __call__(self) -> Iterable[str]:
        rewrites = self.snapshot().rewrites
        if rewrites is self._told:
            return ()
        self._told = rewrites
        targets = (target.model for rule in rewrites.rules for target in rule.targets)
        return {*targets, *(model for rule in rewrites.rules for model in rule.models)}


def show_version(figures: Figures, environment: Mapping[str, str]) -> None:
    figures.info.labels(__version__).set(1)
    figures.build.labels(commit(environment), __version__).set(1)


def show_pool(figures: Figures, name: str, snapshot: Callable[[], Snapshot]) -> PoolFigures:
    """Show what the pool reports; its *name* is the one until Kubernetes tells it."""
    figures.requests.pinned = NamedModels(snapshot)
    figures.rewrites.current = lambda: snapshot().rewrites
    pool = PoolFigures(name, snapshot)
    figures.collect(pool.families)
    return pool


def show_watches(figures: Figures, ages: Callable[[], Mapping[str, float]]) -> None:
    def families() -> Iterator[Metric]:
        text = "Seconds since the API server last told something, by kind of object."
        family = GaugeMetricFamily(f"{OWN}kube_watch_age_seconds", text, labels=["kind"])
        for kind, age in ages().items():
            family.add_metric([kind], age)
        yield family

    figures.collect(families)


def show_deprecated(
    figures: Figures, pool: PoolFigures, plugins: Callable[[], Iterable[Metric]]
) -> None:
    """Show the figures also under their old names."""
    counters = (figures.poll_errors, figures.extract_errors, figures.build)
    others = (
        *(counter.collect for counter in counters),
        figures.rewrites.families,
        figures.calls.families,
        plugins,
    )
    twins = DeprecatedFigures(figures.requests, figures.decisions, pool, others)
    figures.collect(twins.families)
