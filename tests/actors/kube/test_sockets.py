"""Over real sockets, on both event loops: bytes in pieces, TLS, and leaving at once."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from random import Random
from typing import Any, Final

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSStream
from attrs import evolve

from pointsman.actors.kube.access import Access, Login, TlsMaterial, tls_context
from pointsman.actors.kube.client import Client, http_transport
from pointsman.actors.kube.discovery import KubernetesDiscovery, SelectorSettings
from pointsman.actors.kube.errors import Unavailable
from pointsman.actors.kube.kinds import PODS, Selection
from pointsman.actors.sim.kube.certificates import Authority
from pointsman.actors.sim.kube.identity import ADMIN, Authenticator
from pointsman.actors.sim.kube.samples import pod
from pointsman.actors.sim.kube.server import ApiServer
from pointsman.actors.sim.kube.tls import serve_tls
from pointsman.kernel.datastore import Change, Datastore
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.topic import Topics

from .scripts import line
from .scripts import pod as short_pod

SETTINGS: Final = SelectorSettings(namespace="default", name="s", selector="app=x", ports=(8000,))
SELECTION: Final = Selection(PODS, "default")
PATIENCE: Final = 10.0  # seconds; nothing here takes a tenth of one

both_loops = pytest.mark.parametrize("loop", ["asyncio", "trio"])


@cache
def authority() -> Authority:
    return Authority.new()


def run(loop: str, story: Callable[[], Awaitable[None]]) -> None:
    async def within_time() -> None:
        with anyio.fail_after(PATIENCE):
            await story()

    anyio.run(within_time, backend=loop)


@asynccontextmanager
async def served_over_tls(server: ApiServer) -> AsyncGenerator[int, None]:
    """The port of a server that asks for client certificates and is called ``api.test``."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    context = authority().server_context("api.test")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_tls, listener.listeners[0], context, server.handle)
        yield listener.listeners[0].extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def access_by_certificate(port: int, **changes: Any) -> Access:
    pair = authority().client(ADMIN)
    material = TlsMaterial(authority().pem.decode(), pair.certificate.decode(), pair.key.decode())
    access = Access(
        f"https://127.0.0.1:{port}",
        material=material,
        ssl_context=tls_context(material),
        server_name="api.test",
    )
    return evolve(access, **changes)


def login(access: Access) -> Login:
    async def read() -> Access:
        return access

    return Login(read)


@both_loops
def test_a_cluster_is_followed_over_tls_with_a_certificate(loop: str) -> None:
    async def story() -> None:
        server = ApiServer(authenticator=Authenticator(anonymous=False))
        server.create(pod("a", ip="10.0.0.1", labels={"app": "x"}))
        with Mailbox[Change].open("datastore", capacity=99) as inbox:
            store = Datastore(inbox, Topics())
            async with served_over_tls(server) as port, anyio.create_task_group() as tasks:
                access = login(access_by_certificate(port))
                discovery = KubernetesDiscovery(access, SETTINGS, inbox.address, Random(1))
                tasks.start_soon(store.run)
                tasks.start_soon(discovery.run)
                await discovery.synced.until(True)
                server.create(pod("b", ip="10.0.0.2", labels={"app": "x"}))
                version = 0
                while len(store.members.value) < 2:
                    version, _ = await store.members.newer(version)
                tasks.cancel_scope.cancel()
        assert {record.user for record in server.requests} == {"kubernetes-admin"}

    run(loop, story)


@asynccontextmanager
async def shaking_hands() -> AsyncGenerator[int, None]:
    """The port of a server called ``api.test`` that offers TLS and says nothing."""
    context = authority().server_context("api.test")

    async def converse(stream: SocketStream) -> None:
        async with stream:
            with suppress(OSError, anyio.BrokenResourceError, anyio.EndOfStream):
                secure = await TLSStream.wrap(stream, server_side=True, ssl_context=context)
                await secure.receive()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, converse)
        yield listener.extra(SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


@both_loops
@pytest.mark.parametrize(
    "changes",
    [{"server_name": ""}, {"ssl_context": tls_context(TlsMaterial())}],
    ids=["another name", "another authority"],
)
def test_a_server_that_is_not_the_right_one_is_not_talked_to(
    loop: str, changes: dict[str, Any]
) -> None:
    async def story() -> None:
        async with shaking_hands() as port:
            access = login(access_by_certificate(port, **changes))
            async with Client(access, Random(1)) as client:
                with pytest.raises(Unavailable, match=r"(?i)certificate"):
                    await client.list(SELECTION)

    run(loop, story)


@asynccontextmanager
async def raw_server(
    answer: Callable[[SocketStream], Awaitable[None]],
) -> AsyncGenerator[Client, None]:
    """A client of a server that writes bytes, and then holds the connection open."""

    async def converse(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await answer(stream)
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, converse)
        port = listener.extra(SocketAttribute.local_port)
        async with Client(login(Access(f"http://127.0.0.1:{port}")), Random(1)) as client:
            yield client
        tasks.cancel_scope.cancel()


HEAD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@both_loops
def test_an_event_is_told_as_soon_as_its_line_is_complete(loop: str) -> None:
    text = line("ADDED", short_pod("a"))

    async def answer(stream: SocketStream) -> None:
        await stream.send(HEAD + chunk(text[:9]))
        await stream.send(chunk(text[9:]))

    async def story() -> None:
        async with raw_server(answer) as client, client.watch(SELECTION, "1") as watch:
            batch = await watch.batch()
            assert batch is not None
            assert len(list(batch)) == 1

    run(loop, story)


@both_loops
@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + chunk(b'{"type":')], ids=["", "head", "half"])
def test_a_watch_is_left_at_once_wherever_it_waits(loop: str, sent: bytes) -> None:
    async def answer(stream: SocketStream) -> None:
        if sent:
            await stream.send(sent)

    async def follow(client: Client) -> None:
        async with client.watch(SELECTION, "1") as watch:
            await watch.batch()

    async def story() -> None:
        async with raw_server(answer) as client:
            with anyio.move_on_after(0.05) as scope:
                await follow(client)
            assert scope.cancelled_caught

    run(loop, story)


@both_loops
def test_the_kernel_looks_whether_the_peer_is_there(loop: str) -> None:
    async def answer(stream: SocketStream) -> None:
        await stream.send(HEAD)

    async def story() -> None:
        async with raw_server(answer) as client, http_transport(Access("")) as transport:
            access = await client.login.access()
            response = await transport.handle_async_request(httpx.Request("GET", access.host))
            sock = response.extensions["network_stream"].get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
            await response.aclose()

    run(loop, story)
