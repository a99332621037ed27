"""Mailboxes and questions, on virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import anyio
import pytest
import trio
from attrs import define, field, frozen
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.kernel.errors import ActorStopped
from pointsman.kernel.mailbox import Mailbox, Reply
from pointsman.kernel.supervisor import Backoff, Child, supervise


@frozen
class Double:
    reply: Reply[int]
    n: int


@pytest.fixture
def mailbox() -> Iterator[Mailbox[Double]]:
    with Mailbox[Double].open("doubler", capacity=1) as mailbox:
        yield mailbox


async def serve(mailbox: Mailbox[Double]) -> None:
    async for message in mailbox:
        message.reply.send(2 * message.n)


async def expect_no_answer(mailbox: Mailbox[Double]) -> None:
    with pytest.raises(ActorStopped, match="'doubler' stopped before it answered"):
        await mailbox.address.ask(Double, 1)


async def test_a_question_gets_its_answer(mailbox: Mailbox[Double], nursery: trio.Nursery) -> None:
    nursery.start_soon(serve, mailbox)
    assert await mailbox.address.ask(Double, n=21) == 42


async def test_a_full_mailbox_makes_the_sender_wait(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    assert mailbox.address.offer(Double(Reply(), 1))
    assert not mailbox.address.offer(Double(Reply(), 2))
    nursery.start_soon(mailbox.address.tell, Double(Reply(), 3))
    await wait_all_tasks_blocked()
    assert len(mailbox) == 1
    assert [(await anext(mailbox)).n for _ in range(2)] == [1, 3]


async def test_no_asker_outlives_the_actor(mailbox: Mailbox[Double], nursery: trio.Nursery) -> None:
    nursery.start_soon(expect_no_answer, mailbox)
    await wait_all_tasks_blocked()
    mailbox.close()


async def test_no_asker_waits_for_room_in_a_closed_mailbox(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    for _ in range(3):
        nursery.start_soon(expect_no_answer, mailbox)
    await wait_all_tasks_blocked()
    mailbox.close()


async def test_a_closed_mailbox_refuses_messages(mailbox: Mailbox[Double]) -> None:
    mailbox.close()
    assert not mailbox.address.offer(Double(Reply(), 1))
    with pytest.raises(ActorStopped):
        await mailbox.address.tell(Double(Reply(), 1))
    await expect_no_answer(mailbox)


async def test_a_closed_mailbox_ends_the_loop_of_its_actor(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    nursery.start_soon(serve, mailbox)
    await wait_all_tasks_blocked()
    mailbox.close()
    assert [message async for message in mailbox] == []


async def test_a_sealed_mailbox_is_worked_off(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await mailbox.address.ask(Double, 4))

    nursery.start_soon(ask)
    await wait_all_tasks_blocked()
    mailbox.seal()
    await serve(mailbox)
    await wait_all_tasks_blocked()
    assert answers == [8]
    await expect_no_answer(mailbox)


async def test_an_asker_who_gives_up_is_not_answered(
    mailbox: Mailbox[Double], autojump_clock: MockClock
) -> None:
    with anyio.move_on_after(5) as scope:
        await mailbox.address.ask(Double, 1)
    message = await anext(mailbox)
    assert (scope.cancelled_caught, message.reply.abandoned) == (True, True)
    message.reply.send(2)
    message.reply.fail(ValueError())


async def test_an_answer_after_the_mailbox_was_closed_is_dropped(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    nursery.start_soon(expect_no_answer, mailbox)
    message = await anext(mailbox)
    mailbox.close()
    message.reply.send(2)


async def test_answering_twice_is_an_error(mailbox: Mailbox[Double], nursery: trio.Nursery) -> None:
    async def ask() -> None:
        await mailbox.address.ask(Double, 1)

    nursery.start_soon(ask)
    message = await anext(mailbox)
    message.reply.send(2)
    with pytest.raises(anyio.FutureAlreadyFinished):
        message.reply.send(2)


async def test_an_actor_may_fail_a_question(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    async def refuse() -> None:
        (await anext(mailbox)).reply.fail(ValueError("odd"))

    nursery.start_soon(refuse)
    with pytest.raises(ValueError, match="odd"):
        await mailbox.address.ask(Double, 1)


async def test_a_failure_does_not_undo_an_answer(
    mailbox: Mailbox[Double], nursery: trio.Nursery
) -> None:
    async def answer() -> None:
        message = await anext(mailbox)
        message.reply.send(2)
        message.reply.fail(ValueError())
        mailbox.abandon()

    nursery.start_soon(answer)
    assert await mailbox.address.ask(Double, 1) == 2


async def test_a_question_that_cannot_be_put_is_the_askers_error(mailbox: Mailbox[Double]) -> None:
    with pytest.raises(TypeError):
        await mailbox.address.ask(Double)  # type: ignore[call-arg]
    assert len(mailbox) == 0


async def test_nothing_is_kept_of_questions_that_are_over(
    mailbox: Mailbox[Double], autojump_clock: MockClock
) -> None:
    """Answered, given up while it lay in the mailbox, given up while the actor had it in hand."""

    async def ask() -> None:
        with anyio.move_on_after(1):
            await mailbox.address.ask(Double, 1)

    async with trio.open_nursery() as tasks:
        await ask()
        await anext(mailbox)
        tasks.start_soon(ask)
        await anext(mailbox)
        await anyio.sleep(2)
        tasks.start_soon(serve, mailbox)
        await mailbox.address.ask(Double, 1)
        mailbox.seal()
    assert (mailbox._unanswered, mailbox._taken) == (set(), set())


@frozen
class Work:
    reply: Reply[int]
    n: int
    seconds: float
    crash: bool


@define(eq=False)
class Worker:
    """Answers after a while, crashes when asked to, and hands half of its work to others."""

    inbox: Mailbox[Work]
    random: Random

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            async for work in self.inbox:
                if self.random.random() < 0.5:
                    tasks.start_soon(self.handle, work)
                else:
                    await self.handle(work)

    async def handle(self, work: Work) -> None:
        await anyio.sleep(work.seconds)
        if work.crash:
            raise OSError("boom")
        if not work.reply.abandoned:
            work.reply.send(work.n)


@define(eq=False)
class Survey:
    """Asks from many tasks, some of which are cancelled, and notes how each question ended."""

    inbox: Mailbox[Work]
    random: Random
    endings: list[str] = field(factory=list[str])

    async def ask(self, n: int) -> None:
        draw = self.random.random
        await anyio.sleep(30 * draw())
        ending = "gave up"
        with anyio.move_on_after(0.01 + 3 * draw()):
            try:
                question = (n, draw(), draw() < 0.1)
                answer = await self.inbox.address.ask(Work, *question)
            except ActorStopped:
                ending = "stopped"
            else:
                ending = "answered" if answer == n else "confused"
        self.endings.append(ending)


@pytest.mark.parametrize("seed", range(25))
async def test_every_question_comes_to_an_end(seed: int, autojump_clock: MockClock) -> None:
    """Whoever is cancelled, crashes or is stopped, at whatever moment: nobody hangs."""
    random = Random(seed)
    with Mailbox[Work].open("worker", capacity=2) as inbox:
        survey = Survey(inbox, random)
        worker = Worker(inbox, random)
        with anyio.fail_after(100):
            async with supervise(crashes=1000, random=random) as supervisor:
                child = Child(
                    name="worker", run=worker.run, inbox=inbox, backoff=Backoff(first=0.01)
                )
                handle = supervisor.start(child)
                async with anyio.create_task_group() as asking:
                    for n in range(80):
                        asking.start_soon(survey.ask, n)
                    await anyio.sleep(random.uniform(5, 40))
                    await handle.stop()
        assert len(survey.endings) == 80
        assert "confused" not in survey.endings
        assert (inbox._unanswered, inbox._taken) == (set(), set())
