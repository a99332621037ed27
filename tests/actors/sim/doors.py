"""Listeners without sockets: who comes to a server is up to the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import anyio
import httpx
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup
from attrs import define, field

from pointsman.actors.http import Request, Response
from pointsman.actors.sim.container import Container


@define(eq=False)
class Door(Listener[SocketStream]):
    """A listener that nobody comes to, and the part of its socket that is used."""

    address: str = ""
    port: int = 0
    open: bool = True

    async def serve(
        self, handler: Callable[[SocketStream], Any], task_group: TaskGroup | None = None
    ) -> None:
        await anyio.sleep_forever()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {SocketAttribute.raw_socket: lambda: self}

    def accept(self) -> Any:
        raise BlockingIOError

    def close(self) -> None:
        self.open = False

    async def aclose(self) -> None:
        self.close()


@define(eq=False)
class Street:
    """The doors that were opened, and the containers behind them, by address."""

    doors: dict[str, Door] = field(factory=dict[str, Door])
    containers: dict[str, Container] = field(factory=dict[str, Container])

    async def listen(self, *, local_host: str, local_port: int) -> Door:
        """What `anyio.create_tcp_listener` is replaced by."""
        assert not (local_host in self.doors and self.doors[local_host].open)
        self.doors[local_host] = Door(local_host, local_port)
        return self.doors[local_host]

    def contain(self, *arguments: Any) -> Container:
        """What `Container` is replaced by."""
        container = Container(*arguments)
        self.containers[container.pod.address] = container
        return container

    def takes_connections(self, address: str) -> bool:
        return address in self.doors and self.doors[address].open


async def answer(container: Container, request: httpx.Request) -> httpx.Response:
    """What a client gets from *container* over a connection that it has already."""
    response = await container._handle(
        Request(request.method, request.url.path, {}, dict(request.headers), request.content)
    )
    body = response.body if isinstance(response.body, bytes) else Chunks(response)
    if isinstance(body, bytes):
        _done(response)
        return httpx.Response(response.status, headers=list(response.headers), content=body)
    return httpx.Response(response.status, headers=list(response.headers), stream=body)


@define(eq=False)
class Chunks(httpx.AsyncByteStream):
    """The body of an answer that comes in pieces."""

    response: Response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert not isinstance(self.response.body, bytes)
        async for chunk in self.response.body:
            yield chunk

    async def aclose(self) -> None:
        _done(self.response)


def _done(response: Response) -> None:
    assert response.on_done is not None
    response.on_done()
