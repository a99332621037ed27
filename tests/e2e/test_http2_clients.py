"""Clients that speak HTTP/2, with all their requests on one connection."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from attrs import evolve

from pointsman.actors.sim.envoy_bootstrap import Mode

from .clients import Ask, http2
from .gateway import Gateway, Layout, chat, eventually, gateway
from .model_servers import EVENTS, STREAM
from .modes import INCREMENTAL, in_each

LARGE = "0123456789abcdef" * (1 << 17)


@asynccontextmanager
async def over_http2(where: Layout, mode: Mode) -> AsyncGenerator[tuple[Gateway, Ask]]:
    settings = evolve(where.envoy(), mode=mode)
    async with gateway(where, settings) as under_test, http2(settings.listen) as ask:
        yield under_test, ask


@in_each(INCREMENTAL)
async def test_chats_streams_and_large_bodies_share_a_connection(where: Layout, mode: Mode) -> None:
    answers: dict[str, bytes] = {}

    async def note(ask: Ask, name: str, body: bytes) -> None:
        async with ask(body) as answer:
            assert answer.status == 200
            answers[name] = await answer.read()

    async with over_http2(where, mode) as (under_test, ask):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note, ask, "large", chat(LARGE))
            tasks.start_soon(note, ask, "stream", chat("hello", stream=True))
            tasks.start_soon(note, ask, "chat", chat("wörld"))
        await eventually(under_test.is_idle)
        connections = await under_test.stat("http.inference.downstream_cx_http2_total")
    contents = {
        name: json.loads(answers[name])["choices"][0]["message"]["content"]
        for name in ("large", "chat")
    }
    assert contents == {"large": LARGE, "chat": "wörld"}
    assert answers["stream"] == STREAM
    assert connections == 1


@in_each(INCREMENTAL)
async def test_an_abandoned_stream_is_over_and_its_connection_goes_on(
    where: Layout, mode: Mode
) -> None:
    async with over_http2(where, mode) as (under_test, ask):
        under_test.best.hold()
        async with ask(chat("hello", stream=True)) as left, ask(chat("hello", stream=True)) as kept:
            assert await anext(left.pieces) == EVENTS[0]
            assert await anext(kept.pieces) == EVENTS[0]
            assert await under_test.in_flight() == 2
        await eventually(lambda: under_test.best.running == 0)
        await eventually(under_test.is_idle)
        under_test.best.release()
        async with ask(chat("hello", stream=True)) as answer:
            assert await answer.read() == STREAM
        assert await under_test.stat("http.inference.downstream_cx_http2_total") == 1
