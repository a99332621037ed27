"""Restarts, their budget, and how a supervised tree ends; on virtual time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random

import anyio
import pytest
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.kernel.errors import ActorStopped, RestartBudgetSpent
from pointsman.kernel.mailbox import Mailbox, Reply
from pointsman.kernel.supervisor import Backoff, Child, Handle, Restart, supervise


@define(eq=False)
class Flaky:
    """Crashes the first *times* runs, then sleeps."""

    times: int
    starts: list[float] = field(factory=list[float])

    async def run(self) -> None:
        self.starts.append(anyio.current_time())
        if len(self.starts) <= self.times:
            raise OSError("boom")
        await anyio.sleep_forever()


@define(eq=False)
class Counted:
    """Ends at once, and counts how often."""

    runs: int = 0

    async def run(self) -> None:
        self.runs += 1


async def test_a_crash_is_followed_by_longer_and_longer_pauses(autojump_clock: MockClock) -> None:
    flaky = Flaky(times=4)
    async with supervise(random=Random(0)) as supervisor:
        supervisor.start(Child(name="flaky", run=flaky.run, backoff=Backoff(first=1, most=100)))
        await anyio.sleep(100)
    gaps = [later - one for one, later in zip(flaky.starts, flaky.starts[1:], strict=False)]
    assert [round(gap / 2**n, 1) for n, gap in enumerate(gaps)] == pytest.approx(
        [0.75] * 4, abs=0.26
    )


@given(st.integers(1, 10**6), st.floats(0, 10), st.floats(0, 100), st.integers(0))
def test_a_pause_never_exceeds_its_bound(
    crashes: int, first: float, most: float, seed: int
) -> None:
    delay = Backoff(first=first, most=most).delay(crashes, Random(seed))
    assert 0 <= delay <= most


def test_pauses_are_reproducible() -> None:
    delays = [[Backoff().delay(n, Random(3)) for n in range(1, 9)] for _ in range(2)]
    assert delays[0] == delays[1]


async def test_a_spent_budget_takes_the_supervisor_down(autojump_clock: MockClock) -> None:
    flaky = Flaky(times=9)
    with pytest.RaisesGroup(
        pytest.RaisesExc(RestartBudgetSpent, match="child 'flaky' crashed 3 times within 60 s")
    ) as raised:
        async with supervise(crashes=2) as supervisor:
            supervisor.start(Child(name="flaky", run=flaky.run))
            await anyio.sleep_forever()
    assert isinstance(raised.value.exceptions[0].__cause__, OSError)
    assert len(flaky.starts) == 3


async def test_an_escalation_ends_the_siblings_first(autojump_clock: MockClock) -> None:
    ended: list[str] = []

    async def sibling() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("sibling")

    with pytest.RaisesGroup(RestartBudgetSpent):
        async with supervise(crashes=0) as supervisor:
            supervisor.start(Child(name="sibling", run=sibling))
            await wait_all_tasks_blocked()
            supervisor.start(Child(name="flaky", run=Flaky(times=1).run))
            await anyio.sleep_forever()
    assert ended == ["sibling"]


async def test_old_crashes_are_forgiven(autojump_clock: MockClock) -> None:
    runs = Counted()

    async def crash_every_minute() -> None:
        await anyio.sleep(60)
        await runs.run()
        raise OSError

    async with supervise(crashes=1, within=30) as supervisor:
        handle = supervisor.start(Child(name="slow", run=crash_every_minute))
        await anyio.sleep(3600)
    assert handle.crashes == runs.runs > 50


async def test_each_child_has_a_budget_of_its_own(autojump_clock: MockClock) -> None:
    children = [Flaky(times=2) for _ in range(5)]
    async with supervise(crashes=2) as supervisor:
        for number, child in enumerate(children):
            supervisor.start(Child(name=f"child {number}", run=child.run))
        await anyio.sleep(60)
    assert [len(child.starts) for child in children] == [3] * 5


@pytest.mark.parametrize(
    ("restart", "runs"), [(Restart.NEVER, 1), (Restart.ON_CRASH, 1), (Restart.ALWAYS, 10)]
)
async def test_an_end_is_followed_by_a_restart_only_if_always(
    restart: Restart, runs: int, autojump_clock: MockClock
) -> None:
    counted = Counted()
    async with supervise(random=Random(1)) as supervisor:
        backoff = Backoff(first=1, most=1)
        supervisor.start(Child(name="c", run=counted.run, restart=restart, backoff=backoff))
        await anyio.sleep(7.5)
    assert counted.runs == pytest.approx(runs, abs=3 if runs > 1 else 0)


async def test_a_child_that_is_never_restarted_takes_its_supervisor_down(
    autojump_clock: MockClock,
) -> None:
    with pytest.RaisesGroup(OSError):
        async with supervise() as supervisor:
            supervisor.start(Child(name="x", run=Flaky(9).run, restart=Restart.NEVER))
            await anyio.sleep_forever()


async def test_a_stopped_child_is_gone_on_return(autojump_clock: MockClock) -> None:
    cleaned = False

    async def run() -> None:
        nonlocal cleaned
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            cleaned = True

    async with supervise() as supervisor:
        handle = supervisor.start(Child(name="slow to go", run=run, restart=Restart.ALWAYS))
        await anyio.sleep(1)
        await handle.stop()
        assert cleaned


async def test_a_child_can_be_stopped_while_it_waits_for_its_restart(
    autojump_clock: MockClock,
) -> None:
    flaky = Flaky(times=9)
    async with supervise() as supervisor:
        backoff = Backoff(first=50, most=100)
        handle = supervisor.start(Child(name="flaky", run=flaky.run, backoff=backoff))
        await anyio.sleep(1)
        await handle.stop()
        await anyio.sleep(1000)
    assert flaky.starts == [0]


async def test_a_child_can_be_cancelled_before_it_starts(autojump_clock: MockClock) -> None:
    async with supervise() as supervisor:
        handle = supervisor.start(Child(name="late", run=anyio.sleep_forever))
        handle.cancel()
        await handle.ended()


async def test_an_end_can_be_waited_for(autojump_clock: MockClock) -> None:
    async with supervise() as supervisor:
        handle = supervisor.start(Child(name="short", run=Counted().run))
        await handle.ended()
        await handle.stop()


async def test_leaving_the_block_ends_every_child(autojump_clock: MockClock) -> None:
    async with supervise() as supervisor:
        handles = [supervisor.start(Child(name=str(n), run=anyio.sleep_forever)) for n in range(5)]
        await anyio.sleep(1)
    for handle in handles:
        await handle.ended()


async def fail_alone() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise OSError("boom")


async def fail_in_a_group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fail_alone)
        await anyio.sleep_forever()


@pytest.mark.parametrize("run", [fail_alone, fail_in_a_group])
async def test_a_failure_while_being_stopped_hurts_nobody_else(
    run: Callable[[], Awaitable[None]], autojump_clock: MockClock
) -> None:
    async with supervise() as supervisor:
        handle = supervisor.start(Child(name="messy", run=run))
        await anyio.sleep(1)
        await handle.stop()
        await anyio.sleep(1)


async def test_a_crash_is_logged_once_with_its_traceback(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with supervise() as supervisor:
        supervisor.start(Child(name="flaky", run=Flaky(times=1).run))
        await anyio.sleep(10)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == "flaky crashed (1 recent)"
    assert record.exc_info is not None


@frozen
class Divide:
    reply: Reply[float]
    by: int


@define(eq=False)
class Divider:
    inbox: Mailbox[Divide]

    async def run(self) -> None:
        async for message in self.inbox:
            message.reply.send(1 / message.by)


async def test_a_crash_fails_only_the_question_in_hand(autojump_clock: MockClock) -> None:
    answers: list[float | str] = []

    async def ask(by: int) -> None:
        try:
            answer = await inbox.address.ask(Divide, by)
            answers.append(answer)
        except ActorStopped:
            answers.append("stopped")

    with Mailbox[Divide].open("divider", capacity=4) as inbox:
        async with supervise() as supervisor, anyio.create_task_group() as asking:
            for by in (0, 4, 2):
                asking.start_soon(ask, by)
                await wait_all_tasks_blocked()
            supervisor.start(Child(name="divider", run=Divider(inbox).run, inbox=inbox))
    assert sorted(answers, key=str) == [0.25, 0.5, "stopped"]


async def test_nobody_asks_a_child_that_has_ended_for_good(autojump_clock: MockClock) -> None:
    with Mailbox[Divide].open("divider", capacity=4) as inbox:
        async with supervise() as supervisor:
            handle = supervisor.start(Child(name="d", run=Divider(inbox).run, inbox=inbox))
            await handle.stop()
            with pytest.raises(ActorStopped):
                await inbox.address.ask(Divide, 1)


@define(eq=False)
class Tangle:
    """A child with children of its own, crashing and ending at random await points."""

    random: Random
    running: int = 0

    async def run(self) -> None:
        self.running += 1
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self.random.randrange(3)):
                    tasks.start_soon(self.twig)
                await self.twig()
        finally:
            self.running -= 1

    async def twig(self) -> None:
        self.running += 1
        try:
            for _ in range(self.random.randrange(5)):
                await anyio.sleep(self.random.random())
            if self.random.random() < 0.1:
                raise OSError("boom")
        finally:
            self.running -= 1


@pytest.mark.parametrize("seed", range(25))
async def test_nothing_is_left_of_children_stopped_at_random_moments(
    seed: int, autojump_clock: MockClock
) -> None:
    random = Random(seed)
    tangle = Tangle(random)
    handles: list[Handle] = []

    async def stop(handle: Handle) -> None:
        await anyio.sleep(random.uniform(0, 5))
        if random.random() < 0.5:
            handle.cancel()
        await handle.stop()

    async with supervise(crashes=1000, random=random) as supervisor:
        for number in range(10):
            child = Child(name=str(number), run=tangle.run, restart=random.choice([*Restart][:2]))
            handles.append(supervisor.start(child))
        async with anyio.create_task_group() as stopping:
            for handle in handles[:7]:
                stopping.start_soon(stop, handle)
        await anyio.sleep(random.random())
    assert tangle.running == 0
    for handle in handles:
        await handle.ended()
