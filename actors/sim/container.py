"""A model server as a container runs it: it can be asked to finish what it has begun."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, final

import anyio
import attrs
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup
from attrs import define, field

from pointsman.actors.http import Request, Response, serve
from pointsman.kernel.channel import Latest

from .model_server import ModelServer
from .pods import Pod

ADDRESS: Final = "x-inference-address"
"""The header that says where the server is which answered: names pass on to other pods."""
CLOSE: Final = ("connection", "close")


@final
@define(eq=False)
class Container:
    """One run of a model server."""

    pod: Pod
    listener: Listener[SocketStream]
    speed: float = 1.0
    _server: ModelServer = field(init=False)
    _finishing: anyio.Event = field(factory=anyio.Event, init=False)
    _shut: anyio.Event = field(factory=anyio.Event, init=False)
    _open: Latest[int] = field(factory=lambda: Latest(0), init=False)
    """Requests that have begun and not ended."""

    def __attrs_post_init__(self) -> None:
        self._server = ModelServer(self.pod, self.speed)

    async def run(self) -> None:
        """Serve until cancelled, which cuts off whatever is not finished."""
        door = _Door(self.listener, self._finishing, self._shut)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._server.run)
            tasks.start_soon(serve, door, self._handle)

    def refuse(self) -> None:
        """Take no more connections; those that are there end with their next answer."""
        self._finishing.set()

    async def finish(self, quiet: float = 0.0) -> None:
        """Refuse, and wait until no request has been open for *quiet* seconds."""
        self.refuse()
        await self._shut.wait()
        over = False
        while not over:
            await self._open.until(0)
            with anyio.move_on_after(quiet) as waiting:
                await self._open.newer(self._open.version)
            over = waiting.cancelled_caught

    async def _handle(self, request: Request) -> Response:
        self._open.set(self._open.value + 1)
        try:
            response = await self._server.handle(request)
        except BaseException:
            self._close()
            raise
        headers = (*response.headers, (ADDRESS, f"{self.pod.address}:{self.pod.port}"))
        if self._finishing.is_set():
            headers = (*headers, CLOSE)
        done = response.on_done
        return attrs.evolve(response, headers=headers, on_done=lambda: self._close(done))

    def _close(self, done: Callable[[], None] | None = None) -> None:
        self._open.set(self._open.value - 1)
        if done is not None:
            done()


@final
@define(eq=False)
class _Door(Listener[SocketStream]):
    """Lets clients in until it is to close; those who are in may stay."""

    listener: Listener[SocketStream]
    closing: anyio.Event
    closed: anyio.Event

    async def serve(
        self, handler: Callable[[SocketStream], Any], task_group: TaskGroup | None = None
    ) -> None:
        async with AsyncExitStack() as stack:
            if task_group is None:
                task_group = await stack.enter_async_context(anyio.create_task_group())
            async with anyio.create_task_group() as accepting:
                accepting.start_soon(self.listener.serve, handler, task_group)
                await self.closing.wait()
                accepting.cancel_scope.cancel()
            for last in self._close():
                task_group.start_soon(handler, await SocketStream.from_socket(last))
            await self.listener.aclose()
            self.closed.set()
            await anyio.sleep_forever()

    def _close(self) -> list[socket.socket]:
        """Close, and return those who had come to the door: closing alone would reset them."""
        door = self.listener.extra(SocketAttribute.raw_socket)
        came: list[socket.socket] = []
        with suppress(BlockingIOError):
            while True:
                came.append(door.accept()[0])
        door.close()
        return came

    async def aclose(self) -> None:
        await self.listener.aclose()
