"""Tasks that handle one stream after another.

To start a task in a task group costs a tenth of most exchanges; to hand a stream to one that is
there already, hardly anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar, final

from anyio.abc import TaskGroup
from attrs import define, field

S = TypeVar("S")

MOST_IDLE: Final = 64  # tasks that stay for streams to come


@final
@define(eq=False)
class Crew(Generic[S]):
    """Children of a task group: one for each stream that is open, and some that wait for one."""

    tasks: TaskGroup
    handle: Callable[[S], Awaitable[None]]
    """What is done about a stream, to its end."""
    _idle: list[asyncio.Future[S]] = field(factory=list[asyncio.Future[S]], init=False)

    def take(self, stream: S) -> None:
        """Have *stream* handled."""
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():  # those that were cancelled are
                waiting.set_result(stream)
                return
        self.tasks.start_soon(self._work, stream)

    async def _work(self, stream: S) -> None:
        while True:
            await self.handle(stream)
            del stream  # nothing is kept of it until the next one comes
            if len(self._idle) >= MOST_IDLE:
                return
            waiting = asyncio.get_running_loop().create_future()
            self._idle.append(waiting)
            stream = await waiting
