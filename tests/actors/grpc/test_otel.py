"""Spans on their way from a conversation over gRPC to a collector over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from attrs import define
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.actors.scripts import Desk
from tests.actors.scripts import body as completion

from pointsman.actors import tracing

from .hosting import body, hosted, opening, response_body, response_headers

pytestmark = pytest.mark.long

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@define(eq=False)
class Collector:
    """Takes spans as collectors do."""

    url: str
    batches: list[Any]

    @property
    def resources(self) -> list[Any]:
        return [one for batch in self.batches for one in batch.resource_spans]

    @property
    def spans(self) -> dict[str, Any]:
        scopes = [scope for one in self.resources for scope in one.scope_spans]
        return {span.name: span for scope in scopes for span in scope.spans}


@pytest.fixture
def collector() -> Generator[Collector]:
    batches: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            sent = self.rfile.read(int(self.headers["content-length"]))
            batches.append(ExportTraceServiceRequest.FromString(sent))
            self.send_response(200)
            self.end_headers()

        def log_request(self, code: object = "-", size: object = "-") -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Collector(f"http://127.0.0.1:{server.server_port}", batches)
        server.shutdown()
        thread.join()


def environment(monkeypatch: pytest.MonkeyPatch, url: str) -> dict[str, str]:
    """OpenTelemetry's exporter looks at the environment itself."""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_TRACES_SAMPLER": "always_on"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.mark.parametrize("plain", [False, True])
def test_p_20_a_conversation_arrives_at_the_collector(
    plain: bool, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tracing.start(environment(monkeypatch, collector.url))
    assert started is not None
    with hosted(Desk(), plain=plain) as host:
        host.server.follow = started.follow
        talk = host.conversation()
        talk.say(opening(traceparent=f"00-{TRACE}-{CALLER}-01"), body(completion()))
        (decision, _) = talk.hear(2)
        talk.say(response_headers(), response_body(b"done", end=True))
        talk.rest()
        host.until_open(0)
    started.close()
    top = collector.spans["gateway.request"]
    assert (top.trace_id.hex(), top.parent_span_id.hex()) == (TRACE, CALLER)
    assert collector.spans["gateway.response"].parent_span_id == top.span_id
    assert decision.request_headers is not None
    assert decision.request_headers.response is not None
    mutation = decision.request_headers.response.header_mutation
    assert mutation is not None
    set_headers = [h.header for h in mutation.set_headers if h.header is not None]
    handed_on = [h.raw_value for h in set_headers if h.key == "traceparent"]
    assert handed_on == [f"00-{TRACE}-{top.span_id.hex()}-01".encode()]
    resource = {a.key: a.value.string_value for a in collector.resources[0].resource.attributes}
    assert resource["service.name"] == "llm-d-epp"
