"""Delivers events to the plugins that listen.

Events of the pool reach a plugin in the order in which they happened, by one inbox for all of
them; each event of requests has an inbox of its own. A handler that is slow or raises delays and
disturbs nobody but its plugin.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from attrs import define, field, frozen

from pointsman.kernel.channel import Latest
from pointsman.kernel.installed import Installed
from pointsman.kernel.model import POD_ADDED, Endpoint, PodAdded
from pointsman.kernel.plugin import Role
from pointsman.kernel.supervisor import Child, Crew, supervise
from pointsman.kernel.topic import Overflow, Subscription, Topics
from pointsman.kernel.wiring import Listener, Wiring

Who = tuple[int, str]
"""A plugin object and which of its inboxes: what stays the same over a reload."""
IN_ORDER: Final = "events of the pool"


@final
@frozen(eq=False)
class _Inbox:
    """What one plugin hears in one queue."""

    installed: Installed
    methods: Mapping[type[Any], str]
    """By the class of the event."""
    subscriptions: Sequence[Subscription[object]]
    waiting: Sequence[PodAdded]
    """What the plugin has to hear before anything else."""

    async def run(self) -> None:
        for known in self.waiting:
            await self._tell(known)
        async for event in self.subscriptions[0].receiver:
            await self._tell(event)

    async def _tell(self, event: object) -> None:
        method = getattr(self.installed.plugin, self.methods[type(event)])
        try:
            answer = method(event)
            if inspect.isawaitable(answer):
                await answer
        except Exception as exc:
            self.installed.failed(Role.LISTENER, exc)
        else:
            self.installed.worked()

    def child(self) -> Child:
        return Child(name=f"events of {self.installed.name}", run=self.run)

    def close(self) -> None:
        for subscription in self.subscriptions:
            subscription.close()


@final
@define(eq=False)
class Listeners:
    """Keeps the inboxes of the current wiring open.

    Subscribing is synchronous, so that no event falls between a plugin's start and its ears; a
    plugin that hears of new pods first hears of those that are there already.
    """

    wiring: Latest[Wiring]
    topics: Topics
    members: Latest[tuple[Endpoint, ...]]
    _open: dict[Who, _Inbox] = field(factory=dict[Who, _Inbox], init=False)
    _changed: Latest[int] = field(factory=lambda: Latest(0), init=False)

    def subscribe(self) -> None:
        """Open what the current wiring listens to, and close what it does not."""
        wanted: dict[Who, list[Listener]] = {}
        for listener in self.wiring.value.listeners:
            wanted.setdefault(_who(listener), []).append(listener)
        for who in self._open.keys() - wanted.keys():
            self._open.pop(who).close()
        for who, listeners in wanted.items():
            if who not in self._open:
                self._open[who] = self._inbox(listeners)
        self._changed.set(self._changed.value + 1)

    def _inbox(self, listeners: Sequence[Listener]) -> _Inbox:
        first, *others = listeners
        capacity = max(listener.listens.capacity for listener in listeners)
        subscription = self.topics.topic(first.topic).subscribe(
            first.installed.name, capacity=capacity, overflow=first.listens.overflow
        )
        joined = [self.topics.topic(other.topic).join(subscription) for other in others]
        methods = {one.listens.key.type: one.listens.method for one in listeners}
        return _Inbox(first.installed, methods, (subscription, *joined), self._known(methods))

    def _known(self, methods: Mapping[type[Any], str]) -> Sequence[PodAdded]:
        if POD_ADDED.type not in methods:
            return ()
        return [PodAdded(endpoint) for endpoint in self.members.value]

    @property
    def dropped(self) -> dict[tuple[str, str], int]:
        """Events that never reached their listener, by topic and plugin."""
        return {
            (subscription.topic, subscription.name): subscription.dropped
            for inbox in self._open.values()
            for subscription in inbox.subscriptions
        }

    async def run(self) -> None:
        """Deliver until cancelled."""
        version = -1
        async with supervise() as supervisor:
            crew = Crew[Who](supervisor)
            while True:
                version, _ = await self._changed.newer(version)
                await crew.become({who: inbox.child() for who, inbox in self._open.items()})


def _who(listener: Listener) -> Who:
    """Events share an inbox when none of them may be lost."""
    in_order = listener.listens.overflow is Overflow.WAIT
    return id(listener.installed.plugin), IN_ORDER if in_order else listener.listens.method
