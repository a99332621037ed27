"""What clients see while a picker dies, hangs, drains or comes back."""

from __future__ import annotations

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from attrs import define, evolve, field

from pointsman.actors.sim.envoy_bootstrap import DESTINATION, Mode

from .gateway import SOON, Gateway, Layout, chat, eventually, gateway, running_picker
from .model_servers import STREAM
from .modes import HOLDING_THE_BODY, in_each, in_each_mode


@define(eq=False)
class Client:
    """Asks for one stream and waits for all of it."""

    gateway: Gateway
    responses: list[httpx.Response] = field(factory=list[httpx.Response], init=False)

    async def run(self) -> None:
        self.responses.append(await self.gateway.chat(stream=True))


@asynccontextmanager
async def held_stream(under_test: Gateway) -> AsyncGenerator[Client]:
    """Keep one response from ending during the block, then wait for its client."""
    client = Client(under_test)
    under_test.best.hold()
    async with anyio.create_task_group() as clients:
        clients.start_soon(client.run)
        await eventually(lambda: under_test.best.running == 1)
        yield client
        under_test.best.release()


async def kill_picker(under_test: Gateway) -> None:
    under_test.picker.kill()
    await under_test.picker.wait()
    await eventually(under_test.lost_picker)


@in_each_mode
async def test_requests_fail_without_a_picker_and_succeed_when_it_is_back(
    where: Layout, mode: Mode
) -> None:
    async def is_served() -> bool:
        return (await under_test.chat()).status_code == 200

    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        assert await is_served()
        await kill_picker(under_test)
        assert not await is_served()
        async with running_picker(where, where.servers):
            await eventually(is_served)


@in_each(HOLDING_THE_BODY)
async def test_a_running_response_survives_a_killed_picker_where_failure_is_allowed(
    where: Layout, mode: Mode
) -> None:
    settings = evolve(where.envoy(), mode=mode, failure_mode_allow=True)
    async with gateway(where, settings) as under_test, held_stream(under_test) as client:
        await kill_picker(under_test)
        under_test.best.release()
        await eventually(lambda: bool(client.responses))
    assert client.responses[0].content == STREAM


@in_each(HOLDING_THE_BODY)
async def test_without_a_picker_the_servers_take_turns_where_failure_is_allowed(
    where: Layout, mode: Mode
) -> None:
    settings = evolve(where.envoy(), mode=mode, failure_mode_allow=True)
    async with gateway(where, settings) as under_test:
        await kill_picker(under_test)
        responses = [await under_test.chat() for _ in where.servers]
    pods = [response.headers["x-inference-pod"] for response in responses]
    assert sorted(pods) == sorted(server.name for server in where.servers)


@in_each(HOLDING_THE_BODY)
@pytest.mark.parametrize(("allowed", "status"), [(False, 504), (True, 200)])
async def test_a_hanging_picker_is_given_up_after_the_message_timeout(
    where: Layout, mode: Mode, allowed: bool, status: int
) -> None:
    settings = evolve(where.envoy(), mode=mode, failure_mode_allow=allowed, message_timeout=0.25)
    async with gateway(where, settings) as under_test:
        under_test.picker.send(signal.SIGSTOP)
        response = await under_test.chat()
        under_test.picker.send(signal.SIGCONT)
    assert response.status_code == status


async def test_without_a_picker_a_client_cannot_choose_its_destination(where: Layout) -> None:
    settings = evolve(where.envoy(), failure_mode_allow=True, fallback=())
    async with gateway(where, settings) as under_test:
        await kill_picker(under_test)
        response = await under_test.post(chat("hello"), {DESTINATION: str(under_test.best.address)})
    assert response.status_code == 503
    assert not under_test.best.received


@in_each_mode
async def test_a_terminated_picker_lets_a_running_stream_end(where: Layout, mode: Mode) -> None:
    async def is_draining() -> bool:
        return not await where.is_ready()

    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        async with held_stream(under_test) as client:
            under_test.picker.terminate()
            await eventually(is_draining)
        with anyio.fail_after(SOON):
            assert await under_test.picker.wait() == 0
    assert client.responses[0].content == STREAM


async def test_a_body_above_the_buffer_limit_is_refused_by_envoy(where: Layout) -> None:
    settings = evolve(where.envoy(), mode=Mode.LEAN_BUFFERED, buffer_limit=1 << 20)
    async with gateway(where, settings) as under_test:
        response = await under_test.chat("x" * (1 << 20))
    assert response.status_code == 413
