"""The server behind real sockets: what becomes of watches whose clients leave."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest
from anyio.abc import SocketAttribute, SocketStream

from pointsman.actors.http import Request, Response, serve
from pointsman.actors.sim.kube.samples import pod
from pointsman.actors.sim.kube.server import ApiServer

from .kit import PODS

WATCH = f"GET {PODS}?watch=1 HTTP/1.1\r\nhost: kube\r\n\r\n".encode()


@asynccontextmanager
async def connected(server: ApiServer) -> AsyncGenerator[SocketStream]:
    """A client of *server*, over a socket; afterwards, the server has noticed that it left."""
    noticed = anyio.Event()

    async def handle(request: Request) -> Response:
        response = await server.handle(request)

        def done() -> None:
            if response.on_done is not None:
                response.on_done()
            noticed.set()

        return attrs.evolve(response, on_done=done)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, listener, handle)
            port = listener.extra(SocketAttribute.local_port)
            async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                yield stream
            await noticed.wait()
            tasks.cancel_scope.cancel()


async def received(stream: SocketStream, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        data += await stream.receive()
    return data


async def leave_a_watch(server: ApiServer) -> None:
    async with connected(server) as stream:
        await stream.send(WATCH)
        head = await received(stream, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert len(server.watches) == 1
        server.create(pod("a", ip="10.0.0.1"))
        assert b'"name":"a"' in await received(stream, b"ADDED")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_watch_ends_with_its_client(backend: str) -> None:
    server = ApiServer()
    anyio.run(leave_a_watch, server, backend=backend)
    assert server.watches == frozenset()


async def leave_in_the_middle(server: ApiServer) -> None:
    for number in range(300):
        server.create(pod(f"p-{number}", ip="10.0.0.1", annotations={"much": "x" * 50_000}))
    async with connected(server) as stream:
        await stream.send(WATCH)
        await received(stream, b"ADDED")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_client_may_leave_in_the_middle_of_a_line(backend: str) -> None:
    server = ApiServer()
    anyio.run(leave_in_the_middle, server, backend=backend)
    assert server.watches == frozenset()
