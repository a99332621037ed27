"""Producers that wait for I/O: in time, late, deaf to cancellation, and cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, ClassVar, Final

import anyio
import pytest
import trio
from trio.testing import MockClock

from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.director import PRODUCER_TIMEOUT, Outcome
from pointsman.kernel.errors import ViewClosed
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import Parsed, Request
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import endpoints, make_request, pool
from pointsman.kernel.wiring import Wiring

from . import zoo
from .zoo import NOTE, TEXT, listed, reading

POOL: Final[Snapshot] = pool(endpoints("a", "b"))
MARK: Final = StateKey("mark", str)


async def decided(wiring: Wiring, request: Request | None = None) -> Outcome:
    return await wiring.director.decide(request or make_request(), Parsed(), POOL)


def slow(seconds: float, *, timeout: float | None = None) -> type[Any]:
    """A producer that writes one key at once and another after *seconds*."""

    async def produce(data: DataView) -> None:
        data[NOTE] = "early"
        await anyio.sleep(seconds)
        data[TEXT] = "late"

    budget: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    return zoo.waiting("slow", produce, keys(TEXT, NOTE), **budget)


def sink_of(*classes: type[Any]) -> tuple[Wiring, list[Any]]:
    """The classes with a reader of both keys behind them, and what it reads."""
    seen: list[Any] = []
    wants = Consumes(TEXT, NOTE)
    reader = reading(seen, wants, lambda data: (data.get(TEXT), data.get(NOTE)))
    return listed(*classes, reader), seen


async def test_what_comes_in_time_is_read(autojump_clock: MockClock) -> None:
    wiring, seen = sink_of(slow(0.3))
    assert wiring.director.waits
    await decided(wiring)
    assert seen == [("late", "early")]
    assert trio.current_time() == pytest.approx(0.3)


@pytest.mark.parametrize("timeout", [None, 0.1, 2])
async def test_a_late_producer_leaves_all_its_keys_absent(
    timeout: float | None, autojump_clock: MockClock
) -> None:
    wiring, seen = sink_of(slow(10, timeout=timeout))
    await decided(wiring)
    assert seen == [(None, None)]
    assert wiring.installed["slow"].failures == 1
    assert trio.current_time() == pytest.approx(timeout or PRODUCER_TIMEOUT)


async def deaf(data: DataView) -> None:
    data[NOTE] = "early"
    with anyio.CancelScope(shield=True):
        await anyio.sleep(1)
    data[TEXT] = "late"


async def unimpressed(data: DataView) -> None:
    """Catches what should end it, and goes on."""
    try:
        await anyio.sleep(10)
    except BaseException:
        data[TEXT] = "late"


@pytest.mark.parametrize("produce", [deaf, unimpressed])
async def test_a_producer_that_ignores_its_time_out_writes_nothing(
    produce: Callable[[DataView], Awaitable[None]], autojump_clock: MockClock
) -> None:
    wiring, seen = sink_of(zoo.waiting("deaf", produce, keys(TEXT, NOTE)))
    await decided(wiring)
    assert seen == [(None, None)]
    assert wiring.installed["deaf"].failures == 1


async def test_a_late_writer_finds_its_view_dead(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """It hands its view to a task that outlives the request (G-05)."""
    endings: list[str] = []

    async def write_later(data: DataView) -> None:
        await anyio.sleep(1)
        try:
            data[TEXT] = "late"
        except ViewClosed:
            endings.append("closed")

    async def produce(data: DataView) -> None:
        state = data.state
        nursery.start_soon(write_later, data)
        await anyio.sleep(0.1)
        endings.append(str(state.write(MARK, "x")))

    wiring, seen = sink_of(zoo.waiting("sly", produce, keys(TEXT, NOTE)))
    request = make_request()
    await decided(wiring, request)
    assert seen == [(None, None)]
    request.end()
    await anyio.sleep(2)
    assert endings == ["True", "closed"]
    assert len(wiring.installed["sly"].state) == 0


async def test_state_that_is_written_late_is_evicted_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    kept: list[bool] = []

    async def write_later(data: DataView) -> None:
        state = data.state
        await anyio.sleep(1)
        kept.append(state.write(MARK, "x"))

    async def produce(data: DataView) -> None:
        nursery.start_soon(write_later, data)
        await anyio.sleep(0.01)

    wiring, _ = sink_of(zoo.waiting("sly", produce, keys(TEXT, NOTE)))
    request = make_request()
    await decided(wiring, request)
    request.end()
    await anyio.sleep(2)
    assert kept == [False]
    assert len(wiring.installed["sly"].state) == 0


async def test_a_waiting_producer_that_fails_hurts_nobody(autojump_clock: MockClock) -> None:
    async def produce(data: DataView) -> None:
        data[NOTE] = "early"
        await anyio.sleep(0.1)
        zoo.failing()

    wiring, seen = sink_of(zoo.waiting("broken", produce, keys(TEXT, NOTE)))
    await decided(wiring)
    assert seen == [(None, None)]
    assert wiring.installed["broken"].failures == 1


async def test_a_waiting_producer_without_its_data_is_not_to_blame(
    autojump_clock: MockClock,
) -> None:
    async def produce(data: DataView) -> None:
        await anyio.sleep(0.1)
        data[TEXT] = data[NOTE]

    silent = zoo.producer("silent", zoo.always(None), keys(NOTE))
    needy = zoo.waiting("needy", produce, keys(TEXT), Consumes(NOTE))
    wiring, seen = sink_of(silent, needy)
    await decided(wiring)
    assert seen == [(None, None)]
    assert wiring.installed["needy"].failures == 0


async def test_a_cancelled_request_closes_the_view(autojump_clock: MockClock) -> None:
    kept: list[DataView] = []

    async def produce(data: DataView) -> None:
        kept.append(data)
        await anyio.sleep(10)

    wiring, seen = sink_of(zoo.waiting("slow", produce, keys(TEXT, NOTE)))
    with anyio.move_on_after(0.1):
        await decided(wiring)
    assert seen == []
    with pytest.raises(ViewClosed):
        kept[0][TEXT] = "late"
    assert wiring.installed["slow"].failures == 0


class AtTimes:
    """Waits for some requests only."""

    type_name: ClassVar = "at-times"
    produces: ClassVar = keys(TEXT, NOTE)
    waits: ClassVar = True

    def produce(self, data: DataView, endpoints: object) -> Awaitable[None] | None:
        data[TEXT] = "at once"
        return self._more(data) if data.state.read(MARK) else None

    async def _more(self, data: DataView) -> None:
        await anyio.sleep(0.1)
        data[NOTE] = "later"


async def test_a_producer_may_wait_at_times(autojump_clock: MockClock) -> None:
    wiring, seen = sink_of(AtTimes)
    assert wiring.director.waits
    await decided(wiring)
    assert trio.current_time() == 0
    request = make_request()
    wiring.installed["at-times"].state.write(request, MARK, "wait")
    await decided(wiring, request)
    assert seen == [("at once", None), ("at once", "later")]


async def test_a_producer_that_does_not_say_that_it_waits_is_refused() -> None:
    """Nothing else would notice: what it returns would never be awaited."""
    quiet = type("Quiet", (AtTimes,), {"waits": False})
    wiring, seen = sink_of(quiet)
    assert not wiring.director.waits
    request = make_request()
    state = wiring.installed["at-times"].state
    state.write(request, MARK, "wait")
    with pytest.warns(RuntimeWarning, match="never awaited"):
        wiring.director.decide_now(request, Parsed(), POOL)
    assert seen == [(None, None)]
    assert wiring.installed["at-times"].failures == 1


class Echo:
    """Waits a random while between reading its request's state and writing its data."""

    type_name: ClassVar = "echo"
    produces: ClassVar = keys(TEXT, NOTE)
    timeout: ClassVar = 10.0

    def __init__(self) -> None:
        self.random = Random(3)

    async def produce(self, data: DataView, endpoints: object) -> None:
        name = data.state.read(MARK) or "?"
        await anyio.sleep(self.random.random())
        data[TEXT] = name
        await anyio.sleep(self.random.random())
        data[NOTE] = data[TEXT]


async def test_requests_that_wait_at_once_do_not_mix(autojump_clock: MockClock) -> None:
    wiring, seen = sink_of(Echo)
    state = wiring.installed["echo"].state

    async def ask(number: int) -> None:
        request = make_request()
        state.write(request, MARK, str(number))
        with anyio.move_on_after(number % 5 * 0.8):
            await decided(wiring, request)
        request.end()

    async with trio.open_nursery() as tasks:
        for number in range(40):
            tasks.start_soon(ask, number)
    assert len(seen) > 8
    assert all(text == note for text, note in seen)
    assert len({text for text, _ in seen}) == len(seen)
    assert len(state) == 0


async def test_a_decision_that_waits_cannot_be_had_at_once() -> None:
    wiring, _ = sink_of(slow(0.1))
    with pytest.raises(RuntimeError, match="declared to be synchronous waited"):
        wiring.director.decide_now(make_request(), Parsed(), POOL)
