"""The request handler: one ext_proc conversation, as a machine from events to commands.

No I/O, no clock, no gRPC: whoever drives it feeds what the proxy sent and carries out what it
returns. Nothing is answered before the decision (unless the proxy waits for it), so that an
error can be the first message that the proxy hears.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from time import perf_counter
from typing import assert_never, final

from attrs import define, field

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import (
    Buffer,
    EndCause,
    Parsed,
    Request,
    RequestEnd,
    Usage,
)
from pointsman.kernel.parsing import NOBODY, path_of, refuse_path
from pointsman.kernel.parsing import Route as BodyRoute
from pointsman.kernel.rewriting import NamePlace
from pointsman.kernel.wiring import Wiring

from .conversation import (
    BodyMode,
    Command,
    Continue,
    Decide,
    Event,
    Modes,
    Part,
    Read,
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
    SessionSettings,
    chunks,
)
from .held import HeldBody, renamed
from .modes import BUFFERED, to_ask_for
from .observing import Ending, Observer
from .passing import Passing
from .renaming import REWRITE_HEADERS, Renaming, priority_of, settle_model
from .session_headers import CONTROL_HEADERS, refusal_headers, with_length
from .usage import UsageReader, encoding_of


@final
@define(eq=False)
class Session:
    """One HTTP request and its response, as the proxy shows them."""

    wiring: Wiring
    snapshot: Callable[[], Snapshot]
    settings: SessionSettings
    now: Callable[[], float]
    observer: Observer
    random: Random
    awaits_end: Callable[[Session], bool] = lambda session: True
    """Whether a response of which nothing else is looked at is waited for until its end."""
    request: Request | None = field(default=None, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    refusal: Refusal | None = field(default=None, init=False)
    modes: Modes = field(factory=Modes, init=False)
    """How the proxy shows bodies; known once the request's headers are here."""
    _body_route: BodyRoute | None = field(default=None, init=False)
    _ask: Modes | None = field(default=None, init=False)
    _removed: tuple[str, ...] = field(default=(), init=False)
    _renaming: Renaming | None = field(default=None, init=False)
    _held: HeldBody = field(factory=HeldBody, init=False)
    _body: Sequence[Buffer] = field(default=(), init=False)
    """What goes on to the model server, from its reading until that was said."""
    _place: NamePlace | None = field(default=None, init=False)
    """Where that names its model, if that is known."""
    _closing: Part = field(default=Part.REQUEST_HEADERS, init=False)
    """The part of the request whose end made the decision possible."""
    _request_passed: bool = field(default=False, init=False)
    """Nothing of the request is still to come."""
    unseen: list[bytes] = field(factory=list[bytes], init=False)
    """Pieces of the response that plugins are to see, once they are on their way."""
    _usage: UsageReader | None = field(default=None, init=False)
    _status: int | None = field(default=None, init=False)
    _complete: bool = field(default=False, init=False)
    """The end of the response passed by."""
    _response_began: bool = field(default=False, init=False)
    passing: Passing | None = field(default=None, init=False)
    """Is enough for pieces of the response that are not its end: they need not be handled."""
    _ended: bool = field(default=False, init=False)

    @property
    def over(self) -> bool:
        """Whether there is nothing more to say: the stream may be closed."""
        if self.refusal is not None or self._complete:
            return True
        # Most of the times that this is asked, the response is passing by.
        return not self._response_began and self._may_leave and not self.awaits_end(self)

    @property
    def full_duplex(self) -> bool:
        """Whether bodies are the picker's to pass on: leaving at the wrong time loses some."""
        return BodyMode.FULL_DUPLEX in (self.modes.request, self.modes.response)

    @property
    def _may_leave(self) -> bool:
        """The request is on its way and nothing of the response would be looked at.

        Proxies go on by themselves when the stream ends then. Not once the response has begun: in
        full duplex its pieces would be lost on their way.
        """
        return (
            self._request_passed
            and self.outcome is not None
            and self._renaming is None
            and not self.wiring.processing.response
        )

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
            case ResponseHeaders():
                return self._on_response_headers(event)
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
        if self.settings.heeds_subset:
            request.subset = event.subset
        self.modes = event.modes
        self.observer.began(request, event.modes)
        self._removed = tuple(name for name in headers if name in CONTROL_HEADERS)
        self._ask = to_ask_for(event.modes, self.wiring.processing, may_rename=self._may_rename)
        self._request_passed = event.end or event.modes.request is BodyMode.NONE
        route = self._body_route = self.wiring.routes.find(request.path)
        if route is NOBODY and not event.end:
            raise refuse_path(request.path)
        if event.end or route.read is None:
            return self._decide(Parsed())
        match event.modes.request:
            case BodyMode.FULL_DUPLEX:
                return []
            case BodyMode.BUFFERED | BodyMode.BUFFERED_PARTIAL:
                return [Continue(Part.REQUEST_HEADERS, ask=self._ask)]
            case _:  # the body passes by or stays away: the headers have to do
                return self._decide(Parsed())

    def _may_rename(self) -> bool:
        named = self.request is not None and self.request.headers.first(*REWRITE_HEADERS)
        return bool(named or self.snapshot().rewrites)

    def _on_request_body(self, event: RequestBody) -> list[Command]:
        self._request_passed = event.end
        if self.outcome is not None or self.request is None:
            return self._pass_request_body(event.data, event.end)
        if event.subset is not None and self.settings.heeds_subset:
            self.request.subset = event.subset
        self._held.add(event.data, self.settings.body_limit)
        mode = self.modes.request
        if mode is BodyMode.FULL_DUPLEX and not event.end:
            return []
        self._closing = Part.REQUEST_BODY
        if mode is BodyMode.BUFFERED_PARTIAL and not event.end:
            return self._decide(Parsed())  # cut off by the proxy: not to be understood
        return self._decide_on_body()

    def _on_request_trailers(self) -> list[Command]:
        self._request_passed = True
        trailers = Continue(Part.REQUEST_TRAILERS)
        if self.outcome is not None or self.request is None:
            return [trailers]
        self._closing = Part.REQUEST_TRAILERS
        if self.modes.request is not BodyMode.FULL_DUPLEX:
            raise Refusal(400, "the request ended before its body was seen")
        return self._decide_on_body()

    def _decide_on_body(self) -> list[Command]:
        request, route = self.request, self._body_route
        if request is None or route is None or route.read is None:
            raise AssertionError("a body is only held when somebody reads it")
        request.size = len(self._held)
        apart = self.settings.read_apart_from
        if apart is not None and request.size >= min(apart, route.at_once):
            return [Read(route, self._held.view(), self._may_rename())]
        body = self._held.bytes()
        self._held.clear()
        self._body = (body,)
        return self._decide(route.read(body))

    def was_read(self, body: Buffer, parsed: Parsed, place: NamePlace | None) -> list[Command]:
        """Go on with a body that was read elsewhere, and that names its model at *place*."""
        self._held.clear()
        self._body = (body,)
        self._place = place
        try:
            return self._decide(parsed)
        except Refusal as refusal:
            return self.refuse(refusal)

    def _name_model(self, request: Request, model: str, snapshot: Snapshot) -> None:
        """Settle which model is asked for; only the name's bytes change in the body."""
        settle_model(request, model, snapshot, self.random)
        if request.model != model:
            (body,) = self._body
            self._body = renamed(body, self._place, request.model)
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
        self.observer.picked(request, outcome, perf_counter() - started)
        return self.decided(outcome)

    def decided(self, outcome: Outcome) -> list[Command]:
        """Answer the proxy now that the decision is there."""
        self.outcome = outcome
        decision = outcome.decision
        body, self._body = self._body, ()
        buffered = self.modes.request is not BodyMode.FULL_DUPLEX
        headers = decision.upstream_headers
        if self._renaming is not None and self.request is not None:
            headers = with_length(headers, self.request.headers, sum(map(len, body)))
        scores = decision.result.primary_result.by_address() if self.settings.emits_scores else None
        route = Route(decision.destination, headers, self._removed, scores)
        if buffered and self._closing is Part.REQUEST_BODY:
            return [SendTo(Part.REQUEST_BODY, route, b"".join(body) if self._renaming else None)]
        commands: list[Command] = [SendTo(Part.REQUEST_HEADERS, route, ask=self._ask)]
        ends = self._closing is Part.REQUEST_BODY
        for number, piece in enumerate(body, 1):
            commands += chunks(Part.REQUEST_BODY, piece, ends and number == len(body))
        if self._closing is Part.REQUEST_TRAILERS:
            commands.append(Continue(Part.REQUEST_TRAILERS))
        return commands

    def _pass_request_body(self, data: Buffer, end: bool) -> list[Command]:
        """The decision was made on the headers: the body goes through."""
        if self.modes.request is BodyMode.FULL_DUPLEX:
            return chunks(Part.REQUEST_BODY, data, end)
        return [Continue(Part.REQUEST_BODY)]

    def refuse(self, refusal: Refusal) -> list[Command]:
        """Turn the request down: from now on nothing else is said."""
        self.refusal = refusal
        self.passing = None
        self._held.clear()
        self._body = ()
        headers = refusal_headers(refusal, self.request)
        return [Refuse(refusal.status, refusal.message, headers)]

    # -- response -----------------------------------------------------------------------------

    def observe(self) -> None:
        """Show the plugins what of the response they have not seen yet, in its order.

        For when the commands were carried out: what a plugin takes its time for holds up no piece.
        """
        unseen, self.unseen = self.unseen, []
        if self.outcome is not None:
            for piece in unseen:
                self.wiring.director.response_chunk(self.outcome, piece)

    def _on_response_headers(self, event: ResponseHeaders) -> list[Command]:
        headers = event.headers
        if self.request is None:  # the proxy answered by itself, before it asked
            self.modes = event.modes
        self._response_began = True
        self._complete = event.end
        status = headers.get(":status") or ""
        self._status = int(status) if status.isdecimal() else None
        added: Mapping[str, str] = {}
        if self.outcome is not None and self.wiring.processing.response_headers:
            director = self.wiring.director
            added = director.response_headers(self.outcome, headers, event.served)
        if self._renaming is not None and not self._renaming.begin(headers):
            self._renaming = None
        self.observer.response_began(headers)
        if self.wiring.processing.usage or self.observer.tokens:
            if encoding := encoding_of(headers):
                self.observer.response_opaque(encoding)
            else:
                self._usage = UsageReader()
        untouched = self.outcome is not None and self._renaming is None and not event.end
        shown = self.wiring.processing.response_chunks
        if untouched and not shown and self.modes.response is BodyMode.FULL_DUPLEX:
            self.passing = Passing(self.observer, self._usage)
        removed = ("content-length",) if self._renaming is not None else ()
        return [Continue(Part.RESPONSE_HEADERS, added, removed)]

    def _on_response_body(self, data: bytes, end: bool) -> list[Command]:
        self.observer.chunk_came(data)
        commands = self._pass_response_body(data, end)
        self.observer.chunk_passed()
        return commands

    def _pass_response_body(self, data: bytes, end: bool) -> list[Command]:
        self._complete = end
        if self._usage is not None:
            self._usage.feed(data)
        if self.outcome is not None and self.wiring.processing.response_chunks:
            self.unseen.append(data)
        if self.modes.response is BodyMode.FULL_DUPLEX:
            if self._renaming is not None:
                data = self._renaming.feed(data, end=end)
            return chunks(Part.RESPONSE_BODY, data, end)
        if self._renaming is not None:
            whole = end or self.modes.response in BUFFERED
            return [Replace(Part.RESPONSE_BODY, self._renaming.feed(data, end=whole))]
        return [Continue(Part.RESPONSE_BODY)]

    def _on_response_trailers(self) -> list[Command]:
        self._complete = True
        trailers = Continue(Part.RESPONSE_TRAILERS)
        held = self._renaming.feed(b"", end=True) if self._renaming is not None else b""
        if held and self.modes.response is BodyMode.FULL_DUPLEX:
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
        self.observe()
        usage = self._usage.usage if self._usage is not None else None
        self._tell_end(cause, usage)
        if self.outcome is not None and self.wiring.processing.response_end:
            end = RequestEnd(cause, self._status)
            self.wiring.director.response_end(self.outcome, end, usage)
        if self.request is not None:
            self.request.end()
        return cause

    def _tell_end(self, cause: EndCause, usage: Usage | None) -> None:
        # Whoever does not wait for the end of the response may have left before it.
        whole = cause is EndCause.NATURAL and (self._complete or self.awaits_end(self))
        self.observer.ended(Ending(cause, self.refusal, self._status, usage, whole))

    def _cause(self, broken: bool) -> EndCause:
        """Proxies end every stream by a reset: only a response that passes by tells how it went."""
        if broken or self.refusal is not None:
            return EndCause.ERROR
        unseen = self.modes.response is BodyMode.NONE and not self._response_began
        if self._complete or (unseen and self.outcome is not None):
            return EndCause.NATURAL
        return EndCause.CLIENT_DISCONNECT
