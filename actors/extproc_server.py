"""The gRPC face of the daemon: ext_proc streams become sessions.

grpclib is hosted in the structured-concurrency tree: every stream is a child of one task group,
is cancelled with it and drained by it. This file and its neighbours of the same name are the
only ones that know asyncio, gRPC and protobuf.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from time import perf_counter
from typing import Any, Final, Protocol, final

import anyio
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint
from attrs import define, field, frozen
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from grpclib.const import Handler as Method
from grpclib.server import Stream

from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import Datastore
from pointsman.kernel.errors import Refusal
from pointsman.kernel.installed import where_raised
from pointsman.kernel.model import Buffer
from pointsman.kernel.wiring import Wiring
from pointsman.proto import (
    PROCESS,
    DecodeError,
    Prepared,
    ProcessingRequest,
    ProcessingResponse,
    decode,
)

from . import decision_log
from .conversation import Command, Decide, Modes, Part, Read, SessionSettings
from .extproc_server_counted import CountedLink
from .extproc_server_crew import Crew
from .extproc_server_host import TreeServer
from .extproc_server_lane import Lane
from .extproc_server_wire import chunk_reply, event_of, piece_of, reply_of
from .figures import Figures
from .memory import forget_origin
from .modes import name_of, remarks
from .observing import Observer
from .reading import BodyReader
from .session import Session

logger = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
COMPLAIN_EVERY: Final = 60.0  # seconds, of peers that speak something else
AT_ONCE: Final = 16  # replies that are made in one go: of a body's pieces about a megabyte
WAITING: Final = (Read, Decide)  # what cannot be had at once
SLACK: Final = 64 * 1024  # of a message around the body that it carries


class Link(Protocol):
    """A stream of whole messages, by whichever edge they come."""

    async def receive(self) -> Sequence[ProcessingRequest]:
        """What came since, at least one; nothing when the stream has ended.

        Raises:
            DecodeError: it is no ext_proc.
        """
        ...

    async def send(self, replies: Iterable[bytes]) -> None: ...
    async def finish(self, status: Status, message: str = "") -> None: ...
    def leave(self) -> None:
        """End the stream from our side, while the handler waits for more."""
        ...

    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None: ...


def _read(message: Buffer) -> ProcessingRequest:
    """Of a large body no copy is made."""
    read = decode(ProcessingRequest, message)
    if isinstance(message, memoryview) and read.request_body is None:
        return decode(ProcessingRequest, bytes(message))  # all else has copies of its parts
    return read


@final
@frozen
class LaneLink:
    """A stream on the fast path."""

    lane: Lane

    async def receive(self) -> Sequence[ProcessingRequest]:
        return [_read(message) for message in await self.lane.receive()]

    async def send(self, replies: Iterable[bytes]) -> None:
        self.lane.send(replies)
        if self.lane.congested:
            await self.lane.drained()

    async def finish(self, status: Status, message: str = "") -> None:
        self.lane.finish(status, message)
        await self.lane.drained()

    def leave(self) -> None:
        self.lane.finish()

    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None:
        self.lane.cancel_on_close(scope)


@final
@frozen
class PlainLink:
    """A stream as grpclib handles it."""

    stream: Stream[ProcessingRequest, ProcessingResponse]

    async def receive(self) -> Sequence[ProcessingRequest]:
        message = await self.stream.recv_message()
        return [] if message is None else [message]

    async def send(self, replies: Iterable[bytes]) -> None:
        sender: Any = self.stream
        for reply in replies:
            await sender.send_message(Prepared(reply))

    async def finish(self, status: Status, message: str = "") -> None:
        await self.stream.send_trailing_metadata(status=status, status_message=message or None)

    def leave(self) -> None:
        """Only whoever handles the stream may end it: it stays until the proxy does."""

    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None:
        """grpclib cancels the whole handler when the stream ends."""


@final
@frozen(kw_only=True)
class Listening:
    """Where and how the server listens."""

    host: str | None
    """None: every address of the machine."""
    port: int
    tls: ssl.SSLContext | None = None
    sessions: SessionSettings = SessionSettings()
    plain: bool = False
    """Leave everything to grpclib: the switch that turns the fast path off."""
    response_figures: bool = True
    """Whether responses are waited for, for the sake of the figures about them alone."""


@final
@define(eq=False)
class ExtProcServer:
    """Serves ext_proc until cancelled."""

    listening: Listening
    wiring: Latest[Wiring]
    datastore: Datastore
    figures: Figures
    random: Random
    reader: BodyReader = field(factory=BodyReader)
    follow: Callable[[Observer], Observer] | None = None
    """Puts another observer before the one of a conversation that begins."""
    open_streams: Latest[int] = field(factory=lambda: Latest(0), init=False)
    draining: bool = field(default=False, init=False)
    _talks: dict[Session, Link] = field(factory=dict[Session, Link], init=False)
    _next_complaint: float = field(default=float("-inf"), init=False)
    _met: dict[Modes, Wiring] = field(factory=dict[Modes, Wiring], init=False)
    """The modes that proxies came with, and the configuration that was remarked upon then."""
    _server: TreeServer | None = field(default=None, init=False)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Raises OSError when the port cannot be had."""
        async with anyio.create_task_group() as tasks:
            crew = Crew(tasks, self._converse_on)
            self._server = TreeServer(
                tasks,
                {PROCESS: self._method()},
                config=Configuration(
                    http2_connection_window_size=16 * MIB, http2_stream_window_size=4 * MIB
                ),
                message_limit=self.listening.sessions.body_limit + SLACK,
                lanes_for=PROCESS,
                open_lane=None if self.listening.plain else crew.take,
            )
            where = self.listening
            await self._server.serve(where.host, where.port, where.tls, task_status=task_status)

    def _method(self) -> Method:
        async def process(stream: Stream[ProcessingRequest, ProcessingResponse]) -> None:
            await self._converse(PlainLink(stream))

        return Method(process, Cardinality.STREAM_STREAM, ProcessingRequest, ProcessingResponse)

    async def drain(self, *, most: float, quiet: float) -> None:
        """Go on serving until no stream was open for *quiet* seconds, at most *most* seconds.

        Streams that do nothing but wait for the end of a response are ended at once.
        """
        self.draining = True
        for session, link in self._talks.items():
            if session.over and not session.full_duplex:  # there a response may be on its way
                link.leave()
        with anyio.move_on_after(most):
            while True:
                await self.open_streams.until(0)
                version = self.open_streams.version
                with anyio.move_on_after(quiet):
                    await self.open_streams.newer(version)
                if self.open_streams.version == version:
                    break
        if self._server is not None:
            self._server.go_away()

    # -- one stream ---------------------------------------------------------------------------

    async def _converse_on(self, lane: Lane) -> None:
        await self._converse(LaneLink(lane))

    async def _converse(self, link: Link) -> None:
        """One conversation, to its end; whatever goes wrong with it stays with it."""
        lane = link.lane if isinstance(link, LaneLink) else None
        if self.figures.streams is not None:
            link = CountedLink(link, self.figures.streams, lane)
        session = Session(
            self.wiring.value,
            lambda: self.datastore.snapshot,
            self.listening.sessions,
            anyio.current_time,
            self._observer(),
            self.random,
            self._awaits_end,
        )
        if lane is not None:
            lane.shortcut = partial(_reply_at_once, session)
        self._talks[session] = link
        self.open_streams.set(self.open_streams.value + 1)
        broken = False
        try:
            await self._exchange(session, link)
            if session.unseen or session.wiring.processing.response_end:
                await checkpoint()  # the end leaves before plugins hear of it
        except DecodeError as exc:
            broken = True
            self._note_nonsense(exc)
            await link.finish(Status.INVALID_ARGUMENT, "not an ext_proc message")
        except Exception as exc:
            broken = True
            await self._apologise(session, link, exc)
        finally:
            del self._talks[session]
            self.open_streams.set(self.open_streams.value - 1)
            if isinstance(link, CountedLink):
                link.ended()
            self._account(session, broken=broken)

    def _observer(self) -> Observer:
        """Who follows a conversation: the figures, and what else is wanted."""
        observer: Observer = self.figures.observe()
        if decision_log.wanted():
            observer = decision_log.DecisionLog(observer)
        return observer if self.follow is None else self.follow(observer)

    def _awaits_end(self, session: Session) -> bool:
        """Not while draining, when nobody counts any more; else where somebody wants to know.

        Outside full duplex the end of the response costs nothing to wait for.
        """
        if self.draining:
            return False
        if self.listening.response_figures or not session.full_duplex:
            return True
        counted = session.request is not None and session.request.awaited
        return counted or session.wiring.processing.response_end

    async def _exchange(self, session: Session, link: Link) -> None:
        """What comes is acted upon in functions of their own, whose ends let go of the bodies."""
        while True:
            messages = await link.receive()
            await self._act(session, link, messages)
            if not messages or session.over:
                break
            del messages
            if session.unseen:
                await checkpoint()  # what was sent leaves first
                session.observe()
        await link.finish(Status.OK)

    async def _act(
        self, session: Session, link: Link, messages: Sequence[ProcessingRequest]
    ) -> None:
        """As the proxy's *messages* want it."""
        replies: list[bytes] = []
        for message in messages:
            event = event_of(message)
            commands = [] if event is None else session.handle(event)
            while commands and isinstance(commands[-1], WAITING):
                await link.send(replies)
                replies.clear()
                commands = await self._wait(session, link, commands[-1])
            while len(commands) > AT_ONCE:
                await link.send([*replies, *map(reply_of, commands[:AT_ONCE])])
                await checkpoint()  # others have their turn
                replies.clear()
                del commands[:AT_ONCE]
            replies += map(reply_of, commands)
        await link.send(replies)

    async def _wait(self, session: Session, link: Link, wanted: Read | Decide) -> list[Command]:
        """Wait for what cannot be had at once; the end of the stream ends the waiting."""
        with anyio.CancelScope() as scope:
            link.cancel_on_close(scope)
            try:
                if isinstance(wanted, Read):
                    return session.was_read(wanted.body, *await self.reader.read(wanted))
                return await self._decide(session, wanted)
            except Refusal as refusal:
                return session.refuse(refusal)
            finally:
                link.cancel_on_close(None)
        return []

    async def _decide(self, session: Session, wanted: Decide) -> list[Command]:
        director = session.wiring.director
        started = perf_counter()
        outcome = await director.decide(wanted.request, wanted.parsed, self.datastore.snapshot)
        session.observer.picked(wanted.request, outcome, perf_counter() - started)
        return session.decided(outcome)

    async def _apologise(self, session: Session, link: Link, exc: Exception) -> None:
        """Something that must not happen did: the client hears of it, nothing else suffers."""
        logger.error("a request failed inside the picker: %s", where_raised(exc))
        logger.debug("a request failed inside the picker", exc_info=exc)
        refusal = Refusal(500, "internal error of the endpoint picker")
        try:
            await link.send(map(reply_of, session.refuse(refusal)))
            await link.finish(Status.OK)
        except Exception as other:
            logger.debug("and could not be answered", exc_info=other)

    def _note_nonsense(self, exc: DecodeError) -> None:
        """Seldom above debug: how often it happens is the peer's choice."""
        now = anyio.current_time()
        seldom = now >= self._next_complaint
        if seldom:
            self._next_complaint = now + COMPLAIN_EVERY
        level = logging.WARNING if seldom else logging.DEBUG
        logger.log(level, "a peer does not speak ext_proc: %s", exc)

    def _remark(self, modes: Modes, wiring: Wiring) -> None:
        """Say once what a proxy's modes mean for the configuration in use."""
        if self._met.get(modes) is wiring or wiring is not self.wiring.value:
            return
        self._met[modes] = wiring
        logger.info("a proxy's mode is %s", name_of(modes))
        for remark in remarks(modes, wiring, figures=self.listening.response_figures):
            logger.warning("with the mode %s %s", name_of(modes), remark)

    def _account(self, session: Session, *, broken: bool) -> None:
        session.close(broken=broken)
        forget_origin(session.refusal)
        if session.request is not None:
            self._remark(session.modes, session.wiring)


def _reply_at_once(session: Session, message: bytes) -> bytes | None:
    """The reply to a piece of a response that only passes by."""
    if session.passing is None or (piece := piece_of(message)) is None:
        return None
    session.passing.note(piece)
    return chunk_reply(Part.RESPONSE_BODY, piece)
