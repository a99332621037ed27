"""Playing scripts over gRPC with gRPC's own client, which takes and gives bytes as they are."""

from __future__ import annotations

from asyncio import InvalidStateError
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from random import Random
from typing import Any, Final

import anyio
from attrs import frozen
from tests.actors.scripts import Desk

from pointsman.actors.extproc_server import ExtProcServer, Listening
from pointsman.actors.figures import Figures
from pointsman.actors.sim.processes import free_ports
from pointsman.kernel.channel import Latest
from pointsman.proto import PROCESS

from .script import Script, Setup, Step, Told

grpc: Any = import_module("grpc")
aio: Any = import_module("grpc.aio")
PATIENCE: Final = 15.0  # seconds until a conversation that waits has failed
AT_ONCE: Final = 200  # conversations


@frozen
class House:
    """A running server, and a connection to it."""

    desk: Desk
    server: ExtProcServer
    channel: Any

    def call(self) -> Any:
        return self.channel.stream_stream(PROCESS)(timeout=PATIENCE)


@asynccontextmanager
async def serving(
    setups: Collection[Setup], *, plain: bool
) -> AsyncGenerator[Mapping[Setup, House]]:
    """A server for each of *setups*, on loopback, in the loop of whoever asks."""
    async with anyio.create_task_group() as tasks, AsyncExitStack() as channels:
        houses: dict[Setup, House] = {}
        for setup, port in zip(setups, free_ports(len(setups)), strict=True):
            desk = setup.desk()
            listening = Listening(
                host="127.0.0.1",
                port=port,
                plain=plain,
                sessions=setup.settings,
                response_figures=setup.response_figures,
            )
            wiring = Latest(desk.wiring)
            server = ExtProcServer(listening, wiring, desk.datastore, Figures(), Random(1))
            await tasks.start(server.run)
            channel = aio.insecure_channel(f"127.0.0.1:{port}")
            houses[setup] = House(desk, server, await channels.enter_async_context(channel))
        yield houses
        tasks.cancel_scope.cancel()


async def told_to_all(
    scripts: Collection[Script], *, plain: bool, patient: bool = True
) -> Mapping[Script, Told]:
    """What each script's proxy hears; many talk at once.

    Args:
        patient: whether a proxy waits for its replies to each step before the next.
    """
    hear = _heard if patient else _heard_at_once
    told: dict[Script, Told] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(house: House, script: Script) -> None:
        async with limiter:
            told[script] = await hear(house.call(), script)

    setups = {script.setup for script in scripts}
    async with serving(setups, plain=plain) as houses, anyio.create_task_group() as talks:
        for script in scripts:
            talks.start_soon(one, houses[script.setup], script)
    return told


async def _heard(call: Any, script: Script) -> Told:
    """A surplus reply is the answer to one step more."""
    replies: list[Sequence[bytes]] = []
    with suppress(aio.AioRpcError, InvalidStateError):  # the status tells
        for one in script.steps:
            replies += [await ask(call, one)]
        if not script.over:
            await call.done_writing()
        if surplus := await rest(call):
            replies.append(surplus)
    return Told(replies, script.over, (await call.code()).name)


async def _heard_at_once(call: Any, script: Script) -> Told:
    """All replies are the answer to all steps."""
    for one in script.steps:
        await call.write(one.says)
    if not script.over:
        await call.done_writing()
    return Told([await rest(call)], script.over, (await call.code()).name)


async def ask(call: Any, one: Step) -> Sequence[bytes]:
    """As many replies as the step has, unless the stream ends before."""
    await call.write(one.says)
    replies = [await call.read() for _ in one.hears]
    return tuple(reply for reply in replies if reply is not aio.EOF)


async def rest(call: Any) -> Sequence[bytes]:
    """Everything until the daemon ends the stream."""
    replies: list[bytes] = []
    while (reply := await call.read()) is not aio.EOF:
        replies.append(reply)
    return tuple(replies)
