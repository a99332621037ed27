"""Many clients of several kinds at once, which go on whatever happens to Envoy and the picker."""

from __future__ import annotations

import enum
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import anyio
from attrs import define, field

from .clients import Ask, Cut, http1, http2
from .gateway import Gateway, Layout, chat, eventually
from .model_servers import STREAM, ModelServer

STREAMS: Final = 60  # that are in the middle of their answer when something happens
CHATTING: Final = 20
LEAVING: Final = 20
LARGE: Final = 10_000  # repetitions of a prompt
PAUSE: Final = 0.3  # seconds between two requests of one client: the machine is small
WITHIN: Final = 60.0  # seconds in which every request has to end; streams are held for long
PATIENCE: Final = 0.3  # seconds after which clients have left
GAUGES: Final = re.compile(
    r"^(pointsman_open_streams|llm_d_epp_request_running"
    r"|llm_d_epp_inflight_(?:requests|tokens))(?:\{.*\})? (\S+)$",
    re.MULTILINE,
)


class Ending(enum.Enum):
    """How a request ended. There is none for an answer that is not what was asked for."""

    WHOLE = "whole"
    REFUSED = "refused"
    CUT = "cut"
    LEFT = "left"


@define(eq=False)
class Load:
    """Clients whose requests all end, somehow; how, is counted."""

    servers: Sequence[ModelServer]
    asks: Sequence[Ask]
    """The protocols; requests are spread over them."""
    streams: Counter[Ending] = field(factory=Counter[Ending], init=False)
    """Those that ran when something happened."""
    chats: Counter[Ending] = field(factory=Counter[Ending], init=False)
    leavers: Counter[Ending] = field(factory=Counter[Ending], init=False)
    _random: Random = field(factory=lambda: Random(6), init=False)
    _stopping: bool = field(default=False, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)

    async def run(self) -> None:
        """Ask until told to stop, and then until the last answer has ended."""
        async with anyio.create_task_group() as tasks:
            for number in range(STREAMS):
                tasks.start_soon(self._stream, self._ask(number))
            await eventually(self.streams_run)
            for number in range(CHATTING):
                tasks.start_soon(self._chat, self._ask(number), number)
            for number in range(LEAVING):
                tasks.start_soon(self._leave, self._ask(number))
        self._ended.set()

    @property
    def others(self) -> Counter[Ending]:
        """How all those ended that were not held."""
        return self.chats + self.leavers

    def streams_run(self) -> bool:
        return sum(server.running for server in self.servers) == STREAMS

    async def is_in_full_swing(self) -> None:
        await eventually(lambda: self.chats[Ending.WHOLE] >= CHATTING)
        await eventually(lambda: self.leavers[Ending.LEFT] >= LEAVING)

    async def is_served_again(self) -> None:
        """Wait until as many chats were served as there are clients of this kind."""
        before = self.chats[Ending.WHOLE]
        await eventually(lambda: self.chats[Ending.WHOLE] >= before + CHATTING)

    def release(self) -> None:
        """Let the servers go on with their streams."""
        for server in self.servers:
            server.release()

    async def end(self) -> None:
        """Let every client's request be its last, and wait until the last one has ended."""
        self._stopping = True
        self.release()
        await self._ended.wait()  # each request has its own deadline

    def _ask(self, number: int) -> Ask:
        return self.asks[number % len(self.asks)]

    async def _stream(self, ask: Ask) -> None:
        self.streams[await ending(ask, chat("hello", stream=True), STREAM)] += 1

    async def _chat(self, ask: Ask, number: int) -> None:
        """Short and long ones by turns."""
        while not self._stopping:
            prompt = f"prompt {number} " * (LARGE if number % 10 == 0 else 1)
            self.chats[await ending(ask, chat(prompt), prompt)] += 1
            number += 1
            await anyio.sleep(PAUSE)

    async def _leave(self, ask: Ask) -> None:
        """Before the answer, at its beginning, or in its middle."""
        while not self._stopping:
            how = Ending.LEFT
            with anyio.move_on_after(self._random.uniform(0, PATIENCE)):
                how = await ending(ask, chat("hello", stream=True), STREAM)
            self.leavers[how] += 1
            await anyio.sleep(PAUSE)


async def ending(ask: Ask, body: bytes, expected: str | bytes) -> Ending:
    """Ask, and judge the answer. A request that does not end fails the test."""
    try:
        with anyio.fail_after(WITHIN):
            async with ask(body) as answer:
                received = await answer.read()
    except Cut:
        return Ending.CUT
    if answer.status >= 500:
        return Ending.REFUSED
    assert answer.status == 200, (answer.status, received)
    if isinstance(expected, str):
        assert json.loads(received)["choices"][0]["message"]["content"] == expected
    else:
        assert received == expected
    return Ending.WHOLE


@asynccontextmanager
async def load(where: Layout) -> AsyncGenerator[Load]:
    """All clients are busy when the block begins; after it, every request has ended."""
    for server in where.servers:
        server.hold()
    async with (
        http1(where.listen) as one,
        http2(where.listen) as two,
        anyio.create_task_group() as tasks,
    ):
        clients = Load(where.servers, (one, two))
        tasks.start_soon(clients.run)
        await clients.is_in_full_swing()
        yield clients
        await clients.end()


async def gauges(under_test: Gateway) -> Counter[str]:
    """What the picker believes to be on its way."""
    metrics = await under_test.client.get(f"http://{under_test.layout.metrics}/metrics")
    found = Counter[str]()
    for name, value in GAUGES.findall(metrics.text):
        found[name] += int(float(value))
    return found
