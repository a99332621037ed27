"""grpclib inside the tree: its handlers are children of a task group, not stray tasks."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast, final

import anyio
from anyio import CancelScope
from anyio.abc import TaskGroup, TaskStatus
from grpclib.config import Configuration
from grpclib.const import Handler as Method
from grpclib.protocol import H2Protocol
from grpclib.protocol import Stream as H2Stream
from grpclib.server import Handler, Server, request_handler

from pointsman.proto import WireCodec

from .extproc_server_edge import EdgeProtocol, TrackedProtocol
from .extproc_server_lane import Lane

HANG_UP: Final = 2.0  # seconds for connections to take what was said last


def _ignore(reason: str) -> None:
    """What a stream does about its end: its cancel scope sees to that."""


@final
class TreeHandler(Handler):
    """Starts a connection's streams in a task group; cancelling is the group's business."""

    def __init__(self, tasks: TaskGroup, mapping: Mapping[str, Method], server: Server) -> None:
        super().__init__(dict(mapping), server._codec, None, server.__dispatch__)
        self._group = tasks
        self._scopes: dict[H2Stream, CancelScope] = {}

    def accept(
        self, stream: H2Stream, headers: list[tuple[str, str]], release_stream: Callable[[], Any]
    ) -> None:
        # grpclib would cancel the native task behind the scope's back.
        vars(stream)["__terminated__"] = _ignore
        self._scopes[stream] = CancelScope()
        self._group.start_soon(self._handle, stream, headers, release_stream)

    async def _handle(
        self, stream: H2Stream, headers: list[tuple[str, str]], release_stream: Callable[[], Any]
    ) -> None:
        try:
            with self._scopes[stream]:
                await request_handler(
                    self.mapping,
                    stream,
                    headers,
                    self.codec,
                    self.status_details_codec,
                    self.dispatch,
                    release_stream,
                )
        finally:
            del self._scopes[stream]

    def cancel(self, stream: H2Stream) -> None:
        if (scope := self._scopes.get(stream)) is not None:
            scope.cancel()

    def close(self) -> None:
        self.closing = True
        for scope in self._scopes.values():
            scope.cancel()

    def check_closed(self) -> bool:
        return not self._scopes


@final
class Services:
    """What grpclib wants of a service: its methods by path."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = dict(methods)

    def __mapping__(self) -> dict[str, Method]:
        return self._methods


@final
class TreeServer(Server):
    """A grpclib server whose streams live in *tasks*; with *open_lane*, one method has lanes."""

    def __init__(
        self,
        tasks: TaskGroup,
        methods: Mapping[str, Method],
        *,
        config: Configuration,
        message_limit: int,
        lanes_for: str = "",
        open_lane: Callable[[Lane], None] | None = None,
    ) -> None:
        untyped = cast("Iterable[Any]", methods.values())
        carried: set[type[Any]] = {t for m in untyped for t in (m.request_type, m.reply_type)}
        super().__init__([Services(methods)], codec=WireCodec(*carried), config=config)
        self._tasks = tasks
        self._message_limit = message_limit
        self._lanes_for = lanes_for
        self._open_lane = open_lane
        self._connections: set[TrackedProtocol] = set()
        self._alone = anyio.Event()
        self._ending = False

    async def serve(
        self,
        host: str | None,
        port: int,
        tls: ssl.SSLContext | None = None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled; then hang up. Raises OSError when the port cannot be had."""
        await self.start(host, port, ssl=tls, reuse_address=True)
        try:
            task_status.started()
            await anyio.sleep_forever()
        finally:
            self.close()
            self._tasks.cancel_scope.cancel()
            with anyio.move_on_after(HANG_UP, shield=True):
                await self._hang_up()

    async def _hang_up(self) -> None:
        self._ending = True
        for connection in tuple(self._connections):
            connection.hang_up()
        await self.until_alone()

    async def until_alone(self) -> None:
        """Wait until no peer is connected."""
        while self._connections:
            self._alone = anyio.Event()
            await self._alone.wait()

    def _made(self, connection: TrackedProtocol) -> None:
        self._connections.add(connection)
        if self._ending:  # it was accepted before, and its handshake took until now
            connection.hang_up()

    def _lost(self, connection: TrackedProtocol) -> None:
        self._connections.discard(connection)
        self._alone.set()

    def _protocol_factory(self) -> H2Protocol:
        handler = TreeHandler(self._tasks, self._mapping, self)
        config, h2_config = self._config, self._h2_config
        if self._open_lane is None:
            return TrackedProtocol(handler, config, h2_config, self._made, self._lost)
        return EdgeProtocol(
            handler,
            config,
            h2_config,
            self._made,
            self._lost,
            path=self._lanes_for,
            open_lane=self._open_lane,
            message_limit=self._message_limit,
        )

    def go_away(self) -> None:
        """Send every peer to other servers; open streams go on."""
        for connection in self._connections:
            connection.go_away()
