"""Engines in real time, which here is virtual."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.actors.sim.background import Background
from pointsman.actors.sim.driver import Driver
from pointsman.actors.sim.engine import Engine
from pointsman.actors.sim.latency import LatencyProfile
from pointsman.actors.sim.work import EngineConfig, Generation, Work
from pointsman.kernel.channel import Latest

EXACT = LatencyProfile(
    prefill_overhead=1.0,
    prefill_time_per_token=0.0,
    prefill_std=0.0,
    inter_token_latency=0.5,
    inter_token_std=0.0,
    time_factor_under_load=1.0,
)
WORK = Work(prompt_tokens=10, output_tokens=3)

Start = Callable[..., Driver]


@pytest.fixture
def start(nursery: trio.Nursery) -> Start:
    """Start a driver of an engine with two slots."""

    def start(*, speed: float = 1.0, clients: int = 0, queue: int | None = None) -> Driver:
        background = Background(Random(1), clients, prompt_tokens=64, output_tokens=10)
        config = EngineConfig(max_num_seqs=2, max_num_queued_reqs=queue, profile=EXACT)
        driver = Driver(Engine(config), background, speed=speed)
        nursery.start_soon(driver.run)
        return driver

    return start


async def ended(generation: Generation, progress: Latest[None]) -> float:
    """The time at which *generation* has ended, as its submitter notices it."""
    while generation.ended is None:
        await progress.newer(progress.version)
    return trio.current_time()


async def test_a_request_takes_its_time(start: Start, autojump_clock: MockClock) -> None:
    driver = start()
    await trio.sleep(5)
    before = trio.current_time()
    progress = Latest[None](None)
    generation = driver.submit(WORK, progress)
    assert await ended(generation, progress) - before == pytest.approx(2.0)
    assert driver.open == 0


async def test_ten_times_the_speed_takes_a_tenth_of_the_time(
    start: Start, autojump_clock: MockClock
) -> None:
    driver = start(speed=10)
    before = trio.current_time()
    progress = Latest[None](None)
    generation = driver.submit(WORK, progress)
    assert await ended(generation, progress) - before == pytest.approx(0.2)


async def test_without_waiting_no_time_passes(start: Start, autojump_clock: MockClock) -> None:
    driver = start(speed=0)
    before = trio.current_time()
    progress = Latest[None](None)
    generation = driver.submit(WORK, progress)
    assert await ended(generation, progress) == before
    assert generation.ended == 2.0


async def test_whoever_streams_is_told_of_every_token(
    start: Start, autojump_clock: MockClock
) -> None:
    driver = start()
    progress = Latest[None](None)
    begun = trio.current_time()
    generation = driver.submit(Work(prompt_tokens=10, output_tokens=3, streams=True), progress)
    times: dict[int, float] = {}
    while generation.ended is None:
        await progress.newer(progress.version)
        times[generation.generated] = trio.current_time() - begun
    assert times == pytest.approx({1: 1.0, 2: 1.5, 3: 2.0})


async def test_whoever_gives_up_leaves_the_slot(start: Start, autojump_clock: MockClock) -> None:
    driver = start()
    progress = Latest[None](None)
    generation = driver.submit(WORK, progress)
    await trio.sleep(1.2)
    driver.cancel(generation)
    driver.cancel(generation)
    assert (generation.reason, driver.open, driver.engine.running) == ("abort", 0, 0)


async def test_the_gauges_can_be_brought_up_to_date(
    start: Start, autojump_clock: MockClock
) -> None:
    driver = start()
    driver.submit(Work(prompt_tokens=16, output_tokens=100), Latest[None](None))
    await trio.sleep(10.75)
    driver.catch_up()
    assert driver.engine.now == 10.75
    assert driver.engine.kv_cache_usage == 3 / 2048  # 16 and 20 tokens


async def test_background_keeps_a_server_busy(start: Start, autojump_clock: MockClock) -> None:
    driver = start(clients=3)
    for _ in range(20):
        await trio.sleep(3)
        driver.catch_up()
        assert (driver.engine.running, driver.engine.waiting) == (2, 1)
    assert driver.engine.stats.finished["length"] > 5


async def test_a_client_gets_its_turn_among_the_background(
    start: Start, autojump_clock: MockClock
) -> None:
    driver = start(clients=3)
    await trio.sleep(20)
    progress = Latest[None](None)
    with trio.fail_after(30):
        await ended(driver.submit(WORK, progress), progress)


async def test_background_takes_no_more_than_the_queue_holds(
    start: Start, autojump_clock: MockClock
) -> None:
    driver = start(clients=30, queue=4)
    await trio.sleep(30)
    assert (driver.engine.running, driver.engine.waiting) == (2, 4)


async def test_background_can_be_changed(start: Start, autojump_clock: MockClock) -> None:
    driver = start(clients=3)
    await trio.sleep(3)
    driver.set_background(1)
    assert driver.engine.running + driver.engine.waiting == 1
    driver.set_background(0)
    await trio.sleep(3)
    assert driver.engine.next_at() is None


async def test_background_alone_does_not_run_without_time(
    start: Start, autojump_clock: MockClock
) -> None:
    driver = start(speed=0, clients=3)
    await wait_all_tasks_blocked()
    assert driver.engine.now == 0.0
    progress = Latest[None](None)
    await ended(driver.submit(WORK, progress), progress)
    await wait_all_tasks_blocked()
    assert driver.engine.now > 0.0
