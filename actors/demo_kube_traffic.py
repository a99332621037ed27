"""Steady chat requests, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, final

import anyio
import httpx
from attrs import define, field

from pointsman.kernel.channel import Latest

from .sim.container import ADDRESS
from .sim.pods import PodSettings

CHAT: Final = "/v1/chat/completions"
LONG: Final = 4  # one request in so many is a long stream
AT_ONCE: Final = 40  # requests, at most
ATTEMPTS: Final = "x-envoy-attempt-count"
QUESTION: Final = "What is the weather on the line between {} and {}?"
PLACES: Final = ("Goeschenen", "Airolo", "Crewe", "Clapham Junction", "Kiruna", "Narvik")


@final
@define(eq=False)
class Sent:
    """One request, from when it is sent."""

    step: str
    at: float
    """When it was sent, on anyio's clock."""
    pod: str = ""
    address: str = ""
    """Where it was served; empty until its response begins."""
    attempts: int = 1
    ended: float | None = None
    problem: str = ""

    @property
    def ok(self) -> bool:
        return self.ended is not None and not self.problem

    @property
    def running(self) -> bool:
        return self.ended is None


@final
@define(eq=False)
class Traffic:
    """Sends chats at random intervals, whether or not the earlier ones were answered.

    It waits only when so many were not that the servers are overloaded: nobody gets a time-out
    for that.
    """

    client: httpx.AsyncClient
    """Of the gateway."""
    random: Random
    rate: float
    """Requests in a second, on average."""
    step: str = ""
    """Requests are put down under this name from now on."""
    sent: list[Sent] = field(factory=list[Sent], init=False)
    progress: Latest[int] = field(factory=lambda: Latest(0), init=False)
    """How many have ended, well or not; set anew, too, when one begins to be answered."""
    _running: int = field(default=0, init=False)
    _stopped: anyio.Event = field(factory=anyio.Event, init=False)

    async def run(self) -> None:
        """Send until told to stop, and wait for the last answer."""
        async with anyio.create_task_group() as tasks:
            while not self._stopped.is_set():
                if self._running >= AT_ONCE:
                    await self.progress.newer(self.progress.version)
                    continue
                body = self._body(len(self.sent))
                one = Sent(self.step, anyio.current_time())
                self.sent.append(one)
                self._running += 1
                tasks.start_soon(self._send, one, body)
                with anyio.move_on_after(self.random.expovariate(self.rate)):
                    await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* holds, which is asked whenever a response begins or ends."""
        while not condition():
            await self.progress.newer(self.progress.version)

    async def more(self, count: int) -> None:
        """Wait until *count* requests that were sent from now on have ended."""
        first = len(self.sent)
        await self.until(lambda: sum(not one.running for one in self.sent[first:]) >= count)

    def of(self, step: str) -> Sequence[Sent]:
        """The requests that were sent during a step."""
        return [one for one in self.sent if one.step == step]

    def running_at(self, address: str) -> Sequence[Sent]:
        """The requests that are being answered there."""
        return [one for one in self.sent if one.running and one.address == address]

    def _body(self, number: int) -> dict[str, Any]:
        text = QUESTION.format(*self.random.sample(PLACES, 2))
        length = self.random.randint(4, 24)
        return {
            "model": PodSettings().model,
            "stream": number % 2 == 0,
            "max_tokens": 5 * length if number % LONG == 0 else length,
            "ignore_eos": True,
            "messages": [{"role": "user", "content": text}],
        }

    async def _send(self, one: Sent, body: dict[str, Any]) -> None:
        try:
            async with self.client.stream("POST", CHAT, json=body) as response:
                one.pod = response.headers.get("x-inference-pod", "")
                one.address = response.headers.get(ADDRESS, "")
                one.attempts = int(response.headers.get(ATTEMPTS, 1))
                self.progress.set(self.progress.value)
                one.problem = _problem(response, await response.aread(), body)
        except httpx.HTTPError as exc:
            one.problem = f"{type(exc).__name__} {exc}".strip()
        one.ended = anyio.current_time()
        self._running -= 1
        self.progress.set(self.progress.value + 1)


def _problem(response: httpx.Response, content: bytes, asked: dict[str, Any]) -> str:
    """What is wrong with an answer; empty when it is whole."""
    if response.status_code != 200:
        return f"{response.status_code} {content[:200].decode(errors='replace')}".strip()
    if asked["stream"]:
        return "" if content.endswith(b"data: [DONE]\n\n") else "the stream was cut"
    return ""
