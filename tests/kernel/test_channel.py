"""Channels and cells: who waits, who does not, and what closing does."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import anyio
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.kernel.channel import Channel, Latest


@pytest.fixture
def channel() -> Iterator[Channel[int]]:
    with Channel[int].open(capacity=2) as channel:
        yield channel


async def test_values_arrive_in_order(channel: Channel[int], nursery: trio.Nursery) -> None:
    async def send() -> None:
        with channel.sender as sender:
            for value in range(10):
                await sender.send(value)

    nursery.start_soon(send)
    assert [value async for value in channel.receiver] == list(range(10))


async def test_a_full_channel_makes_its_sender_wait(
    channel: Channel[int], nursery: trio.Nursery
) -> None:
    async def send() -> None:
        for value in range(5):
            await channel.sender.send(value)

    nursery.start_soon(send)
    await wait_all_tasks_blocked()
    assert len(channel.receiver) == 2
    assert [await channel.receiver.receive() for _ in range(5)] == list(range(5))


def test_an_offer_tells_whether_there_was_room(channel: Channel[int]) -> None:
    assert [channel.sender.offer(value) for value in range(3)] == [True, True, False]


def test_an_offer_to_nobody_is_refused(channel: Channel[int]) -> None:
    channel.receiver.close()
    assert not channel.sender.offer(1)


def test_a_closed_end_is_not_used_any_more(channel: Channel[int]) -> None:
    channel.sender.close()
    with pytest.raises(anyio.ClosedResourceError):
        channel.sender.offer(1)


def test_polling_takes_what_is_there(channel: Channel[int]) -> None:
    channel.sender.offer(1)
    assert [channel.receiver.poll(), channel.receiver.poll()] == [1, None]


def test_polling_finds_nothing_after_the_end(channel: Channel[int]) -> None:
    channel.sender.close()
    assert channel.receiver.poll() is None


async def test_closing_ends_the_loop_of_a_waiting_reader(
    channel: Channel[int], nursery: trio.Nursery
) -> None:
    ended = trio.Event()

    async def read() -> None:
        async for _ in channel.receiver:
            pass
        ended.set()

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    channel.close()
    await ended.wait()


async def test_iteration_ends_with_the_last_sender(channel: Channel[int]) -> None:
    other = channel.sender.clone()
    channel.sender.offer(1)
    channel.sender.close()
    other.offer(2)
    other.close()
    assert [value async for value in channel.receiver] == [1, 2]


def test_a_channel_has_a_size() -> None:
    with pytest.raises(TypeError, match="capacity"):
        Channel[int].open()  # type: ignore[call-arg]


async def test_no_value_is_lost_when_receivers_are_cancelled(autojump_clock: MockClock) -> None:
    """Receivers that give up at random moments take nothing with them."""
    random, channel = Random(7), Channel[int].open(capacity=1)
    received: list[int] = []

    async def send() -> None:
        with channel.sender as sender:
            for value in range(200):
                await anyio.sleep(random.random() / 10)
                await sender.send(value)

    async def receive() -> None:
        while True:
            with anyio.move_on_after(random.random() / 10):
                try:
                    received.append(await channel.receiver.receive())
                except anyio.EndOfStream:
                    return

    with channel:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(send)
            tasks.start_soon(receive)
            tasks.start_soon(receive)
    assert sorted(received) == list(range(200))


async def test_a_reader_sees_the_newest_value_only(nursery: trio.Nursery) -> None:
    cell, seen = Latest(0), list[int]()

    async def read() -> None:
        version = cell.version
        while version < 3:
            version, value = await cell.newer(version)
            seen.append(value)

    nursery.start_soon(read)
    await wait_all_tasks_blocked()
    cell.set(1)
    cell.set(2)
    await wait_all_tasks_blocked()
    cell.set(3)
    await wait_all_tasks_blocked()
    assert seen == [2, 3]


async def test_what_is_newer_already_is_not_waited_for() -> None:
    cell = Latest("a")
    cell.set("b")
    assert await cell.newer(0) == (1, "b")


async def test_setting_wakes_every_reader(nursery: trio.Nursery) -> None:
    cell, awake = Latest(0), list[int]()

    async def read(number: int) -> None:
        await cell.newer(0)
        awake.append(number)

    for number in range(5):
        nursery.start_soon(read, number)
    await wait_all_tasks_blocked()
    cell.set(1)
    await wait_all_tasks_blocked()
    assert sorted(awake) == list(range(5))


async def test_a_reader_who_gives_up_does_not_take_the_others_along(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    cell, seen = Latest(0), list[tuple[int, int]]()

    async def read() -> None:
        seen.append(await cell.newer(0))

    nursery.start_soon(read)
    with anyio.move_on_after(1):
        await cell.newer(0)
    cell.set(5)
    await wait_all_tasks_blocked()
    assert seen == [(1, 5)]


async def test_a_wanted_value_is_waited_for(nursery: trio.Nursery) -> None:
    ready = Latest(value=False)

    async def become_ready() -> None:
        for value in (False, True):
            await wait_all_tasks_blocked()
            ready.set(value)

    nursery.start_soon(become_ready)
    await ready.until(wanted=True)
    assert ready.version == 2


async def test_a_value_that_is_wanted_already_is_not_waited_for() -> None:
    await Latest(3).until(3)
