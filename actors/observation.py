"""One conversation as the figures see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from attrs import define, field

from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import Headers, Request, Usage
from pointsman.kernel.tally import Tally

from .conversation import Modes
from .decision_figures import DecisionFigures
from .observing import Ending
from .request_figures import RequestFigures, Series
from .rewrite_figures import RewriteFigures

EVENT_STREAM: Final = "text/event-stream"
MODEL_SERVER_ERROR: Final = "ModelServerError"
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
class _Response:
    """What a response that passes by comes to."""

    began: float
    streaming: bool
    size: int = field(default=0, init=False)
    first: float | None = field(default=None, init=False)
    """When its first piece came."""
    last: float = field(default=0.0, init=False)
    handled: float = field(default=0.0, init=False)
    """Seconds spent on its pieces."""


@final
@define(eq=False)
class Observation:
    """An Observer, and what it has to remember."""

    requests: RequestFigures
    decisions: DecisionFigures
    rewrites: RewriteFigures
    tokens: bool
    clock: Callable[[], float]
    _request: Request | None = field(default=None, init=False)
    _series: Series | None = field(default=None, init=False)
    """Where the request is counted as running."""
    _began: float = field(default=0.0, init=False)
    _response: _Response | None = field(default=None, init=False)

    def began(self, request: Request, modes: Modes) -> None:
        self._request = request
        self._began = self.clock()
        self.decisions.modes[modes.request][modes.response] += 1

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        series = self._series = self.requests.series(request)
        series.total += 1
        series.running += 1
        series.size.observe(request.size)
        self.decisions.picked(series.labels[1], outcome, seconds)
        self.requests.request_phase.observe(self.clock() - self._began)
        self.rewrites.decided(request, series.labels)

    # -- the response, where it passes by -----------------------------------------------------

    def response_began(self, headers: Headers) -> None:
        kind = headers.get("content-type") or ""
        self._response = _Response(self.clock(), kind.lower().startswith(EVENT_STREAM))

    def response_opaque(self, encoding: str) -> None:
        self.decisions.opaque(encoding)

    def chunk_came(self, data: bytes) -> None:
        response, series = self._response, self._series
        if response is None or series is None:
            return
        now = self.clock()
        if data:
            response.size += len(data)
            if response.first is None:
                response.first = now
                _first_chunks(series, response).observe(now - self._began)
            elif response.streaming:
                series.between_chunks.observe(now - response.last)
        response.last = now

    def chunk_passed(self) -> None:
        if self._response is not None and self._response.streaming:
            self._response.handled += self.clock() - self._response.last

    # -- the end ------------------------------------------------------------------------------

    def ended(self, ending: Ending) -> None:
        self.decisions.ends[ending.cause] += 1
        refusal, status, usage = ending.refusal, ending.status, ending.usage
        if refusal is not None:
            self._refused(refusal)
        series = self._series
        if series is None:
            return
        series.running -= 1
        if refusal is None and status is not None and status >= 400:
            series.failed(MODEL_SERVER_ERROR)
        if usage is not None:
            _count_tokens(series, usage)
        if ending.whole:
            self._ended_well(series, usage)

    def _refused(self, refusal: Refusal) -> None:
        series = self._series or self.requests.series(self._request)
        series.failed(CODES.get(refusal.status, "Unknown"))
        if self._series is not None:
            return
        if refusal.status in (429, 503):
            self.decisions.failed(series.labels[1])
        if self._request is not None:
            self.requests.request_phase.observe(self.clock() - self._began)

    def _ended_well(self, series: Series, usage: Usage | None) -> None:
        now = self.clock()
        seconds = now - self._began
        series.duration.observe(seconds)
        tokens = usage.completion_tokens if usage is not None else None
        if tokens:
            series.per_token.observe(seconds / tokens)
        response = self._response
        if response is None:
            return
        phase = response.handled if response.streaming else now - response.began
        self.requests.response_phase.observe(phase)
        if response.first is None:
            return
        series.response_size.observe(response.size)
        if response.streaming and tokens and tokens > 1:
            rest = now - response.first
            series.streaming_per_token.observe(rest / (tokens - 1))


def _first_chunks(series: Series, response: _Response) -> Tally:
    return series.streaming_first_chunk if response.streaming else series.first_chunk


def _count_tokens(series: Series, usage: Usage) -> None:
    """As the model server says; what it does not mention is not counted as nothing."""
    if usage.prompt_tokens:
        series.input_tokens.observe(usage.prompt_tokens)
    if usage.cached_tokens is not None:
        series.cached_tokens.observe(usage.cached_tokens)
    if usage.completion_tokens:
        series.output_tokens.observe(usage.completion_tokens)
