"""What the environment says of tracing, in OpenTelemetry's words."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Generator, Mapping

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors import tracing
from pointsman.actors.cli import make_parser
from pointsman.actors.observing import Observer
from pointsman.actors.tracing import Exporter, Settings, read_settings

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
OTLP = {"OTEL_TRACES_EXPORTER": "otlp"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": ""},
        {"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://collector:4318"},
        {"OTEL_TRACES_SAMPLER": "always_on", "OTEL_SERVICE_NAME": "epp"},
        {"OTEL_SDK_DISABLED": "true", **OTLP},
    ],
)
def test_nothing_is_traced_unless_that_is_configured(environment: Mapping[str, str]) -> None:
    assert read_settings(environment) is None


@pytest.mark.parametrize(
    ("environment", "exporter"),
    [
        (OTLP, Exporter.OTLP_HTTP),
        ({"OTEL_TRACES_EXPORTER": "console"}, Exporter.CONSOLE),
        ({ENDPOINT: "http://collector:4318"}, Exporter.OTLP_HTTP),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, Exporter.OTLP_HTTP),
        ({ENDPOINT: "http://collector:4317"}, Exporter.OTLP_GRPC),
        ({ENDPOINT: "collector:4317"}, Exporter.OTLP_GRPC),
        ({ENDPOINT: "http://[::1"}, Exporter.OTLP_HTTP),
        (
            {ENDPOINT: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            Exporter.OTLP_HTTP,
        ),
        ({**OTLP, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, Exporter.OTLP_GRPC),
    ],
)
def test_the_exporter_is_the_one_that_was_named_or_fits_the_endpoint(
    environment: Mapping[str, str], exporter: Exporter
) -> None:
    assert read_settings(environment) == Settings(exporter)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_exporter_that_does_not_exist_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert read_settings({"OTEL_TRACES_EXPORTER": "jaeger"}) is None
    assert said(caplog) == [
        "OTEL_TRACES_EXPORTER 'jaeger' is none of otlp, console, none: nothing is traced"
    ]


@pytest.mark.parametrize(
    ("environment", "sampler", "ratio"),
    [
        ({}, "parentbased_traceidratio", 0.1),
        ({"OTEL_TRACES_SAMPLER_ARG": "0.5"}, "parentbased_traceidratio", 0.5),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, "always_on", 0.1),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, "always_off", 0.1),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": " 1 "},
            "parentbased_traceidratio",
            1.0,
        ),
    ],
)
def test_the_sampler_is_the_reference_s_unless_another_one_is_named(
    environment: Mapping[str, str], sampler: str, ratio: float
) -> None:
    assert read_settings({**OTLP, **environment}) == Settings(Exporter.OTLP_HTTP, sampler, ratio)


@pytest.mark.parametrize("ratio", ["2", "-0.5", "nan", "many"])
def test_what_is_no_ratio_is_said_and_left_out(
    ratio: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read_settings({**OTLP, "OTEL_TRACES_SAMPLER_ARG": ratio})
    assert settings == Settings(Exporter.OTLP_HTTP)
    assert said(caplog) == [f"OTEL_TRACES_SAMPLER_ARG {ratio!r} is no ratio from 0 to 1"]


def test_an_unknown_sampler_is_said_and_a_tenth_is_sampled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = {"OTEL_TRACES_SAMPLER": "jaeger_remote", "OTEL_TRACES_SAMPLER_ARG": "1"}
    assert read_settings({**OTLP, **environment}) == Settings(Exporter.OTLP_HTTP)
    assert said(caplog)[0].startswith("OTEL_TRACES_SAMPLER 'jaeger_remote' is none of")


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_SERVICE_NAME": "mine"},
        {"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=mine"},
    ],
)
def test_a_name_in_the_environment_is_left_to_opentelemetry(
    environment: Mapping[str, str],
) -> None:
    settings = read_settings({**OTLP, **environment})
    assert settings is not None
    assert settings.name is None


@pytest.mark.parametrize(
    ("missing", "environment", "hint"),
    [
        ("opentelemetry.sdk.trace", OTLP, "pointsman[otel]"),
        (
            "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
            {ENDPOINT: "http://collector:4317"},
            "opentelemetry-exporter-otlp-proto-grpc; the port for http/protobuf is 4318",
        ),
    ],
)
def test_a_missing_package_is_said_and_stops_nobody(
    missing: str,
    environment: Mapping[str, str],
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delitem(sys.modules, "pointsman.actors.otel", raising=False)
    monkeypatch.delattr("pointsman.actors.otel", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    assert tracing.start(environment) is None
    (line,) = said(caplog)
    assert line.startswith(f"nothing is traced: {missing} is missing")
    assert hint in line


@pytest.mark.parametrize(("flags", "wanted"), [([], True), (["--tracing=false"], False)])
def test_tracing_can_be_switched_off_by_a_flag(flags: list[str], wanted: bool) -> None:
    assert make_parser()[0].parse_args(["serve", *flags]).tracing is wanted


async def test_what_is_not_wanted_is_not_even_looked_at() -> None:
    async with tracing.running(OTLP, wanted=False) as follow:
        assert follow is None


def test_the_log_says_where_traces_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    started = tracing.start({"OTEL_TRACES_EXPORTER": "console"})
    assert started is not None
    started.close()
    assert said(caplog) == ["traces go to the console, sampled parentbased_traceidratio of 0.1"]


@define(eq=False)
class Stuck:
    """Its collector takes the last spans when it is let."""

    let: threading.Event = field(factory=threading.Event)
    closing: threading.Event = field(factory=threading.Event)

    def follow(self, observer: Observer) -> Observer:
        return observer

    def close(self) -> None:
        self.closing.set()
        self.let.wait(10)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Generator[Stuck]:
    stuck = Stuck()

    def start(environment: Mapping[str, str]) -> Stuck:
        return stuck

    monkeypatch.setattr(tracing, "start", start)
    yield stuck
    stuck.let.set()


async def test_a_daemon_that_ends_sends_its_last_spans(stuck: Stuck) -> None:
    stuck.let.set()
    async with tracing.running(OTLP, wanted=True) as follow:
        assert follow == stuck.follow
        assert not stuck.closing.is_set()
    assert stuck.closing.is_set()


async def test_a_daemon_that_ends_waits_for_no_collector_for_long(
    stuck: Stuck, autojump_clock: MockClock
) -> None:
    async with tracing.running(OTLP, wanted=True):
        began = trio.current_time()
    assert stuck.closing.wait(10)  # its thread does not know of virtual time
    assert trio.current_time() - began == pytest.approx(tracing.LAST_WORDS)
