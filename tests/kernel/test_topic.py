"""Fan-out: what becomes of an event whose subscriber has not kept up."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import anyio
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.kernel.topic import Overflow, Subscription, Topic, Topics


@pytest.fixture
def topic() -> Iterator[Topic[int]]:
    topic = Topic[int]("numbers")
    yield topic
    topic.close()


def unread(subscription: Subscription[int]) -> list[int]:
    found: list[int] = []
    while (event := subscription.receiver.poll()) is not None:
        found.append(event)
    return found


def test_every_subscriber_gets_every_event(topic: Topic[int]) -> None:
    subscriptions = [topic.subscribe(name, capacity=5) for name in "abc"]
    for event in (1, 2, 3):
        topic.offer(event)
    assert [unread(s) for s in subscriptions] == [[1, 2, 3]] * 3


def test_the_oldest_event_makes_room_and_is_counted(topic: Topic[int]) -> None:
    slow = topic.subscribe("slow", capacity=2, overflow=Overflow.DROP_OLDEST)
    for event in range(1, 6):
        topic.offer(event)
    assert (unread(slow), slow.dropped) == ([4, 5], 3)


def test_conflating_keeps_the_newest_and_counts_nothing(topic: Topic[int]) -> None:
    slow = topic.subscribe("slow", capacity=9, overflow=Overflow.CONFLATE)
    for event in range(1, 6):
        topic.offer(event)
    assert (unread(slow), slow.dropped) == ([5], 0)


def test_an_offer_waits_for_nobody(topic: Topic[int]) -> None:
    slow = topic.subscribe("slow", capacity=1, overflow=Overflow.WAIT)
    for event in (1, 2, 3):
        topic.offer(event)
    assert (unread(slow), slow.dropped) == ([1], 2)


async def test_publishing_waits_for_who_asked_for_it(
    topic: Topic[int], nursery: trio.Nursery
) -> None:
    slow = topic.subscribe("slow", capacity=1, overflow=Overflow.WAIT)

    async def publish() -> None:
        for event in range(4):
            await topic.publish(event)

    nursery.start_soon(publish)
    await wait_all_tasks_blocked()
    assert [await slow.receiver.receive() for _ in range(4)] == [0, 1, 2, 3]
    assert slow.dropped == 0


async def test_a_slow_subscriber_delays_no_other(topic: Topic[int], nursery: trio.Nursery) -> None:
    topic.subscribe("slow", capacity=1, overflow=Overflow.WAIT)
    quick = topic.subscribe("quick", capacity=1, overflow=Overflow.WAIT)
    topic.offer(0)
    assert unread(quick) == [0]
    nursery.start_soon(topic.publish, 1)
    await wait_all_tasks_blocked()
    assert unread(quick) == [1]
    nursery.cancel_scope.cancel()


async def test_offers_do_not_overtake_who_waits(topic: Topic[int], nursery: trio.Nursery) -> None:
    slow = topic.subscribe("slow", capacity=1, overflow=Overflow.WAIT)
    topic.offer(1)
    nursery.start_soon(topic.publish, 2)
    await wait_all_tasks_blocked()
    topic.offer(3)
    assert [await slow.receiver.receive() for _ in range(2)] == [1, 2]
    assert slow.dropped == 1


async def test_a_publisher_is_not_held_by_who_leaves(
    topic: Topic[int], nursery: trio.Nursery
) -> None:
    leaving = topic.subscribe("leaving", capacity=1, overflow=Overflow.WAIT)
    topic.offer(1)
    published = trio.Event()

    async def publish() -> None:
        await topic.publish(2)
        published.set()

    nursery.start_soon(publish)
    await wait_all_tasks_blocked()
    leaving.close()
    await published.wait()
    assert leaving.dropped == 1


async def test_what_a_cancelled_publisher_did_not_deliver_is_counted(
    topic: Topic[int], autojump_clock: MockClock
) -> None:
    slow = topic.subscribe("slow", capacity=1, overflow=Overflow.WAIT)
    topic.offer(1)
    with anyio.move_on_after(1):
        await topic.publish(2)
    assert (unread(slow), slow.dropped) == ([1], 1)


@pytest.mark.parametrize("overflow", Overflow)
async def test_closing_a_subscription_ends_it(topic: Topic[int], overflow: Overflow) -> None:
    subscription = topic.subscribe("gone", capacity=1, overflow=overflow)
    subscription.close()
    topic.offer(1)
    await topic.publish(2)
    assert topic.subscriptions == ()
    assert subscription.dropped == 0


@pytest.mark.parametrize("overflow", Overflow)
async def test_a_closed_reader_does_not_disturb_the_publisher(
    topic: Topic[int], overflow: Overflow
) -> None:
    subscription = topic.subscribe("deaf", capacity=1, overflow=overflow)
    other = topic.subscribe("other", capacity=2)
    subscription.receiver.close()
    topic.offer(1)
    await topic.publish(2)
    assert unread(other) == [1, 2]


def test_leaving_twice_is_leaving_once(topic: Topic[int]) -> None:
    subscription = topic.subscribe("a", capacity=1)
    topic.unsubscribe(subscription)
    topic.unsubscribe(subscription)
    assert topic.subscriptions == ()


def test_a_closed_topic_has_no_subscribers(topic: Topic[int]) -> None:
    subscription = topic.subscribe("a", capacity=1)
    topic.close()
    topic.offer(1)
    topic.unsubscribe(subscription)
    assert topic.subscriptions == ()


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_subscription_has_room_for_an_event(topic: Topic[int], capacity: int) -> None:
    with pytest.raises(ValueError, match="needs room"):
        topic.subscribe("a", capacity=capacity)


async def test_events_of_joined_topics_come_in_their_order(topic: Topic[int]) -> None:
    other = Topic[int]("others")
    one = topic.subscribe("both", capacity=2, overflow=Overflow.WAIT)
    joined = other.join(one)
    topic.offer(1)
    other.offer(2)
    topic.offer(3)
    assert unread(one) == [1, 2]
    assert [(s.topic, s.name, s.dropped) for s in (one, joined)] == [
        ("numbers", "both", 1),
        ("others", "both", 0),
    ]
    other.close()
    assert (other.subscriptions, joined.receiver) == ((), one.receiver)


def test_a_topic_is_made_once() -> None:
    topics = Topics()
    assert topics.topic("a") is topics.topic("a")
    assert topics.topic("a") is not topics.topic("b")


def test_topics_close_together() -> None:
    topics = Topics()
    for name in ("a", "b"):
        topics.topic(name).subscribe("x", capacity=1)
    topics.close()
    assert [topics.topic(name).subscriptions for name in ("a", "b")] == [(), ()]


@pytest.mark.parametrize("seed", range(20))
async def test_every_event_is_read_or_counted(seed: int, autojump_clock: MockClock) -> None:
    """However slow the readers and whenever a publisher is cancelled."""
    random, topic = Random(seed), Topic[int]("numbers")
    rules = (Overflow.WAIT, Overflow.WAIT, Overflow.DROP_OLDEST, Overflow.CONFLATE)
    subscriptions = [topic.subscribe(rule.value, capacity=2, overflow=rule) for rule in rules]
    seen: dict[Subscription[int], list[int]] = {s: [] for s in subscriptions}

    async def read(subscription: Subscription[int]) -> None:
        async for event in subscription.receiver:
            seen[subscription].append(event)
            await anyio.sleep(random.random())

    async with trio.open_nursery() as tasks:
        for subscription in subscriptions:
            tasks.start_soon(read, subscription)
        for event in range(60):
            with anyio.move_on_after(random.random()):
                await topic.publish(event)
            await anyio.sleep(random.random() / 4)
        await anyio.sleep(10)
        topic.close()
    for subscription, events in seen.items():
        assert events == sorted(set(events)), "in order, and none twice"
        assert events[-1] == 59 or subscription.overflow is Overflow.WAIT
        if subscription.overflow is not Overflow.CONFLATE:
            assert len(events) + subscription.dropped == 60


@pytest.mark.parametrize("seed", range(10))
async def test_no_publisher_hangs_on_who_leaves(seed: int, autojump_clock: MockClock) -> None:
    random, topic = Random(seed), Topic[int]("numbers")

    async def stay_a_while(rule: Overflow) -> None:
        subscription = topic.subscribe(rule.value, capacity=1, overflow=rule)
        with anyio.move_on_after(random.uniform(0.1, 5)):
            async for _ in subscription.receiver:
                await anyio.sleep(random.random() * 3)
        random.choice([subscription.close, subscription.receiver.close])()

    async with trio.open_nursery() as tasks:
        for rule in (*Overflow, *Overflow):
            tasks.start_soon(stay_a_while, rule)
        await anyio.sleep(0.01)
        with anyio.fail_after(100):
            for event in range(50):
                await topic.publish(event)
    topic.close()
