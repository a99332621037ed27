"""What the daemon counts and measures, under the reference system's names where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from attrs import define
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.installed import Installed
from pointsman.kernel.model import EndCause, Endpoint, Request
from pointsman.kernel.names import Names
from pointsman.kernel.plugin import Role

PREFIX: Final = "llm_d_epp_"
OWN: Final = "pointsman_"
SHORT: Final = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
CODES: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    412: "PreconditionFailed",
    413: "PayloadTooLarge",
    429: "ResourceExhausted",
    500: "Internal",
    503: "ServiceUnavailable",
}


@final
@define(eq=False)
class _Collected(Collector):
    read: Callable[[], Iterable[Metric]]

    def collect(self) -> Iterable[Metric]:
        return self.read()


@final
class Figures:
    """All series, made once. Hot ones keep their children at hand."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        quieten: Callable[[], None] = disable_created_metrics
        quieten()  # a series more for each series, and nobody reads them
        self.registry = registry or CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._models = Names()
        self._children: dict[tuple[str, str, int], Counter] = {}
        self._make_requests()
        self._make_rest()

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, text, list(labels), registry=self.registry)

    def _gauge(self, name: str, text: str, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(name, text, list(labels), registry=self.registry)

    def _make_requests(self) -> None:
        self.pick_seconds = Histogram(
            f"{PREFIX}scheduler_e2e_duration_seconds",
            "Time from the parsed request to the decision.",
            buckets=SHORT,
            registry=self.registry,
        )
        self.attempts = self._counter(
            f"{PREFIX}scheduler_attempts_total",
            "Decisions, by outcome and chosen endpoint.",
            ("status", "target_model_name", "endpoint_name", "namespace", "port"),
        )
        self.errors = self._counter(
            f"{PREFIX}request_error_total",
            "Requests that the picker refused.",
            ("model_name", "target_model_name", "fairness_id", "priority", "error_code"),
        )
        self.ends = self._counter(
            f"{OWN}conversations_total", "ext_proc conversations, by how they ended.", ("cause",)
        )

    def _make_rest(self) -> None:
        self.plugin_failures = self._counter(
            f"{OWN}plugin_failures_total",
            "Calls of a plugin that raised; its contribution was dropped.",
            ("extension_point", "plugin_type", "plugin_name"),
        )
        self.violations = self._counter(
            f"{PREFIX}plugin_data_scope_violations_total",
            "Reads and writes of data that a plugin did not declare.",
            ("plugin_name", "key", "access"),
        )
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
        self.ready_endpoints = self._gauge(
            f"{PREFIX}ready_endpoints", "Endpoints that can be chosen.", ("name",)
        )
        self.reloads = self._counter(
            f"{OWN}config_reload_total", "Reloads of the configuration.", ("result",)
        )
        self.info = self._gauge(f"{OWN}info", "The running version.", ("version",))

    # -- what happens -------------------------------------------------------------------------

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        """A decision was made."""
        self.pick_seconds.observe(seconds)
        target = outcome.decision.result.target
        model = self._models.label(request.model)
        child = self._children.get((model, target.id, target.port))
        if child is None:
            child = self._children[model, target.id, target.port] = self.attempts.labels(
                "success", model, target.name, target.namespace, str(target.port)
            )
        child.inc()

    def refused(self, request: Request | None, refusal: Refusal) -> None:
        """A request was turned down."""
        model = self._models.label(request.model) if request is not None else ""
        incoming = self._models.label(request.incoming_model) if request is not None else ""
        priority = str(request.priority) if request is not None else "0"
        code = CODES.get(refusal.status, "Unknown")
        self.errors.labels(incoming, model, "", priority, code).inc()
        if refusal.status in (429, 503):
            self.attempts.labels("failure", model, "", "", "").inc()

    def conversation_ended(self, cause: EndCause) -> None:
        self.ends.labels(cause.value).inc()

    def plugin_failed(self, installed: Installed, role: Role) -> None:
        self.plugin_failures.labels(role.value, installed.type_name, installed.name).inc()

    def scope_violated(self, plugin: str, key: str, verb: str) -> None:
        self.violations.labels(plugin, key, verb).inc()

    def forget(self, endpoint: Endpoint) -> None:
        """Remove the series that name an endpoint which is gone."""
        gone = [key for key in self._children if key[1] == endpoint.id]
        for model, name, port in gone:  # its port may have changed meanwhile
            del self._children[model, name, port]
            self.attempts.remove("success", model, endpoint.name, endpoint.namespace, str(port))

    def collect(self, read: Callable[[], Iterable[Metric]]) -> None:
        """Families that are made when they are looked at."""
        self.registry.register(_Collected(read))

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read when it is looked at."""
        self._gauge(name, text).set_function(read)
