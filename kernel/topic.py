"""Fan-out of events: one bounded channel per subscriber, and what happens when it is full.

Publishing from the path of a request never waits (`offer`); publishing a change of the pool
waits for those subscribers who must not miss it (`publish`), after everyone else has been served.
"""

from __future__ import annotations

import enum
from contextlib import suppress
from typing import Generic, TypeVar, final

import anyio
from attrs import define, field

from .channel import Channel, Receiver, Sender

T = TypeVar("T")


class Overflow(enum.Enum):
    """What a publisher does when a subscriber has not kept up."""

    WAIT = "wait"
    """`publish` waits for room; `offer` counts the event as dropped."""
    DROP_OLDEST = "drop-oldest"
    """The oldest unread event makes room and is counted as dropped."""
    CONFLATE = "conflate"
    """Only the newest event is kept; the ones it replaces do not count as dropped."""


@final
@define(eq=False)
class Subscription(Generic[T]):
    """One subscriber's end of a topic. Closing it ends the subscription."""

    name: str
    overflow: Overflow
    receiver: Receiver[T]
    _sender: Sender[T]
    _topic: Topic[T] = field(repr=False)
    dropped: int = field(default=0, init=False)
    """Events that this subscriber will never see."""

    @property
    def topic(self) -> str:
        """The name of what is subscribed to."""
        return self._topic.name

    def close(self) -> None:
        self._topic.forget(self)
        self._sender.close()
        self.receiver.close()

    def offer(self, event: T) -> bool:
        """Hand over *event* without waiting; tell whether the subscriber will see it."""
        if self._sender.offer(event):
            return True
        if self.overflow is Overflow.WAIT:
            return False
        try:
            self.receiver.poll()
        except anyio.ClosedResourceError:
            return False  # the subscriber reads no more
        if self.overflow is Overflow.DROP_OLDEST:
            self.dropped += 1
        return self._sender.offer(event)

    async def wait_for_room(self, event: T) -> None:
        """Hand over *event*, waiting while the channel is full."""
        delivered = False
        try:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._sender.send(event)
                delivered = True
        finally:
            if not delivered:
                self.dropped += 1  # the subscriber left, or the publisher was cancelled


@final
@define(eq=False)
class Topic(Generic[T]):
    """The events of one key, and who wants them."""

    name: str
    _subscriptions: list[Subscription[T]] = field(
        factory=list["Subscription[T]"], init=False, repr=False
    )

    @property
    def subscriptions(self) -> tuple[Subscription[T], ...]:
        return tuple(self._subscriptions)

    def join(self, other: Subscription[T]) -> Subscription[T]:
        """Subscribe by the channel of *other*: the events of both topics come in their order."""
        sender = other._sender.clone()
        subscription = Subscription(other.name, other.overflow, other.receiver, sender, self)
        self._subscriptions.append(subscription)
        return subscription

    def subscribe(
        self, name: str, *, capacity: int, overflow: Overflow = Overflow.DROP_OLDEST
    ) -> Subscription[T]:
        """Open a channel for *name*; `CONFLATE` needs no more than one place."""
        if capacity < 1:
            raise ValueError(f"{name}: a subscription needs room for an event, not {capacity}")
        places = 1 if overflow is Overflow.CONFLATE else capacity
        channel = Channel[T].open(capacity=places)
        subscription = Subscription(name, overflow, channel.receiver, channel.sender, self)
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription[T]) -> None:
        """Close *subscription*; one that is closed already is left alone."""
        subscription.close()

    def forget(self, subscription: Subscription[T]) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def offer(self, event: T) -> None:
        """Publish *event* to everyone who has room, now; those who have none count it."""
        for subscription in self._subscriptions:
            if not subscription.offer(event):
                subscription.dropped += 1

    async def publish(self, event: T) -> None:
        """Publish *event*; then wait for the subscribers who asked to be waited for."""
        full = [s for s in self._subscriptions if not s.offer(event)]
        if not full:
            return
        async with anyio.create_task_group() as waiting:
            for subscription in full:
                waiting.start_soon(subscription.wait_for_room, event)

    def close(self) -> None:
        for subscription in self.subscriptions:
            subscription.close()


@final
@define(eq=False)
class Topics:
    """All topics by the name of their key, made when first asked for."""

    _topics: dict[str, Topic[object]] = field(factory=dict[str, Topic[object]], init=False)

    def topic(self, name: str) -> Topic[object]:
        if (topic := self._topics.get(name)) is None:
            topic = self._topics[name] = Topic[object](name)
        return topic

    def close(self) -> None:
        for topic in self._topics.values():
            topic.close()
