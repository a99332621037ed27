from __future__ import annotations

import anyio
import httpx
import pytest
from attrs import evolve

from pointsman.actors.sim.envoy_bootstrap import DESTINATION, Mode

from .gateway import Gateway, Layout, chat, eventually, gateway
from .model_servers import EVENTS, MODEL, STREAM, ModelServer
from .modes import INCREMENTAL, in_each, in_each_mode


def pod_of(response: httpx.Response) -> str:
    return response.headers["x-inference-pod"]


@in_each_mode
async def test_a_chat_reaches_the_least_loaded_server(where: Layout, mode: Mode) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        response = await under_test.chat("wörld")
    assert response.status_code == 200
    assert pod_of(response) == under_test.best.name
    assert response.json()["choices"][0]["message"] == {"role": "user", "content": "wörld"}
    assert under_test.best.received[-1].body == chat("wörld")


@in_each_mode
async def test_a_stream_arrives_whole(where: Layout, mode: Mode) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        response = await under_test.chat(stream=True)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content == STREAM


@in_each(INCREMENTAL)
async def test_a_stream_arrives_while_it_is_produced(where: Layout, mode: Mode) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        under_test.best.hold()
        body = chat("hello", stream=True)
        async with under_test.client.stream(
            "POST", "/v1/chat/completions", content=body
        ) as response:
            arriving = response.aiter_raw()
            begun = await anext(arriving)
            under_test.best.release()
            rest = b"".join([part async for part in arriving])
    assert begun == EVENTS[0]
    assert begun + rest == STREAM


@in_each_mode
async def test_models_are_listed(where: Layout, mode: Mode) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        response = await under_test.client.get("/v1/models")
    assert response.status_code == 200
    assert response.json()["data"][0]["id"] == MODEL
    assert pod_of(response) in {server.name for server in where.servers}


@in_each_mode
async def test_an_empty_pool_is_unavailable(where: Layout, mode: Mode) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode), pool=()) as under_test:
        response = await under_test.chat()
    assert_refused(response, 503)


@in_each_mode
async def test_a_body_that_is_not_json_is_refused_and_others_are_served(
    where: Layout, mode: Mode
) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        refused = await under_test.post(b'{"model": "tiny", "messages": [')
        served = await under_test.chat()
    assert_refused(refused, 400)
    assert served.status_code == 200


def assert_refused(response: httpx.Response, status: int) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["code"] == status
    assert error["message"]
    assert error["type"]


@in_each_mode
@pytest.mark.parametrize("size", [2 << 20, 60 << 20])
async def test_a_large_body_arrives_whole(where: Layout, mode: Mode, size: int) -> None:
    body = chat("0123456789abcdef" * (size >> 4))
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        response = await under_test.post(body)
    assert response.status_code == 200
    assert under_test.best.received[-1].body == body


@in_each_mode
async def test_fifty_requests_at_once_get_their_own_answers(where: Layout, mode: Mode) -> None:
    answers: dict[str, str] = {}

    async def ask(under_test: Gateway, prompt: str) -> None:
        response = await under_test.chat(prompt)
        answers[prompt] = response.json()["choices"][0]["message"]["content"]

    prompts = [f"prompt {n}" for n in range(50)]
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        async with anyio.create_task_group() as tasks:
            for prompt in prompts:
                tasks.start_soon(ask, under_test, prompt)
        await eventually(under_test.is_idle)
    assert answers == {prompt: prompt for prompt in prompts}


@in_each_mode
async def test_a_client_that_leaves_frees_its_request(where: Layout, mode: Mode) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        under_test.best.hold()
        async with anyio.create_task_group() as clients:
            clients.start_soon(leave_early, under_test)
            await eventually(lambda: under_test.best.running == 1)
            await eventually(under_test.is_busy)
            clients.cancel_scope.cancel()
        await eventually(lambda: under_test.best.running == 0)
        await eventually(under_test.is_idle)


async def leave_early(under_test: Gateway) -> None:
    await under_test.chat(stream=True)
    pytest.fail("the response must not end")


@in_each((Mode.FULL_DUPLEX, Mode.LEAN_BUFFERED))
async def test_the_picker_may_be_reached_over_tls(where: Layout, mode: Mode) -> None:
    settings = evolve(where.envoy(), mode=mode, picker_tls=True)
    async with gateway(where, settings) as under_test:
        response = await under_test.chat()
    assert pod_of(response) == under_test.best.name


@in_each_mode
async def test_the_subset_hint_outweighs_load(where: Layout, mode: Mode) -> None:
    hinted = max(where.servers, key=load)
    settings = evolve(where.envoy(), mode=mode, subset_hint=(hinted.address,))
    async with gateway(where, settings) as under_test:
        response = await under_test.chat()
    assert pod_of(response) == hinted.name


def load(server: ModelServer) -> int:
    return server.waiting


@in_each_mode
async def test_a_subset_without_a_known_endpoint_is_unavailable(where: Layout, mode: Mode) -> None:
    known, *others = where.servers
    settings = evolve(where.envoy(), mode=mode, subset_hint=(known.address,))
    async with gateway(where, settings, pool=others) as under_test:
        response = await under_test.chat()
    assert_refused(response, 503)


@in_each_mode
async def test_the_destination_header_alone_can_route(where: Layout, mode: Mode) -> None:
    settings = evolve(where.envoy(), mode=mode, fallback=())
    async with gateway(where, settings) as under_test:
        response = await under_test.chat()
    assert pod_of(response) == under_test.best.name


@pytest.mark.parametrize("by_header", [True, False])
async def test_a_client_cannot_choose_its_destination(where: Layout, by_header: bool) -> None:
    wanted = max(where.servers, key=load)
    settings = where.envoy() if not by_header else evolve(where.envoy(), fallback=())
    async with gateway(where, settings) as under_test:
        response = await under_test.post(chat("hello"), {DESTINATION: str(wanted.address)})
    assert pod_of(response) == under_test.best.name


@pytest.mark.parametrize(
    ("mode", "messages"),
    [(Mode.FULL_DUPLEX, 6), (Mode.LEAN_DUPLEX, 4), (Mode.LEAN_BUFFERED, 2), (Mode.BUFFERED, 4)],
)
async def test_a_chat_costs_no_more_messages_than_its_mode_promises(
    where: Layout, mode: Mode, messages: int
) -> None:
    async with gateway(where, evolve(where.envoy(), mode=mode)) as under_test:
        await under_test.chat()
        assert await under_test.stat("http.inference.ext_proc.stream_msgs_sent") <= messages
