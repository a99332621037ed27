"""OpenTelemetry: which conversations become spans, and where those go.

This file and `otel_spans` are the only ones that know it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import final

from attrs import Factory, define, field, frozen
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    SpanLimits,
    SpanProcessor,
    TracerProvider,
    sampling,
)
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Tracer

from pointsman import __version__

from .log_errors import summary
from .log_lines import FIELD_LIMIT
from .observing import Observer
from .otel_spans import Followed
from .tracing import Exporter, Settings

logger = logging.getLogger(__name__)


@final
@define(eq=False)
class Reporting(SpanExporter):
    """Sends spans through *exporter*; says in the log when that begins to fail, and when it ends.

    It is used by one thread.
    """

    exporter: SpanExporter
    _failing: bool = field(default=False, init=False)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result, why = self.exporter.export(spans), "they were not taken"
        except Exception as exc:
            result, why = SpanExportResult.FAILURE, summary(exc)
        failed = result is not SpanExportResult.SUCCESS
        if failed and not self._failing:
            logger.warning("spans are lost until further notice: %s", why)
        elif self._failing and not failed:
            logger.info("spans arrive again")
        self._failing = failed
        return result

    def shutdown(self) -> None:
        self.exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self.exporter.force_flush(timeout_millis)


@final
@frozen
class OpenTelemetry:
    """Tracing with a provider of its own, apart from the process's global one."""

    provider: TracerProvider
    tracer: Tracer = field(
        init=False,
        default=Factory(lambda made: made.provider.get_tracer("pointsman", __version__), True),
    )

    def follow(self, observer: Observer) -> Observer:
        return Followed(self.tracer, observer)

    def close(self) -> None:
        self.provider.shutdown()


def start(settings: Settings) -> OpenTelemetry:
    """Raises ImportError when the exporter is not installed."""
    exporter = Reporting(_exporter(settings.exporter))
    # What its parts have to say about each failure, `Reporting` says once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    return OpenTelemetry(make_provider(settings, BatchSpanProcessor(exporter)))


def make_provider(settings: Settings, processor: SpanProcessor) -> TracerProvider:
    named = {} if settings.name is None else {SERVICE_NAME: settings.name}
    provider = TracerProvider(
        sampler=_sampler(settings),
        resource=Resource.create(named),
        shutdown_on_exit=False,  # it may hang; the daemon does it, within limits
        span_limits=SpanLimits(max_attribute_length=FIELD_LIMIT),
    )
    provider.add_span_processor(processor)
    return provider


def _exporter(kind: Exporter) -> SpanExporter:
    match kind:
        case Exporter.CONSOLE:
            return ConsoleSpanExporter()
        case Exporter.OTLP_HTTP:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

            return OTLPSpanExporter()
        case Exporter.OTLP_GRPC:
            return _grpc_exporter()


def _grpc_exporter() -> SpanExporter:
    module = import_module("opentelemetry.exporter.otlp.proto.grpc.trace_exporter")
    exporter: SpanExporter = module.OTLPSpanExporter()
    return exporter


def _sampler(settings: Settings) -> sampling.Sampler:
    own: Mapping[str, sampling.Sampler] = {
        "always_on": sampling.ALWAYS_ON,
        "always_off": sampling.ALWAYS_OFF,
        "traceidratio": sampling.TraceIdRatioBased(settings.ratio),
    }
    name = settings.sampler.removeprefix("parentbased_")
    return own[name] if name == settings.sampler else sampling.ParentBased(own[name])
