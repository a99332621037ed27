"""Whether requests are traced, and how: what the environment says, in OpenTelemetry's words.

Nothing is traced unless the environment names an exporter or an endpoint for it. OpenTelemetry
itself is an extra, and only imported when it is needed.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol, final
from urllib.parse import urlsplit

import anyio
from attrs import frozen

from .observing import Observer

logger = logging.getLogger(__name__)

USUAL_RATIO: Final = 0.1  # of the requests whose client says nothing about it
USUAL_NAME: Final = "llm-d-epp"
"""What the reference system calls itself, and dashboards look for."""
GRPC_PORT: Final = 4317
LAST_WORDS: Final = 3.0  # seconds that a daemon which ends waits for its last spans to leave
SAMPLERS: Final = (
    "parentbased_traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "traceidratio",
    "always_on",
    "always_off",
)


class Exporter(enum.Enum):
    """Where spans go."""

    OTLP_HTTP = "otlp over http/protobuf"
    OTLP_GRPC = "otlp over grpc"
    CONSOLE = "the console"


@final
@frozen
class Settings:
    """How to trace."""

    exporter: Exporter
    sampler: str = SAMPLERS[0]
    ratio: float = USUAL_RATIO
    name: str | None = USUAL_NAME
    """The service's name; None: the environment has one."""


class Tracing(Protocol):
    """Follows conversations, and sends off what it sees."""

    def follow(self, observer: Observer) -> Observer:
        """An observer that follows a conversation, before another one."""
        ...

    def close(self) -> None:
        """Send the last spans. This blocks."""
        ...


def read_settings(environment: Mapping[str, str]) -> Settings | None:
    """How to trace; None for not at all. What makes no sense is said in the log."""
    environment = {name: value.strip() for name, value in environment.items()}
    exporter = _exporter(environment)
    if exporter is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    sampler = environment.get("OTEL_TRACES_SAMPLER") or SAMPLERS[0]
    ratio = _ratio(environment.get("OTEL_TRACES_SAMPLER_ARG", ""))
    if sampler not in SAMPLERS:
        logger.warning("OTEL_TRACES_SAMPLER %r is none of %s", sampler, ", ".join(SAMPLERS))
        sampler, ratio = SAMPLERS[0], USUAL_RATIO
    named = environment.get("OTEL_SERVICE_NAME") or (
        "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    )
    return Settings(exporter, sampler, ratio, None if named else USUAL_NAME)


def _exporter(environment: Mapping[str, str]) -> Exporter | None:
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    endpoint = own or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or ""
    match environment.get("OTEL_TRACES_EXPORTER") or ("otlp" if endpoint else "none"):
        case "none":
            return None
        case "otlp":
            return _protocol(environment, endpoint)
        case "console":
            return Exporter.CONSOLE
        case other:
            text = "OTEL_TRACES_EXPORTER %r is none of otlp, console, none: nothing is traced"
            logger.warning(text, other)
            return None


def _protocol(environment: Mapping[str, str], endpoint: str) -> Exporter:
    """The protocol that was asked for, or else the one that is spoken at the endpoint's port."""
    own = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
    protocol = own or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if not protocol:
        protocol = "grpc" if _port(endpoint) == GRPC_PORT else ""
    return Exporter.OTLP_GRPC if protocol == "grpc" else Exporter.OTLP_HTTP


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").port
    except ValueError:
        return None


def _ratio(text: str) -> float:
    if not text:
        return USUAL_RATIO
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if 0.0 <= ratio <= 1.0:
        return ratio
    logger.warning("OTEL_TRACES_SAMPLER_ARG %r is no ratio from 0 to 1", text)
    return USUAL_RATIO


def start(environment: Mapping[str, str]) -> Tracing | None:
    """Begin to trace, if that is wanted and possible."""
    settings = read_settings(environment)
    if settings is None:
        return None
    try:
        from . import otel

        tracing = otel.start(settings)
    except ImportError as exc:
        logger.warning("nothing is traced: %s is missing (the extra is %s)", *_missing(exc))
        return None
    share = f" of {settings.ratio:g}" if settings.sampler.endswith("traceidratio") else ""
    logger.info("traces go to %s, sampled %s%s", settings.exporter.value, settings.sampler, share)
    return tracing


def _missing(exc: ImportError) -> tuple[str, str]:
    """The package that cannot be imported, and what to install."""
    name = exc.name or "opentelemetry"
    if "grpc" in name:
        return name, "opentelemetry-exporter-otlp-proto-grpc; the port for http/protobuf is 4318"
    return name, "pointsman[otel]"


Follow = Callable[[Observer], Observer]


@asynccontextmanager
async def running(environment: Mapping[str, str], *, wanted: bool) -> AsyncGenerator[Follow | None]:
    """Trace for the length of the block; afterwards send what is left, within limits."""
    tracing = start(environment) if wanted else None
    if tracing is None:
        yield None
        return
    try:
        yield tracing.follow
    finally:
        with anyio.move_on_after(LAST_WORDS, shield=True):
            await anyio.to_thread.run_sync(tracing.close, abandon_on_cancel=True)
