"""Plugin types of the reference that do not exist here, and what they would need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KV_EVENTS: Final = "it reads the KV events of model servers; use approx-prefix-cache-producer"
ENCODER_CACHE: Final = "it tracks the caches of encoders by KV events"
LATENCY: Final = "latencies are not predicted"
QUEUES: Final = "requests are not queued, so there is nothing to order or to limit"
MULTICLUSTER: Final = "pools of other clusters are not endpoints"
NOTIFICATIONS: Final = "plugins hear of endpoints by the events pod-added and pod-deleted"
EXPORTERS: Final = "exporters beside a model server are not scraped"
NOT_YET: Final = "its part of the catalogue has not been built"

ABSENT: Final[Mapping[str, str]] = {
    "precise-prefix-cache-producer": KV_EVENTS,
    "precise-prefix-cache-scorer": KV_EVENTS,
    "burst-prefix-cache-producer": NOT_YET,
    "p2p-source-producer": NOT_YET,
    "mm-embeddings-cache-producer": ENCODER_CACHE,
    "mm-embeddings-cache-scorer": ENCODER_CACHE,
    "predicted-latency-producer": LATENCY,
    "latency-scorer": LATENCY,
    "latency-slo-admitter": LATENCY,
    "slo-headroom-tier-filter": LATENCY,
    "disaggregatedset-rollout-screener": NOT_YET,
    "agent-identity": NOT_YET,
    "request-attribute-reporter": NOT_YET,
    "global-strict-fairness-policy": QUEUES,
    "round-robin-fairness-policy": QUEUES,
    "program-aware-fairness": QUEUES,
    "fcfs-ordering-policy": QUEUES,
    "edf-ordering-policy": QUEUES,
    "slo-deadline-ordering-policy": QUEUES,
    "static-usage-limit-policy": QUEUES,
    "priority-holdback-policy": QUEUES,
    "soft-reflective-ceiling-policy": QUEUES,
    "sheddable-eviction-filter": QUEUES,
    "priority-then-time-eviction-order-policy": QUEUES,
    "dcgm-data-source": EXPORTERS,
    "dcgm-extractor": EXPORTERS,
    "endpoint-notification-source": NOTIFICATIONS,
    "k8s-notification-source": NOTIFICATIONS,
    "multicluster-file-discovery": MULTICLUSTER,
    "multicluster-metrics-data-source": MULTICLUSTER,
    "multicluster-metrics-extractor": MULTICLUSTER,
    "multicluster-queue-scorer": MULTICLUSTER,
    "multicluster-kv-cache-utilization-scorer": MULTICLUSTER,
    "multicluster-prefix-cache-scorer": MULTICLUSTER,
    "multicluster-approx-prefix-cache-producer": MULTICLUSTER,
    "multicluster-session-affinity-filter": MULTICLUSTER,
}
"""Configurations that name one of these are refused, and told why."""
