"""The request handler: one ext_proc conversation, as a machine from events to commands.

No I/O, no clock, no gRPC: whoever drives it feeds what the proxy sent and carries out what it
returns. Nothing is answered before the decision (unless the proxy waits for it), so that an
error can be the first message that the proxy hears.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from time import perf_counter
from typing import Final, assert_never, final

from attrs import define, field

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Headers, Parsed, Request, RequestEnd
from pointsman.kernel.parsing import Route as BodyRoute
from pointsman.kernel.parsing import path_of
from pointsman.kernel.rewriting import with_model
from pointsman.kernel.wiring import Wiring

from .conversation import (
    CHUNK_LIMIT,
    BodyMode,
    Chunk,
    Command,
    Continue,
    Decide,
    Event,
    Modes,
    Part,
    Refuse,
    Replace,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    SendTo,
)
from .renaming import Renaming, priority_of, target_model
from .usage import UsageReader, readable

DROPPED_REASON: Final = "x-llm-d-request-dropped-reason"
CONTROL_HEADERS: Final = frozenset(
    {
        "x-gateway-destination-endpoint-subset",
        "x-gateway-destination-endpoint-served",
        DROPPED_REASON,
        "x-llm-d-inference-fairness-id",
        "x-gateway-inference-fairness-id",
        "x-llm-d-inference-objective",
        "x-gateway-inference-objective",
        "x-llm-d-model-name-rewrite",
        "x-gateway-model-name-rewrite",
        "x-llm-d-slo-ttft-ms",
        "x-slo-ttft-ms",
        "x-llm-d-slo-tpot-ms",
        "x-slo-tpot-ms",
        "x-llm-d-video-fps",
        "x-llm-d-video-duration-seconds",
        "x-llm-d-video-resolution",
        "x-prefiller-host-port",
        "x-encoder-hosts-ports",
        "x-data-parallel-host-port",
        "x-kv-cache-source-host-port",
    }
)
"""What a client may say to the picker, or what only the picker may say to a model server's
sidecar: from a client it does not reach the server. The destination header is overwritten."""
TOO_LARGE: Final = "the request body is larger than {} bytes"


@final
@define(eq=False)
class Session:
    """One HTTP request and its response, as the proxy shows them."""

    wiring: Wiring
    snapshot: Callable[[], Snapshot]
    body_limit: int
    """Bytes of request body that are held until the decision; more is a 413."""
    now: Callable[[], float]
    observe: Callable[[Request, Outcome, float], None]
    """Is told of each decision, and how many seconds it took."""
    random: Random
    request: Request | None = field(default=None, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    refusal: Refusal | None = field(default=None, init=False)
    _modes: Modes = field(factory=Modes, init=False)
    _body_route: BodyRoute | None = field(default=None, init=False)
    _removed: tuple[str, ...] = field(default=(), init=False)
    _renaming: Renaming | None = field(default=None, init=False)
    _pieces: list[bytes] = field(factory=list[bytes], init=False)
    _held: int = field(default=0, init=False)
    _closing: Part = field(default=Part.REQUEST_HEADERS, init=False)
    """The part of the request whose end made the decision possible."""
    _usage: UsageReader | None = field(default=None, init=False)
    _status: int | None = field(default=None, init=False)
    _complete: bool = field(default=False, init=False)
    """The end of the response passed by."""
    _response_began: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to say: the stream may be closed."""
        return self.refusal is not None or self._complete

    def handle(self, event: Event) -> list[Command]:
        """What to do about *event*, in order. After a `Refuse` nothing is answered any more."""
        if self.refusal is not None:
            return []
        try:
            return self._handle(event)
        except Refusal as refusal:
            return self.refuse(refusal)

    def _handle(self, event: Event) -> list[Command]:
        match event:
            case RequestBody():
                return self._on_request_body(event)
            case ResponseBody(data, end):
                return self._on_response_body(data, end)
            case RequestHeaders():
                return self._on_request_headers(event)
            case ResponseHeaders(headers, end):
                return self._on_response_headers(headers, end)
            case RequestTrailers():
                return self._on_request_trailers()
            case ResponseTrailers():
                return self._on_response_trailers()
            case _:
                assert_never(event)

    # -- request ------------------------------------------------------------------------------

    def _on_request_headers(self, event: RequestHeaders) -> list[Command]:
        if self.request is not None:
            raise Refusal(400, "a stream carries one request")
        headers = event.headers
        request = self.request = Request(headers, path_of(headers), self.now())
        request.subset = event.subset
        self._modes = event.modes
        self._removed = tuple(name for name in headers if name in CONTROL_HEADERS)
        route = self._body_route = self.wiring.routes.find(request.path)
        if event.end or route.read is None:
            return self._decide(Parsed())
        match event.modes.request:
            case BodyMode.FULL_DUPLEX:
                return []
            case BodyMode.BUFFERED | BodyMode.BUFFERED_PARTIAL:
                return [Continue(Part.REQUEST_HEADERS)]
            case _:  # the body passes by or stays away: the headers have to do
                return self._decide(Parsed())

    def _on_request_body(self, event: RequestBody) -> list[Command]:
        if self.outcome is not None or self.request is None:
            return self._pass_request_body(event.data, event.end)
        if event.subset is not None:
            self.request.subset = event.subset
        self._hold(event.data)
        mode = self._modes.request
        if mode is BodyMode.FULL_DUPLEX and not event.end:
            return []
        self._closing = Part.REQUEST_BODY
        if mode is BodyMode.BUFFERED_PARTIAL and not event.end:
            return self._decide(Parsed())  # cut off by the proxy: not to be understood
        return self._decide_on_body()

    def _hold(self, data: bytes) -> None:
        self._held += len(data)
        if self._held > self.body_limit:
            self._pieces.clear()
            raise Refusal(413, TOO_LARGE.format(self.body_limit))
        if data:
            self._pieces.append(data)

    def _on_request_trailers(self) -> list[Command]:
        trailers = Continue(Part.REQUEST_TRAILERS)
        if self.outcome is not None or self.request is None:
            return [trailers]
        self._closing = Part.REQUEST_TRAILERS
        if self._modes.request is not BodyMode.FULL_DUPLEX:
            raise Refusal(400, "the request ended before its body was seen")
        return self._decide_on_body()

    def _decide_on_body(self) -> list[Command]:
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = [body]
        request, route = self.request, self._body_route
        if request is None or route is None or route.read is None:
            raise AssertionError("a body is only held when somebody reads it")
        request.size = len(body)
        return self._decide(route.read(body))

    def _name_model(self, request: Request, model: str, snapshot: Snapshot) -> None:
        """Settle which model is asked for; only the name's bytes change in the body.

        Raises:
            Refusal: 400 when it comes to none.
        """
        request.incoming_model = model
        request.model = target_model(request, snapshot, self.random)
        if not request.model:
            raise Refusal(400, "model not found in request body")
        if request.model != model:
            self._pieces = [with_model(self._pieces[0], request.model)]
            self._renaming = Renaming(model, request.model)

    def _decide(self, parsed: Parsed) -> list[Command]:
        request = self.request
        if request is None:
            raise AssertionError("there is a request once its headers are here")
        snapshot = self.snapshot()
        request.priority = priority_of(request.headers, snapshot)
        if parsed.model is not None:
            self._name_model(request, parsed.model, snapshot)
        director = self.wiring.director
        if director.waits:
            return [Decide(request, parsed)]
        started = perf_counter()
        outcome = director.decide_now(request, parsed, snapshot)
        self.observe(request, outcome, perf_counter() - started)
        return self.decided(outcome)

    def decided(self, outcome: Outcome) -> list[Command]:
        """Answer the proxy now that the decision is there."""
        self.outcome = outcome
        decision = outcome.decision
        pieces, self._pieces = self._pieces, []
        buffered = self._modes.request is not BodyMode.FULL_DUPLEX
        headers = self._upstream_headers(decision.upstream_headers, pieces)
        route = Route(decision.destination, headers, self._removed)
        if buffered and self._closing is Part.REQUEST_BODY:
            return [SendTo(Part.REQUEST_BODY, route, pieces[0] if self._renaming else None)]
        commands: list[Command] = [SendTo(Part.REQUEST_HEADERS, route)]
        if self._closing is Part.REQUEST_BODY:
            commands += chunks(Part.REQUEST_BODY, pieces[0], end=True)
        elif self._closing is Part.REQUEST_TRAILERS:
            commands += chunks(Part.REQUEST_BODY, pieces[0], end=False)
            commands.append(Continue(Part.REQUEST_TRAILERS))
        return commands

    def _upstream_headers(
        self, added: Mapping[str, str], pieces: Sequence[bytes]
    ) -> Mapping[str, str]:
        """What plugins add, and the length of a body that is not the client's any more."""
        if self._renaming is None or self.request is None:
            return added
        if "content-length" not in self.request.headers:
            return added
        return {**added, "content-length": str(len(pieces[0]))}

    def _pass_request_body(self, data: bytes, end: bool) -> list[Command]:
        """The decision was made on the headers: the body goes through."""
        if self._modes.request is BodyMode.FULL_DUPLEX:
            return chunks(Part.REQUEST_BODY, data, end)
        return [Continue(Part.REQUEST_BODY)]

    def refuse(self, refusal: Refusal) -> list[Command]:
        """Turn the request down: from now on nothing else is said."""
        self.refusal = refusal
        self._pieces.clear()
        headers: dict[str, str] = {}
        if refusal.reason is not None:
            headers[DROPPED_REASON] = refusal.reason
        if refusal.retry_after is not None:
            headers["retry-after"] = str(refusal.retry_after)
        return [Refuse(refusal.status, refusal.message, headers)]

    # -- response -----------------------------------------------------------------------------

    def _on_response_headers(self, headers: Headers, end: bool) -> list[Command]:
        self._response_began = True
        self._complete = end
        status = headers.get(":status") or ""
        self._status = int(status) if status.isdecimal() else None
        added: Mapping[str, str] = {}
        if self.outcome is not None and self.wiring.processing.response_headers:
            added = self.wiring.director.response_headers(self.outcome, headers)
        if self._renaming is not None and not self._renaming.begin(headers):
            self._renaming = None
        if self.wiring.processing.usage and readable(headers):
            self._usage = UsageReader()
        removed = ("content-length",) if self._renaming is not None else ()
        return [Continue(Part.RESPONSE_HEADERS, added, removed)]

    def _on_response_body(self, data: bytes, end: bool) -> list[Command]:
        self._complete = end
        if self._usage is not None:
            self._usage.feed(data)
        if self.outcome is not None and self.wiring.processing.response_chunks:
            self.wiring.director.response_chunk(self.outcome, data)
        if self._modes.response is BodyMode.FULL_DUPLEX:
            if self._renaming is not None:
                data = self._renaming.feed(data, end=end)
            return chunks(Part.RESPONSE_BODY, data, end)
        if self._renaming is not None:
            return [Replace(Part.RESPONSE_BODY, self._renaming.feed(data, end=end))]
        return [Continue(Part.RESPONSE_BODY)]

    def _on_response_trailers(self) -> list[Command]:
        self._complete = True
        trailers = Continue(Part.RESPONSE_TRAILERS)
        held = self._renaming.feed(b"", end=True) if self._renaming is not None else b""
        if held and self._modes.response is BodyMode.FULL_DUPLEX:
            return [*chunks(Part.RESPONSE_BODY, held, end=False), trailers]
        return [trailers]

    # -- end ----------------------------------------------------------------------------------

    def close(self, *, broken: bool = False) -> EndCause:
        """The conversation is over, whatever the ending. Only the first call counts.

        Args:
            broken: something went wrong on our side.
        """
        cause = self._cause(broken)
        if self._ended:
            return cause
        self._ended = True
        if self.outcome is not None and self.wiring.processing.response_end:
            end = RequestEnd(cause, self._status)
            usage = self._usage.usage if self._usage is not None else None
            self.wiring.director.response_end(self.outcome, end, usage)
        if self.request is not None:
            self.request.end()
        return cause

    def _cause(self, broken: bool) -> EndCause:
        """Proxies end every stream by a reset: only a response that passes by tells how it went."""
        if broken or self.refusal is not None:
            return EndCause.ERROR
        unseen = self._modes.response is BodyMode.NONE and not self._response_began
        if self._complete or (unseen and self.outcome is not None):
            return EndCause.NATURAL
        return EndCause.CLIENT_DISCONNECT


def chunks(part: Part, data: bytes, end: bool) -> list[Command]:
    """*data* in pieces that proxies accept; only the last may be the end."""
    if len(data) <= CHUNK_LIMIT:
        return [Chunk(part, data, end)]
    last = (len(data) - 1) // CHUNK_LIMIT * CHUNK_LIMIT
    return [
        Chunk(part, data[start : start + CHUNK_LIMIT], end and start == last)
        for start in range(0, len(data), CHUNK_LIMIT)
    ]


def headers_of(pairs: Iterable[tuple[str, bytes]]) -> Headers:
    """Headers as plugins see them: names in lower case, the last value of a name wins."""
    return Headers({name.lower(): value for name, value in pairs})
