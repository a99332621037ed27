"""Tasks that stay for the next stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field

from pointsman.actors import extproc_server_crew
from pointsman.actors.extproc_server_crew import Crew

pytestmark = pytest.mark.long


@define(eq=False)
class Streams:
    """Streams by number, each open until it is told to end; and in which tasks they were."""

    ends: dict[int, asyncio.Event] = field(factory=dict[int, asyncio.Event])
    tasks: dict[int, object] = field(factory=dict[int, object])
    closed: list[int] = field(factory=list[int])

    async def handle(self, number: int) -> None:
        self.tasks[number] = asyncio.current_task()
        self.ends[number] = asyncio.Event()
        try:
            await self.ends[number].wait()
        finally:
            self.closed.append(number)

    async def end(self, *numbers: int) -> None:
        for number in numbers:
            self.ends[number].set()
        await turns()


async def turns() -> None:
    for _ in range(4):
        await anyio.lowlevel.checkpoint()


Scenario = Callable[[Crew[int], Streams], Coroutine[Any, Any, None]]


def on_asyncio(scenario: Scenario) -> Callable[[], None]:
    """Run a scenario as a test; its task group is cancelled in the end."""

    def test() -> None:
        async def run() -> None:
            streams = Streams()
            async with anyio.create_task_group() as tasks:
                await scenario(Crew(tasks, streams.handle), streams)
                tasks.cancel_scope.cancel()
            assert sorted(streams.closed) == sorted(streams.ends)

        anyio.run(run)

    test.__name__ = scenario.__name__
    return test


@on_asyncio
async def test_streams_that_are_open_have_a_task_each(crew: Crew[int], streams: Streams) -> None:
    for number in range(5):
        crew.take(number)
    await turns()
    assert len({*streams.tasks.values()}) == 5


@on_asyncio
async def test_a_stream_gets_the_task_of_one_that_has_ended(
    crew: Crew[int], streams: Streams
) -> None:
    for number in range(10):
        crew.take(number)
        await turns()
        await streams.end(number)
    assert len({*streams.tasks.values()}) == 1
    assert streams.closed == [*range(10)]


@on_asyncio
async def test_of_many_tasks_few_stay(crew: Crew[int], streams: Streams) -> None:
    many = range(3 * extproc_server_crew.MOST_IDLE)
    for number in many:
        crew.take(number)
    await turns()
    await streams.end(*many)
    assert len(crew._idle) == extproc_server_crew.MOST_IDLE


@on_asyncio
async def test_a_cancelled_task_is_given_nothing(crew: Crew[int], streams: Streams) -> None:
    crew.take(1)
    await turns()
    await streams.end(1)
    (waiting,) = crew._idle
    waiting.cancel()
    crew.take(2)
    await turns()
    assert streams.tasks[2] is not streams.tasks[1]
    await streams.end(2)


def test_a_failure_reaches_the_task_group() -> None:
    async def fail(number: int) -> None:
        raise ValueError(number)

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            Crew(tasks, fail).take(1)

    with pytest.raises(ExceptionGroup) as caught:
        anyio.run(run)
    assert caught.group_contains(ValueError)
