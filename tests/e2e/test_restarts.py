"""Pickers that are rolled while responses run, and what a lean mode lets them see."""

from __future__ import annotations

import anyio
import httpx
import pytest
from attrs import evolve

from pointsman.actors.sim.envoy_bootstrap import Mode

from .gateway import SOON, Gateway, Layout, eventually, gateway, running_picker
from .model_servers import STREAM
from .modes import in_each_mode

CLIENTS = 200
RESTARTS = 3


@pytest.mark.parametrize("ending", ["terminate", "kill"])
async def test_no_running_response_is_cut_while_a_lean_picker_is_restarted(
    where: Layout, ending: str
) -> None:
    """Fail-open, 200 streams in the middle of their response, three restarts under them."""
    settings = evolve(where.envoy(), mode=Mode.LEAN_BUFFERED, failure_mode_allow=True)
    responses: list[httpx.Response] = []

    async def ask(under_test: Gateway, client: httpx.AsyncClient) -> None:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "stream": True}
        responses.append(await client.post("/v1/chat/completions", json=body))

    def all_run() -> bool:
        return sum(server.running for server in where.servers) == CLIENTS

    limits = httpx.Limits(max_connections=CLIENTS)
    async with (
        gateway(where, settings) as under_test,
        httpx.AsyncClient(
            base_url=settings.url, trust_env=False, timeout=60.0, limits=limits
        ) as client,
        anyio.create_task_group() as clients,
    ):
        for server in where.servers:
            server.hold()
        for _ in range(CLIENTS):
            clients.start_soon(ask, under_test, client)
        await eventually(all_run)
        picker = under_test.picker
        for _ in range(RESTARTS):
            getattr(picker, ending)()
            with anyio.fail_after(SOON):
                await picker.wait()
            await eventually(under_test.lost_picker)
            async with running_picker(where, where.servers) as picker:
                assert (await under_test.chat()).status_code == 200
        for server in where.servers:
            server.release()
    assert [response.status_code for response in responses] == [200] * CLIENTS
    assert all(response.content == STREAM for response in responses)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_terminated_lean_picker_ends_before_the_responses_do(
    where: Layout, allowed: bool
) -> None:
    """It has nothing more to say about them; nothing is cut, in either failure mode."""
    settings = evolve(where.envoy(), mode=Mode.LEAN_BUFFERED, failure_mode_allow=allowed)
    responses: list[httpx.Response] = []

    async def ask(under_test: Gateway) -> None:
        responses.append(await under_test.chat(stream=True))

    async with gateway(where, settings) as under_test:
        under_test.best.hold()
        async with anyio.create_task_group() as clients:
            clients.start_soon(ask, under_test)
            await eventually(lambda: under_test.best.running == 1)
            under_test.picker.terminate()
            with anyio.fail_after(SOON):
                assert await under_test.picker.wait() == 0
            assert not responses
            under_test.best.release()
    assert responses[0].content == STREAM


@in_each_mode
async def test_streams_end_after_the_decision_when_nothing_waits_for_the_response(
    where: Layout, mode: Mode
) -> None:
    """And the response is whole all the same."""
    responses: list[httpx.Response] = []

    async def ask(under_test: Gateway) -> None:
        responses.append(await under_test.chat(stream=True))

    flags = (*where.flags, "--response-figures=false")
    lean = mode in (Mode.FULL_DUPLEX, Mode.LEAN_DUPLEX)
    async with gateway(evolve(where, flags=flags), evolve(where.envoy(), mode=mode)) as under_test:
        under_test.best.hold()
        async with anyio.create_task_group() as clients:
            clients.start_soon(ask, under_test)
            await eventually(lambda: under_test.best.running == 1)
            assert await under_test.in_flight() == (0 if lean else 1)
            under_test.best.release()
    assert responses[0].content == STREAM
