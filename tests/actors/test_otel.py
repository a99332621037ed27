"""Conversations as spans."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pointsman.actors.conversation import (
    Command,
    Event,
    RequestHeaders,
    ResponseBody,
    ResponseHeaders,
    SendTo,
)
from pointsman.actors.otel import OpenTelemetry, Reporting, make_provider, start
from pointsman.actors.otel_spans import Followed
from pointsman.actors.session import Session
from pointsman.actors.tracing import Exporter, Settings

from .scripts import (
    BASE,
    BUFFERED,
    DUPLEX,
    LOAD_ONLY,
    Decisions,
    Desk,
    body,
    headers,
    headers_of,
    opening,
    pieces,
    say,
    wired,
)

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
JOINED = f"00-{TRACE}-{CALLER}-01"
SAMPLED = 1
NOT_SAMPLED = f"00-{TRACE}-{CALLER}-00"
ANSWER: list[Event] = [
    ResponseHeaders(headers({":status": "200", "content-type": "text/event-stream"}), end=False),
    ResponseBody(b'data: {"choices":[]}\n\n', end=False),
    ResponseBody(
        b'data: {"usage": {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 17}}\n\n',
        end=True,
    ),
]


class Tokens(Decisions):
    """Takes an interest in the counts that pass by."""

    tokens = True


@define(eq=False)
class Collected:
    """A desk whose conversations are traced, and what came of that."""

    desk: Desk = field(factory=Desk)
    sampler: str = "parentbased_traceidratio"
    ratio: float = 1.0
    seconds: list[float] = field(factory=lambda: [0.0])
    exporter: InMemorySpanExporter = field(factory=InMemorySpanExporter)
    tracing: OpenTelemetry = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = Settings(Exporter.CONSOLE, self.sampler, self.ratio)
        processor = SimpleSpanProcessor(self.exporter)
        self.tracing = OpenTelemetry(make_provider(settings, processor))

    def session(self) -> Session:
        session = self.desk.session()
        inner = Tokens(self.desk.decisions)
        session.observer = Followed(self.tracing.tracer, inner, lambda: self.seconds[0])
        return session

    def talk(self, *events: Event) -> list[Command]:
        session = self.session()
        commands = say(session, *events)
        session.close()
        return commands

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def parent(self, name: str) -> str | None:
        """The name of the span above."""
        above = self.spans[name].parent
        names = {identity(span): found for found, span in self.spans.items()}
        return None if above is None else names.get(above.span_id)


def identity(span: ReadableSpan) -> int:
    assert span.context is not None
    number: int = span.context.span_id
    return number


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def sent(commands: Sequence[Command]) -> Mapping[str, str]:
    """The headers that the model server gets."""
    (found,) = [command.route.set_headers for command in commands if isinstance(command, SendTo)]
    return found


def test_the_spans_of_a_request_are_one_tree() -> None:
    collected = Collected()
    collected.talk(opening(), *pieces(body(), 100), *ANSWER)
    parents = {name: collected.parent(name) for name in collected.spans}
    assert parents == {
        "gateway.request": None,
        "gateway.request_orchestration": "gateway.request",
        "run_scheduler_profile": "gateway.request_orchestration",
        "filter_endpoints": "run_scheduler_profile",
        "llm_d.epp.scoring": "run_scheduler_profile",
        "llm_d.epp.scorer.queue-scorer": "llm_d.epp.scoring",
        "pick_endpoints": "run_scheduler_profile",
        "gateway.response": "gateway.request",
    }
    assert collected.spans["gateway.request"].kind is SpanKind.SERVER
    assert {span.status.status_code for span in collected.spans.values()} == {StatusCode.UNSET}


def test_the_request_s_span_says_what_was_asked_and_where_it_went() -> None:
    collected = Collected()
    collected.desk.queue(9, 0)
    collected.talk(opening(x_request_id="abc"), *pieces(body(), 100), *ANSWER)
    assert attributes(collected.spans["gateway.request"]) == {
        "gen_ai.request.id": "abc",
        "gen_ai.request.model": "m",
        "url.path": "/v1/completions",
        "pointsman.endpoint": "default/pod-1",
        "pointsman.destination": "10.0.0.2:8000",
        "pointsman.end.cause": "natural",
        "http.response.status_code": 200,
    }


def test_the_response_s_span_says_when_it_began_how_it_ended_and_what_it_cost() -> None:
    collected = Collected()
    session = collected.session()
    say(session, opening(), *pieces(body(), 100), ANSWER[0])
    collected.seconds[0] = 0.25
    say(session, ANSWER[1])
    collected.seconds[0] = 9.0
    say(session, ANSWER[2])
    session.close()
    response = collected.spans["gateway.response"]
    assert attributes(response) == {
        "http.response.status_code": 200,
        "pointsman.time_to_first_byte": 0.25,
        "pointsman.end.cause": "natural",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 10,
    }
    assert [event.name for event in response.events] == ["first_byte"]


def test_a_response_that_is_not_seen_has_no_span_and_the_request_s_lasts_as_long() -> None:
    collected = Collected()
    session = collected.session()
    say(session, opening(modes=BUFFERED), *pieces(body(), 100, last_empty=False))
    assert "gateway.request" not in collected.spans
    session.close()
    assert "gateway.response" not in collected.spans
    assert attributes(collected.spans["gateway.request"])["pointsman.end.cause"] == "natural"


# -- the trace of the client -------------------------------------------------------------------


@pytest.mark.parametrize("modes", [DUPLEX, BUFFERED])
def test_p_20_the_caller_s_trace_is_joined_and_handed_on(modes: Any) -> None:
    collected = Collected(ratio=0.0)
    request = pieces(body(), 1000, last_empty=False)
    commands = collected.talk(opening(modes=modes, traceparent=JOINED), *request)
    span = collected.spans["gateway.request"]
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == CALLER
    assert sent(commands)["traceparent"] == f"00-{TRACE}-{identity(span):016x}-01"


def test_p_20_the_caller_s_state_of_the_trace_goes_along() -> None:
    commands = Collected().talk(
        opening(traceparent=JOINED, tracestate="vendor=1"), *pieces(body(), 100)
    )
    assert sent(commands)["tracestate"] == "vendor=1"


@pytest.mark.parametrize("broken", ["zz", "", "00-0-0-01", JOINED[:-1], f"ff{JOINED[2:]}"])
def test_p_20_a_broken_traceparent_begins_a_new_trace(broken: str) -> None:
    collected = Collected()
    commands = collected.talk(opening(traceparent=broken), *pieces(body(), 100))
    span = collected.spans["gateway.request"]
    assert span.parent is None
    version, _, handed_on, flags = sent(commands)["traceparent"].split("-")
    assert (version, handed_on) == ("00", f"{identity(span):016x}")
    assert int(flags, 16) & SAMPLED


HOSTILE = Collected()


@given(st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80))
def test_p_20_no_header_of_a_client_costs_it_the_answer(
    parent: bytes, state: bytes, request_id: bytes
) -> None:
    HOSTILE.exporter.clear()
    given = {name: value.encode() for name, value in BASE.items()}
    hostile = {"traceparent": parent, "tracestate": state, "x-request-id": request_id}
    event = RequestHeaders(headers_of({**given, **hostile}.items()), False, DUPLEX)
    commands = HOSTILE.talk(event, *pieces(body(), 100))
    assert len(sent(commands)["traceparent"]) == len(JOINED)
    assert all(span.to_json().encode() for span in HOSTILE.spans.values())


def test_bytes_that_are_no_text_do_not_cost_the_batch() -> None:
    collected = Collected()
    given = {name: value.encode() for name, value in BASE.items()}
    raw = RequestHeaders(headers_of({**given, "x-request-id": b"\xff"}.items()), False, DUPLEX)
    collected.talk(raw, *pieces(body(), 100))
    told = attributes(collected.spans["gateway.request"])["gen_ai.request.id"]
    assert told.encode() == rb"\udcff"


def test_a_long_id_is_cut() -> None:
    collected = Collected()
    collected.talk(opening(x_request_id="x" * 10_000), *pieces(body(), 100))
    assert attributes(collected.spans["gateway.request"])["gen_ai.request.id"] == "x" * 256


# -- what is not sampled -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "ratio", "fields"),
    [
        ("parentbased_traceidratio", 0.0, BASE),
        ("always_off", 1.0, {**BASE, "traceparent": JOINED}),
        ("parentbased_traceidratio", 1.0, {**BASE, "traceparent": NOT_SAMPLED}),
    ],
)
def test_what_is_not_sampled_leaves_no_trace_and_the_client_s_header_alone(
    sampler: str, ratio: float, fields: Mapping[str, str]
) -> None:
    collected = Collected(sampler=sampler, ratio=ratio)
    session = collected.session()
    commands = say(session, opening(fields), *pieces(body(), 100), *ANSWER)
    session.close()
    assert session.request is not None
    assert session.request.trace is None
    assert (sent(commands), collected.spans) == ({}, {})
    assert len(collected.desk.decisions) == 1


def test_always_on_asks_no_client() -> None:
    collected = Collected(sampler="always_on", ratio=0.0)
    collected.talk(opening(traceparent=NOT_SAMPLED), *pieces(body(), 100))
    assert "gateway.request" in collected.spans


# -- failures ----------------------------------------------------------------------------------


def test_p_20_a_refusal_marks_both_spans_of_the_gateway() -> None:
    collected = Collected()
    collected.desk.pool()
    collected.talk(opening(), *pieces(body(), 100))
    spans = collected.spans
    for name in ("gateway.request", "gateway.request_orchestration"):
        assert spans[name].status.status_code is StatusCode.ERROR
    said = attributes(spans["gateway.request"])
    assert said["http.response.status_code"] == 503
    assert said["pointsman.dropped_reason"] == "rejected-no-endpoints"
    assert said["pointsman.end.cause"] == "error"


def test_a_body_that_is_none_is_a_failure_without_its_text() -> None:
    collected = Collected()
    collected.talk(opening(), *pieces(b'{"prompt": "SECRETPROMPT", "model":', 100))
    assert set(collected.spans) == {"gateway.request"}
    assert collected.spans["gateway.request"].status.status_code is StatusCode.ERROR
    assert "SECRETPROMPT" not in collected.spans["gateway.request"].to_json()


@pytest.mark.parametrize(("status", "code"), [(200, "UNSET"), (404, "UNSET"), (503, "ERROR")])
def test_a_model_server_s_failure_is_one_of_the_request(status: int, code: str) -> None:
    collected = Collected()
    answer = ResponseHeaders(headers({":status": str(status)}), end=True)
    collected.talk(opening(), *pieces(body(), 100), answer)
    assert collected.spans["gateway.request"].status.status_code is StatusCode[code]


def test_a_failure_of_our_own_is_one_of_the_request() -> None:
    collected = Collected()
    session = collected.session()
    say(session, opening(), *pieces(body(), 100))
    session.close(broken=True)
    assert collected.spans["gateway.request"].status.status_code is StatusCode.ERROR


def test_a_client_that_goes_away_is_a_cause_and_no_failure() -> None:
    collected = Collected()
    collected.talk(opening(), *pieces(body(), 100), *ANSWER[:2])
    for name in ("gateway.request", "gateway.response"):
        assert attributes(collected.spans[name])["pointsman.end.cause"] == "client-disconnect"
    assert collected.spans["gateway.request"].status.status_code is StatusCode.UNSET


def test_a_span_ends_once() -> None:
    collected = Collected()
    session = collected.session()
    say(session, opening(), *pieces(body(), 100), *ANSWER)
    session.close()
    session.close()
    names = [span.name for span in collected.exporter.get_finished_spans()]
    assert names.count("gateway.request") == names.count("gateway.response") == 1


def test_z_03_spans_tell_neither_prompt_nor_secrets() -> None:
    collected = Collected(Desk(wired(LOAD_ONLY)))
    secret = {"authorization": "Bearer SECRETTOKEN", "cookie": "SECRETCOOKIE"}
    answer = ResponseBody(b'data: {"text": "SECRETANSWER"}\n\n', end=True)
    event = opening({**BASE, **secret, ":path": "/v1/completions?key=SECRETKEY"})
    collected.talk(event, *pieces(body(prompt="SECRETPROMPT"), 100), ANSWER[0], answer)
    told = json.dumps([json.loads(span.to_json()) for span in collected.spans.values()])
    assert "gateway.response" in told
    assert "SECRET" not in told


# -- where spans go ----------------------------------------------------------------------------


@define(eq=False)
class Fickle(SpanExporter):
    """Works, fails or raises, as it is told."""

    results: list[SpanExportResult | Exception]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def test_m_06_a_collector_that_fails_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    good, bad = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    refused = OSError(111, "refused")
    results: list[SpanExportResult | Exception] = [good, bad, bad, refused, good, refused, good]
    reporting = Reporting(Fickle(list(results)))
    given = [reporting.export([]) for _ in results]
    assert given == [good, bad, bad, bad, good, bad, good]
    assert [record.getMessage() for record in caplog.records] == [
        "spans are lost until further notice: they were not taken",
        "spans arrive again",
        "spans are lost until further notice: ConnectionRefusedError: [Errno 111] refused",
        "spans arrive again",
    ]


@pytest.mark.parametrize(
    ("environment", "name"), [({}, "llm-d-epp"), ({"OTEL_SERVICE_NAME": "mine"}, "mine")]
)
def test_the_service_has_the_reference_s_name_unless_the_environment_has_one(
    environment: Mapping[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    settings = Settings(Exporter.CONSOLE, name=None if environment else "llm-d-epp")
    provider = make_provider(settings, SimpleSpanProcessor(InMemorySpanExporter()))
    assert provider.resource.attributes["service.name"] == name


def test_spans_go_by_grpc_where_its_exporter_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = Fickle([SpanExportResult.SUCCESS])
    module = SimpleNamespace(OTLPSpanExporter=lambda: exporter)
    name = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"
    monkeypatch.setitem(sys.modules, name, module)
    started = start(Settings(Exporter.OTLP_GRPC, "always_on"))
    started.tracer.start_span("one").end()
    started.close()
    assert exporter.results == []
