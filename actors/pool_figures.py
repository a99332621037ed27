"""What the pool's endpoints report, taken together: made from the snapshot when it is looked at.

Only endpoints with a recent report count, and what no endpoint reports is absent, so that no
gauge stays where it was when its source is gone. What no plugin reads is not scraped, and
therefore not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Final, final

from attrs import define, frozen
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.keys import EndpointKey
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Freshness,
)

from .request_figures import PREFIX


@final
@frozen
class Reported:
    """A value of endpoints, and what it is called in the figures."""

    name: str
    text: str
    key: EndpointKey[float]


REPORTED: Final = (
    Reported("kv_cache_utilization", "the share of the KV cache in use", KV_CACHE_USAGE),
    Reported("queue_size", "the number of waiting requests", WAITING_QUEUE_SIZE),
    Reported("running_requests", "the number of running requests", RUNNING_REQUESTS),
)


@final
@define(eq=False)
class PoolFigures:
    name: str
    """Of the pool, as long as Kubernetes has not told it."""
    snapshot: Callable[[], Snapshot]

    @property
    def pool(self) -> str:
        pool = self.snapshot().pool
        return self.name if pool is None else pool.name

    def families(self) -> Iterator[Metric]:
        ready = GaugeMetricFamily(
            f"{PREFIX}ready_endpoints", "Endpoints that can be chosen.", labels=["name"]
        )
        ready.add_metric([self.pool], len(self.snapshot().endpoints))
        yield ready
        yield from self._averages()
        yield self.queues(f"{PREFIX}per_endpoint_queue_size", "model_server_endpoint")

    def _averages(self) -> Iterator[Metric]:
        for reported in REPORTED:
            text = f"Over the endpoints, the average of {reported.text}."
            average = GaugeMetricFamily(f"{PREFIX}average_{reported.name}", text, labels=["name"])
            text = f"Over the endpoints, the standard deviation of {reported.text}."
            spread = GaugeMetricFamily(f"{PREFIX}std_dev_{reported.name}", text, labels=["name"])
            values = [value for _, value in self._fresh(reported.key)]
            if values:
                mean = sum(values) / len(values)
                average.add_metric([self.pool], mean)
                variance = sum((value - mean) ** 2 for value in values) / len(values)
                spread.add_metric([self.pool], sqrt(variance))
            yield average
            yield spread

    def queues(self, name: str, label: str) -> Metric:
        """The queue of each endpoint, under a name and a label of the caller's."""
        text = "Requests that wait at an endpoint."
        family = GaugeMetricFamily(name, text, labels=["name", label])
        for endpoint, waiting in self._fresh(WAITING_QUEUE_SIZE):
            family.add_metric([self.pool, endpoint.name], waiting)
        return family

    def _fresh(self, key: EndpointKey[float]) -> Iterator[tuple[Endpoint, float]]:
        snapshot = self.snapshot()
        fresh = snapshot.columns.get(FRESHNESS.name, ())
        values = snapshot.columns.get(key.name, ())
        for endpoint, freshness, value in zip(snapshot.endpoints, fresh, values, strict=False):
            if freshness is Freshness.FRESH and value is not None:
                yield endpoint, value
