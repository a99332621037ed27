"""The same figures under the names that earlier releases of the reference system gave them.

They are made from the current ones when they are looked at, so that they cost nothing until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar, final

from attrs import define, frozen
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.tally import Tally

from .decision_figures import ATTEMPT_LABELS, DecisionFigures
from .pool_figures import PoolFigures
from .request_figures import PREFIX, RequestFigures, Series
from .tallies import histograms

OBJECTIVE: Final = "inference_objective_"
POOL: Final = "inference_pool_"
EXTENSION: Final = "inference_extension_"
SCHEDULER: Final = "llm_d_inference_scheduler_"
MODELS: Final = ("model_name", "target_model_name")

K = TypeVar("K", bound=tuple[str, ...])


@final
@frozen
class Twin:
    """A histogram of requests under its old name, which knew neither flow nor priority."""

    name: str
    of: Callable[[Series], Tally]


TWINS: Final = (
    Twin("request_duration_seconds", lambda series: series.duration),
    Twin("request_sizes", lambda series: series.size),
    Twin("response_sizes", lambda series: series.response_size),
    Twin("input_tokens", lambda series: series.input_tokens),
    Twin("output_tokens", lambda series: series.output_tokens),
    Twin("prompt_cached_tokens", lambda series: series.cached_tokens),
    Twin("normalized_time_per_output_token_seconds", lambda series: series.per_token),
)

RENAMED: Final = {
    f"{PREFIX}average_kv_cache_utilization": f"{POOL}average_kv_cache_utilization",
    f"{PREFIX}average_queue_size": f"{POOL}average_queue_size",
    f"{PREFIX}average_running_requests": f"{POOL}average_running_requests",
    f"{PREFIX}ready_endpoints": f"{POOL}ready_pods",
    f"{PREFIX}scheduler_e2e_duration_seconds": f"{EXTENSION}scheduler_e2e_duration_seconds",
    f"{PREFIX}plugin_duration_seconds": f"{EXTENSION}plugin_duration_seconds",
    f"{PREFIX}info": f"{EXTENSION}info",
    f"{PREFIX}prefix_indexer_size": f"{EXTENSION}prefix_indexer_size",
    f"{PREFIX}prefix_indexer_hit_ratio": f"{EXTENSION}prefix_indexer_hit_ratio",
    f"{PREFIX}prefix_indexer_hit_bytes": f"{EXTENSION}prefix_indexer_hit_bytes",
    f"{PREFIX}model_rewrite_decisions": f"{EXTENSION}model_rewrite_decisions",
    f"{PREFIX}datalayer_poll_errors": f"{SCHEDULER}datalayer_poll_errors",
    f"{PREFIX}datalayer_extract_errors": f"{SCHEDULER}datalayer_extract_errors",
    f"{PREFIX}disagg_decision": f"{SCHEDULER}disagg_decision",
    f"{PREFIX}pd_decision": f"{SCHEDULER}pd_decision",
}
"""Families that changed nothing but their name."""


@final
@define(eq=False)
class DeprecatedFigures:
    requests: RequestFigures
    decisions: DecisionFigures
    pool: PoolFigures
    others: tuple[Callable[[], Iterable[Metric]], ...] = ()
    """Where else there are families that were renamed."""

    def families(self) -> Iterator[Metric]:
        yield self._totals()
        yield self._errors()
        yield self._running()
        for twin in TWINS:
            of = self._summed(twin.of).items()
            text = "See the requests' figures."
            yield from histograms(OBJECTIVE + twin.name, text, MODELS, of)
        labels = ["pod_name" if name == "endpoint_name" else name for name in ATTEMPT_LABELS]
        yield self.decisions.attempts(f"{EXTENSION}scheduler_attempts", labels)
        yield self.pool.queues(f"{POOL}per_pod_queue_size", "model_server_pod")
        for read in (self.decisions.families, self.pool.families, *self.others):
            for family in read():
                if family.name in RENAMED:
                    yield renamed(family, RENAMED[family.name])

    def _totals(self) -> Metric:
        text = f"See {PREFIX}request_total."
        family = CounterMetricFamily(f"{OBJECTIVE}request", text, labels=[*MODELS, "priority"])
        found = ((_by_priority(series), series.total) for series in self.requests)
        for labels, total in _added(found).items():
            family.add_metric(labels, total)
        return family

    def _errors(self) -> Metric:
        text = f"See {PREFIX}request_error_total."
        family = CounterMetricFamily(
            f"{OBJECTIVE}request_error", text, labels=[*MODELS, "error_code"]
        )
        found = (
            ((*series.labels[:2], code), count)
            for series in self.requests
            for code, count in series.errors.items()
        )
        for labels, count in _added(found).items():
            family.add_metric(labels, count)
        return family

    def _running(self) -> Metric:
        text = f"See {PREFIX}request_running."
        family = GaugeMetricFamily(f"{OBJECTIVE}running_requests", text, labels=["model_name"])
        found = ((series.labels[:1], series.running) for series in self.requests if series.total)
        for labels, running in _added(found).items():
            family.add_metric(labels, running)
        return family

    def _summed(self, of: Callable[[Series], Tally]) -> dict[tuple[str, str], Tally]:
        sums: dict[tuple[str, str], Tally] = {}
        for series in self.requests:
            tally = of(series)
            if any(tally.counts):
                sums.setdefault(series.labels[:2], Tally(tally.bounds)).absorb(tally)
        return sums


def _by_priority(series: Series) -> tuple[str, str, str]:
    model, target, _, priority = series.labels
    return model, target, priority


def _added(counts: Iterable[tuple[K, int]]) -> dict[K, int]:
    sums: dict[K, int] = {}
    for labels, count in counts:
        sums[labels] = sums.get(labels, 0) + count
    return sums


def renamed(family: Metric, name: str) -> Metric:
    """The same under another name."""
    twin = Metric(name, f"See {family.name}.", family.type)
    twin.samples = [
        sample._replace(name=name + sample.name.removeprefix(family.name))
        for sample in family.samples
    ]
    return twin
