"""One request on its way: what is asked of which plugin, in which order.

`Director.decide` is written as a coroutine, so that producers may wait for I/O. When no enabled
plugin waits, `decide_now` runs the same code to its end in one call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, Final, TypeVar, cast, final

import anyio
from attrs import define, field, frozen

from .datastore import Snapshot
from .errors import AbsentKey, Refusal
from .installed import Installed
from .keys import ABSENT, Frame
from .model import (
    Decision,
    Endpoint,
    Headers,
    Parsed,
    ProfileResult,
    Request,
    RequestEnd,
    RequestScheduled,
    ResponseEnded,
    SchedulingResult,
    Usage,
    in_subset,
)
from .plugin import Role
from .scheduling import NO_ENDPOINTS, SATURATED, Scheduler, narrowed
from .topic import Topic
from .tracing import Attributes, Trace

T = TypeVar("T")

PRODUCER_TIMEOUT: Final = 0.4  # seconds for a producer that waits, unless it says otherwise
_MAY_REFUSE: Final = frozenset({Role.REQUEST_HOOK, Role.SCREENER, Role.ADMITTER, Role.PRE_REQUEST})


@final
@frozen(kw_only=True)
class Slots:
    """Where the kernel puts what it supplies itself; None where nobody reads it."""

    count: int
    endpoint_columns: Mapping[str, int]
    """By name: values that snapshots carry, and plugins read."""
    column_slots: tuple[int, ...]
    """All slots that hold one entry per endpoint."""
    headers: int | None = None
    path: int | None = None
    size: int | None = None
    priority: int | None = None
    model: int | None = None
    body: Mapping[str, int] = field(factory=dict[str, int])
    """By the parsers' own names: what they read of a body."""
    response_headers: int | None = None
    served_endpoint: int | None = None
    response_chunk: int | None = None
    usage: int | None = None


@final
@frozen
class TimedProducer:
    installed: Installed
    waits: bool
    timeout: float = PRODUCER_TIMEOUT


@final
@frozen
class Outcome:
    """A decision, and the data that the request's later stages go on with."""

    decision: Decision
    frame: Frame


@final
@define(eq=False, kw_only=True)
class Director:
    """Takes requests from the parsed body to the decision, and from there to their end."""

    slots: Slots
    scheduler: Scheduler
    detector: Installed | None = None
    """Says when requests of a negative priority are refused."""
    hooks: tuple[Installed, ...] = ()
    screeners: tuple[Installed, ...] = ()
    producers: tuple[TimedProducer, ...] = ()
    admitters: tuple[Installed, ...] = ()
    pre_request: tuple[Installed, ...] = ()
    at_response_headers: tuple[Installed, ...] = ()
    at_response_chunk: tuple[Installed, ...] = ()
    at_response_end: tuple[Installed, ...] = ()
    scheduled: Topic[object] | None = None
    response_ended: Topic[object] | None = None
    _lasting: frozenset[int] = field(init=False)
    """The slots that are read after the decision."""

    def __attrs_post_init__(self) -> None:
        later = (*self.at_response_headers, *self.at_response_chunk, *self.at_response_end)
        self._lasting = frozenset(slot for each in later for slot in each.view.read_slots)

    @property
    def waits(self) -> bool:
        """Whether a decision may need I/O."""
        return any(producer.waits for producer in self.producers)

    def decide_now(self, request: Request, parsed: Parsed, snapshot: Snapshot) -> Outcome:
        """As `decide`, in one call; only when nothing waits."""
        return _run_now(self.decide(request, parsed, snapshot))

    def decide(
        self, request: Request, parsed: Parsed, snapshot: Snapshot
    ) -> Coroutine[Any, Any, Outcome]:
        """Choose where *request* goes.

        Raises:
            Refusal: with the status that the client is to see.
        """
        if request.trace is None:
            return self._decide(request, parsed, snapshot)
        return self._decide_followed(request.trace, request, parsed, snapshot)

    async def _decide_followed(
        self, trace: Trace, request: Request, parsed: Parsed, snapshot: Snapshot
    ) -> Outcome:
        attributes: Attributes = {"target_model": request.model, "request_prio": request.priority}
        with trace.step("gateway.request_orchestration", attributes):
            return await self._decide(request, parsed, snapshot)

    async def _decide(self, request: Request, parsed: Parsed, snapshot: Snapshot) -> Outcome:
        frame = self._frame(request, parsed)
        for installed in self.hooks:
            self._call(installed, Role.REQUEST_HOOK, "on_request", frame)
        endpoints = self._candidates(request, frame, snapshot)
        if self.screeners:
            endpoints = self._screen(frame, endpoints)
        for producer in self.producers:
            if request.trace is None:
                await self._produce(producer, frame, endpoints)
            else:
                await self._produce_followed(request.trace, producer, frame, endpoints)
        if self.detector is not None and request.priority < 0:
            self._shed(self.detector, frame, endpoints)
        for installed in self.admitters:
            self._call(installed, Role.ADMITTER, "admit", frame, endpoints)
        result = self.scheduler.schedule(frame, endpoints, request.trace)
        decision = self._prepare(frame, request, result)
        self._let_go(frame)
        return Outcome(decision, frame)

    def _let_go(self, frame: Frame) -> None:
        """Keep only what somebody may ask for until the response ends: that may take long, and
        prompts are large."""
        lasting = self._lasting
        frame.values = [
            value if slot in lasting else ABSENT for slot, value in enumerate(frame.values)
        ]

    def _frame(self, request: Request, parsed: Parsed) -> Frame:
        slots = self.slots
        values: list[Any] = [ABSENT] * slots.count
        if slots.headers is not None:
            values[slots.headers] = request.headers
        if slots.path is not None:
            values[slots.path] = request.path
        if slots.size is not None:
            values[slots.size] = request.size
        if slots.priority is not None:
            values[slots.priority] = request.priority
        if slots.model is not None:
            values[slots.model] = request.model
        if parsed.values:
            for key, value in parsed.values.items():
                slot = slots.body.get(key.name)
                if slot is not None:
                    values[slot] = value
        return Frame(request, values)

    def _candidates(self, request: Request, frame: Frame, snapshot: Snapshot) -> Sequence[Endpoint]:
        """The endpoints that the proxy allows, and their columns."""
        endpoints: Sequence[Endpoint] = snapshot.endpoints
        values = frame.values
        for name, slot in self.slots.endpoint_columns.items():
            values[slot] = snapshot.columns.get(name, ABSENT)
        if request.subset is not None:
            subset = request.subset
            endpoints = self._keep(frame, endpoints, [in_subset(e, subset) for e in endpoints])
        if not endpoints:
            message = "failed to find endpoint candidates for serving the request"
            raise Refusal(503, message, reason=NO_ENDPOINTS, retry_after=1)
        frame.endpoints = endpoints
        return endpoints

    def _keep(
        self, frame: Frame, endpoints: Sequence[Endpoint], mask: Sequence[bool]
    ) -> Sequence[Endpoint]:
        if all(mask):
            return endpoints
        frame.values = narrowed(frame.values, self.slots.column_slots, mask)
        frame.endpoints = kept = tuple(compress(endpoints, mask))
        return kept

    def _screen(self, frame: Frame, endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
        """Each screener sees the same set; what all of them keep stays."""
        kept = [True] * len(endpoints)
        for installed in self.screeners:
            mask = self._call(installed, Role.SCREENER, "screen", frame, endpoints)
            if mask is not None:
                kept = [one and other for one, other in zip(kept, mask, strict=True)]
        endpoints = self._keep(frame, endpoints, kept)
        if not endpoints:
            message = "screeners eliminated all endpoint candidates"
            raise Refusal(503, message, reason=NO_ENDPOINTS)
        return endpoints

    def _shed(self, detector: Installed, frame: Frame, endpoints: Sequence[Endpoint]) -> None:
        """Refuse what may be refused while its candidates are saturated."""
        saturation = self._call(detector, Role.DETECTOR, "saturation", frame, endpoints)
        if saturation is not None and saturation >= 1.0:
            message = "system saturated, sheddable request dropped"
            raise Refusal(429, message, reason=SATURATED, retry_after=1)

    async def _produce_followed(
        self, trace: Trace, producer: TimedProducer, frame: Frame, endpoints: Sequence[Endpoint]
    ) -> None:
        name = f"llm_d.epp.producer.{producer.installed.type_name}"
        with trace.step(name, {"llm_d.epp.producer.candidate_endpoints": len(endpoints)}):
            await self._produce(producer, frame, endpoints)

    async def _produce(
        self, producer: TimedProducer, frame: Frame, endpoints: Sequence[Endpoint]
    ) -> None:
        """A producer that fails or is late leaves its keys absent and stops nobody else."""
        installed = producer.installed
        view = installed.view.twin() if producer.waits else installed.view
        view.lend(frame, Role.PRODUCER)
        try:
            waiting: Awaitable[None] | None = installed.plugin.produce(view, endpoints)
            if producer.waits and waiting is not None:
                await _in_time(waiting, producer.timeout)
            elif waiting is not None:
                raise TypeError("a producer that may wait is async or says so with `waits`")
        except AbsentKey:
            view.retract()
        except Exception as exc:
            view.retract()
            installed.failed(Role.PRODUCER, exc)
        else:
            installed.worked()
        finally:
            view.close()  # what a late writer still holds of it is dead

    def _call(
        self, installed: Installed, role: Role, method: str, frame: Frame, *arguments: object
    ) -> Any:
        """Call one method of a plugin; refusals pass if its role has them, all else is isolated."""
        view = installed.view
        try:
            answer = getattr(installed.plugin, method)(view.lend(frame, role), *arguments)
            if (read := _ANSWERS.get(role)) is not None:
                answer = read(answer, *arguments)
        except AbsentKey:
            return None
        except Exception as exc:
            if isinstance(exc, Refusal) and role in _MAY_REFUSE:
                raise
            installed.failed(role, exc)
            return None
        finally:
            view.close()
        installed.worked()
        return answer

    def _prepare(self, frame: Frame, request: Request, result: SchedulingResult) -> Decision:
        targets = result.primary_result.targets
        target = targets[0]
        destination = self.scheduler.destination(frame, targets)
        target.identity.note_pick()
        headers: dict[str, str] = {}
        for installed in self.pre_request:
            role = Role.PRE_REQUEST
            headers.update(self._call(installed, role, "before_request", frame, result) or {})
        if request.trace is not None:
            headers.update(request.trace.headers())
        if self.scheduled is not None:
            self.scheduled.offer(RequestScheduled(request.id, target))
        return Decision(destination, result, headers)

    def rate(self, snapshot: Snapshot) -> Mapping[str, ProfileResult]:
        """How each profile rates the endpoints for a request that says nothing of itself.

        What producers would add is left out, and profiles that find nobody are too.
        """
        request = Request(Headers({}))
        frame = self._frame(request, Parsed())
        results: dict[str, ProfileResult] = {}
        for name, profile in self.scheduler.profiles.items():
            try:
                endpoints = self._candidates(request, frame, snapshot)
                results[name] = profile.run(frame, endpoints)
            except Refusal:
                continue
        request.end()
        return results

    def response_headers(
        self, outcome: Outcome, headers: Headers, served: Callable[[], str | None] = lambda: None
    ) -> Mapping[str, str]:
        """Show the response's headers to whom they concern; the headers to add to them.

        Args:
            served: who answered, as ``ip:port``; asked only when that concerns somebody.
        """
        frame, slots = outcome.frame, self.slots
        if slots.response_headers is not None:
            frame.values[slots.response_headers] = headers
        if slots.served_endpoint is not None and (address := served()) is not None:
            frame.values[slots.served_endpoint] = address
        added: dict[str, str] = {}
        for installed in self.at_response_headers:
            role = Role.RESPONSE_HEADERS
            result = outcome.decision.result
            added.update(self._call(installed, role, "on_response_headers", frame, result) or {})
        return added

    def response_chunk(self, outcome: Outcome, chunk: bytes) -> None:
        if self.slots.response_chunk is not None:
            outcome.frame.values[self.slots.response_chunk] = chunk
        for installed in self.at_response_chunk:
            role = Role.RESPONSE_CHUNK
            self._call(installed, role, "on_response_chunk", outcome.frame, chunk)

    def response_end(self, outcome: Outcome, end: RequestEnd, usage: Usage | None = None) -> None:
        """Tell everyone whom it concerns that the request is over; the caller does so once."""
        if self.slots.usage is not None and usage is not None:
            outcome.frame.values[self.slots.usage] = usage
        for installed in self.at_response_end:
            self._call(installed, Role.RESPONSE_END, "on_response_end", outcome.frame, end)
        if self.response_ended is not None:
            target = outcome.decision.result.target
            number = outcome.frame.request.id
            self.response_ended.offer(ResponseEnded(number, target, end.cause))


def _mask(answer: Iterable[object], endpoints: Sequence[Endpoint]) -> Sequence[bool]:
    mask = [bool(kept) for kept in answer]
    if len(mask) != len(endpoints):
        raise ValueError(f"{len(mask)} entries for {len(endpoints)} endpoints")
    return mask


def _headers(answer: Mapping[str, str] | None, _: object) -> Mapping[str, str]:
    return dict(answer or {})


def _number(answer: float, _: object) -> float:
    return float(answer)


_ANSWERS: Final[Mapping[Role, Callable[..., object]]] = {
    Role.DETECTOR: _number,
    Role.SCREENER: _mask,
    Role.PRE_REQUEST: _headers,
    Role.RESPONSE_HEADERS: _headers,
}
"""What has to be made of an answer before it is used: what cannot be read is a failure, too."""


async def _in_time(waiting: Awaitable[None], timeout: float) -> None:
    """Raises TimeoutError, even if what was awaited took no notice of being cancelled."""
    with anyio.move_on_after(timeout) as scope:
        await waiting
    if scope.cancel_called:
        raise TimeoutError


def _run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    coroutine.close()
    raise RuntimeError("a plugin that declared to be synchronous waited")
