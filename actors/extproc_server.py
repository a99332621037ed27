"""The gRPC face of the daemon: ext_proc streams become sessions.

grpclib is hosted in the structured-concurrency tree: every stream is a child of one task group,
is cancelled with it and drained by it. This file and its neighbours of the same name are the
only ones that know asyncio, gRPC and protobuf.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterable, Sequence
from random import Random
from time import perf_counter
from typing import Any, Final, Protocol, final

import anyio
from anyio.abc import TaskStatus
from attrs import define, field, frozen
from grpclib.config import Configuration
from grpclib.const import Cardinality, Status
from grpclib.const import Handler as Method
from grpclib.server import Stream

from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import Datastore
from pointsman.kernel.errors import Refusal
from pointsman.kernel.installed import where_raised
from pointsman.kernel.wiring import Wiring
from pointsman.proto import (
    PROCESS,
    DecodeError,
    Prepared,
    ProcessingRequest,
    ProcessingResponse,
    decode,
)

from .conversation import Command, Decide
from .extproc_server_host import TreeServer
from .extproc_server_lane import Lane
from .extproc_server_wire import event_of, reply_of
from .figures import Figures
from .session import Session

logger = logging.getLogger(__name__)

MIB: Final = 1024 * 1024
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
    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None: ...


@final
@frozen
class LaneLink:
    """A stream on the fast path."""

    lane: Lane

    async def receive(self) -> Sequence[ProcessingRequest]:
        return [decode(ProcessingRequest, data) for data in await self.lane.receive()]

    async def send(self, replies: Iterable[bytes]) -> None:
        self.lane.send(replies)
        if self.lane.congested:
            await self.lane.drained()

    async def finish(self, status: Status, message: str = "") -> None:
        self.lane.finish(status, message)
        await self.lane.drained()

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
    body_limit: int = 64 * MIB
    """Bytes of one request body."""
    plain: bool = False
    """Leave everything to grpclib: the switch that turns the fast path off."""


@final
@define(eq=False)
class ExtProcServer:
    """Serves ext_proc until cancelled."""

    listening: Listening
    wiring: Latest[Wiring]
    datastore: Datastore
    figures: Figures
    random: Random
    open_streams: Latest[int] = field(factory=lambda: Latest(0), init=False)
    _server: TreeServer | None = field(default=None, init=False)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Raises OSError when the port cannot be had."""
        async with anyio.create_task_group() as tasks:

            def open_lane(lane: Lane) -> None:
                tasks.start_soon(self._converse, LaneLink(lane))

            self._server = TreeServer(
                tasks,
                {PROCESS: self._method()},
                config=Configuration(
                    http2_connection_window_size=16 * MIB, http2_stream_window_size=4 * MIB
                ),
                message_limit=self.listening.body_limit + SLACK,
                lanes_for=PROCESS,
                open_lane=None if self.listening.plain else open_lane,
            )
            where = self.listening
            await self._server.serve(where.host, where.port, where.tls, task_status=task_status)

    def _method(self) -> Method:
        async def process(stream: Stream[ProcessingRequest, ProcessingResponse]) -> None:
            await self._converse(PlainLink(stream))

        return Method(process, Cardinality.STREAM_STREAM, ProcessingRequest, ProcessingResponse)

    async def drain(self, *, most: float, quiet: float) -> None:
        """Go on serving until no stream was open for *quiet* seconds, at most *most* seconds."""
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

    async def _converse(self, link: Link) -> None:
        """One conversation, to its end; whatever goes wrong with it stays with it."""
        session = Session(
            self.wiring.value,
            lambda: self.datastore.snapshot,
            self.listening.body_limit,
            anyio.current_time,
            self.figures.picked,
            self.random,
        )
        self.open_streams.set(self.open_streams.value + 1)
        broken = True
        try:
            await self._exchange(session, link)
            broken = False
        except DecodeError as exc:
            logger.warning("a peer does not speak ext_proc: %s", exc)
            await link.finish(Status.INVALID_ARGUMENT, "not an ext_proc message")
        except Exception as exc:
            await self._apologise(session, link, exc)
        finally:
            self.open_streams.set(self.open_streams.value - 1)
            self._account(session, broken=broken)

    async def _exchange(self, session: Session, link: Link) -> None:
        while messages := await link.receive():
            replies: list[bytes] = []
            for message in messages:
                event = event_of(message)
                commands = [] if event is None else session.handle(event)
                if commands and isinstance(commands[-1], Decide):
                    await link.send(replies)
                    replies.clear()
                    commands = await self._decide(session, link, commands[-1])
                replies += map(reply_of, commands)
            await link.send(replies)
            if session.over:
                break
        await link.finish(Status.OK)

    async def _decide(self, session: Session, link: Link, wanted: Decide) -> list[Command]:
        """Wait for what the plugins wait for; the end of the stream ends the waiting."""
        director = session.wiring.director
        with anyio.CancelScope() as scope:
            link.cancel_on_close(scope)
            started = perf_counter()
            try:
                outcome = await director.decide(
                    wanted.request, wanted.parsed, self.datastore.snapshot
                )
                self.figures.picked(wanted.request, outcome, perf_counter() - started)
                return session.decided(outcome)
            except Refusal as refusal:
                return session.refuse(refusal)
            finally:
                link.cancel_on_close(None)
        return []

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

    def _account(self, session: Session, *, broken: bool) -> None:
        cause = session.close(broken=broken)
        self.figures.conversation_ended(cause)
        if session.refusal is not None:
            self.figures.refused(session.request, session.refusal)
