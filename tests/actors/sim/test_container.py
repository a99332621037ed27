"""A container finishes what it has begun. The tests of its door have real sockets."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator

import anyio
import httpx
import pytest
import trio
from anyio.abc import SocketAttribute
from attrs import define
from trio.testing import MockClock

from pointsman.actors.sim.container import ADDRESS, Container
from pointsman.actors.sim.pods import Pod, PodSettings

from .clients import CHAT
from .doors import Door, answer

HOST = "127.0.79.1"


@define(eq=False)
class Served:
    container: Container
    port: int

    def client(self) -> httpx.AsyncClient:
        url = f"http://{HOST}:{self.port}"
        return httpx.AsyncClient(base_url=url, trust_env=False, timeout=10)


@pytest.fixture
async def served() -> AsyncGenerator[Served]:
    """A container on a socket that answers at once."""
    listener = await anyio.create_tcp_listener(local_host=HOST, local_port=0)
    port: int = listener.extra(SocketAttribute.local_port)
    container = Container(Pod("sim-1", HOST, port, PodSettings()), listener, 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(container.run)
        yield Served(container, port)
        tasks.cancel_scope.cancel()


async def test_answers_say_where_they_come_from(served: Served) -> None:
    async with served.client() as client:
        response = await client.get("/v1/models")
    assert response.headers[ADDRESS] == f"{HOST}:{served.port}"
    assert "connection" not in response.headers


async def test_who_refuses_takes_no_connections_and_ends_those_there_with_an_answer(
    served: Served,
) -> None:
    async with served.client() as client, served.client() as stranger:
        await client.get("/v1/models")
        with anyio.fail_after(10):
            await served.container.finish()
        with pytest.raises(httpx.ConnectError):
            await stranger.get("/v1/models")
        response = await client.get("/v1/models")
        assert response.status_code == 200
        assert response.headers["connection"] == "close"
        with pytest.raises(httpx.ConnectError):
            await client.get("/v1/models")


async def test_who_has_come_to_the_door_when_it_closes_is_let_in(served: Served) -> None:
    with socket.create_connection((HOST, served.port)) as early:
        served.container.refuse()  # before anybody could see who came
        early.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n")
        with anyio.fail_after(10):
            await served.container.finish()
            await anyio.wait_readable(early)
        assert early.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.fixture
def container(nursery: trio.Nursery) -> Container:
    """A container that takes time, without a socket."""
    container = Container(Pod("sim-1", HOST, 8000, PodSettings()), Door())
    nursery.start_soon(container.run)
    return container


async def ask(container: Container, **body: object) -> httpx.Response:
    request = httpx.Request("POST", "/v1/chat/completions", json={**CHAT, **body})
    response = await answer(container, request)
    await response.aread()
    return response


@pytest.mark.parametrize("stream", [True, False])
async def test_it_finishes_with_its_last_request(
    container: Container, nursery: trio.Nursery, autojump_clock: MockClock, stream: bool
) -> None:
    async def one() -> None:
        response = await ask(container, stream=stream, max_tokens=400, ignore_eos=True)
        assert response.status_code == 200
        ended.append(trio.current_time())

    ended: list[float] = []
    nursery.start_soon(one)
    await trio.sleep(1)
    assert not ended
    await container.finish()
    assert trio.current_time() == pytest.approx(ended[0])


async def test_an_idle_one_finishes_at_once(
    container: Container, autojump_clock: MockClock
) -> None:
    started = trio.current_time()
    await container.finish()
    assert trio.current_time() == started


async def test_it_waits_until_nobody_has_asked_for_a_while(
    container: Container, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async def late() -> None:
        await trio.sleep(0.4)
        await ask(container, max_tokens=1)
        ended.append(trio.current_time())

    ended: list[float] = []
    nursery.start_soon(late)
    await container.finish(quiet=0.5)
    assert trio.current_time() == pytest.approx(ended[0] + 0.5)


async def test_a_request_that_is_given_up_is_not_waited_for(
    container: Container, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as clients:
        clients.start_soon(ask, container)
        await trio.sleep(0.1)
        clients.cancel_scope.cancel()
    started = trio.current_time()
    await container.finish()
    assert trio.current_time() == started
