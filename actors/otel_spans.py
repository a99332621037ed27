"""Spans for the conversations that are sampled."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Final, final

from attrs import define, field, frozen
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Headers, Request, Usage
from pointsman.kernel.tracing import Attributes, Value

from .conversation import Modes
from .log_errors import summary
from .observing import Ending, Observer
from .relaying import Relay

OWN: Final = "pointsman."
"""Before the names of attributes that neither OpenTelemetry nor the reference system has."""
PROPAGATOR: Final = TraceContextTextMapPropagator()


@final
class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        value = carrier.get(key)
        return None if value is None else [value]

    def keys(self, carrier: Headers) -> list[str]:
        return list(carrier)


_GETTER: Final = _HeaderGetter()


@final
@frozen
class _Step:
    span: Span

    def note(self, attributes: Attributes) -> None:
        self.span.set_attributes(_clean(attributes))


@final
@define(eq=False)
class SpanTrace:
    """A kernel's Trace, as spans below *root*."""

    tracer: Tracer
    root: Span
    _taken: list[Span] = field(factory=list[Span], init=False)

    @contextmanager
    def step(self, name: str, attributes: Attributes) -> Generator[_Step, None, None]:
        above = self._taken[-1] if self._taken else self.root
        span = self.tracer.start_span(name, _within(above), attributes=_clean(attributes))
        self._taken.append(span)
        try:
            yield _Step(span)
        except Exception as exc:
            span.set_status(StatusCode.ERROR, summary(exc))
            raise
        finally:
            self._taken.pop()
            span.end()

    def headers(self) -> Mapping[str, str]:
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier, _within(self.root))
        return carrier


@final
class Followed(Relay):
    """Makes a span of a conversation, if it is sampled, with one of the response in it."""

    def __init__(
        self, tracer: Tracer, inner: Observer, clock: Callable[[], float] = perf_counter
    ) -> None:
        super().__init__(inner)
        self._tracer = tracer
        self._clock = clock
        self._began = 0.0
        self._span: Span | None = None
        self._response: Span | None = None
        self._first_came = False

    def began(self, request: Request, modes: Modes) -> None:
        parent = PROPAGATOR.extract(request.headers, Context(), _GETTER)
        span = self._tracer.start_span("gateway.request", parent, SpanKind.SERVER)
        if span.is_recording():
            self._began = self._clock()
            self._span = span
            request.trace = SpanTrace(self._tracer, span)
            asked = {
                "gen_ai.request.id": request.headers.get("x-request-id") or "",
                "url.path": request.path,
            }
            span.set_attributes(_clean(asked))
        super().began(request, modes)

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        super().picked(request, outcome, seconds)
        if self._span is None:
            return
        chosen = {
            "gen_ai.request.model": request.incoming_model or request.model,
            f"{OWN}endpoint": outcome.decision.result.target.id,
            f"{OWN}destination": outcome.decision.destination,
        }
        self._span.set_attributes(_clean(chosen))

    def response_began(self, headers: Headers) -> None:
        super().response_began(headers)
        if self._span is not None and self._response is None:
            self._response = self._tracer.start_span("gateway.response", _within(self._span))

    def chunk_came(self, data: bytes) -> None:
        super().chunk_came(data)
        if self._response is not None and data and not self._first_came:
            self._first_came = True
            seconds = self._clock() - self._began
            self._response.set_attribute(f"{OWN}time_to_first_byte", round(seconds, 6))
            self._response.add_event("first_byte")

    def ended(self, ending: Ending) -> None:
        super().ended(ending)
        cause, refusal, status = ending.cause, ending.refusal, ending.status
        span, response = self._span, self._response
        self._span = self._response = None
        if span is None:
            return
        span.set_attributes(_end(cause, refusal, status))
        if refusal is not None:
            span.set_status(StatusCode.ERROR, summary(refusal))
        elif cause is EndCause.ERROR or (status or 0) >= 500:
            span.set_status(StatusCode.ERROR)
        if response is not None:
            response.set_attributes(_response_end(cause, status, ending.usage))
            response.end()
        span.end()


def _end(cause: EndCause, refusal: Refusal | None, status: int | None) -> Attributes:
    attributes: dict[str, Value] = {f"{OWN}end.cause": cause.value}
    answered = refusal.status if refusal is not None else status
    if answered is not None:
        attributes["http.response.status_code"] = answered
    if refusal is not None and refusal.reason:
        attributes[f"{OWN}dropped_reason"] = refusal.reason
    return attributes


def _response_end(cause: EndCause, status: int | None, usage: Usage | None) -> Attributes:
    counts: dict[str, int | None] = {"http.response.status_code": status}
    if usage is not None:
        counts["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        counts["gen_ai.usage.output_tokens"] = usage.completion_tokens
        counts["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    known: dict[str, Value] = {name: n for name, n in counts.items() if n is not None}
    return {**known, f"{OWN}end.cause": cause.value}


def _within(span: Span) -> Context:
    return set_span_in_context(span, Context())


def _clean(attributes: Attributes) -> Attributes:
    """Bytes that are no UTF-8 would cost the whole batch in which they travel."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else value
        for name, value in attributes.items()
    }
