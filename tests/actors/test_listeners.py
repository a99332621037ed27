"""Events reach the plugins that listen, and nobody waits for a slow one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import anyio
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.actors.listeners import Listeners
from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import (
    ChangeEndpoints,
    Datastore,
    EndpointSpec,
    ReplaceEndpoints,
)
from pointsman.kernel.keys import on
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import (
    POD_ADDED,
    POD_DELETED,
    RESPONSE_ENDED,
    EndCause,
    PodAdded,
    PodDeleted,
    ResponseEnded,
)
from pointsman.kernel.testing import endpoint, surroundings, wired
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring


@define(eq=False)
class Ears:
    """Notes what it hears; may be slow, or raise."""

    type_name: ClassVar = "ears"
    heard: list[str] = field(factory=list[str], init=False)
    pause: float = 0.0
    trouble: bool = False

    @on(POD_ADDED)
    async def arrived(self, event: PodAdded) -> None:
        await self._note(f"+{event.endpoint.identity.uid}")

    @on(POD_DELETED)
    async def left(self, event: PodDeleted) -> None:
        await self._note(f"-{event.endpoint.identity.uid}")

    @on(RESPONSE_ENDED, capacity=2)
    def ended(self, event: ResponseEnded) -> None:
        self.heard.append(f"end {event.request}")

    async def _note(self, what: str) -> None:
        await anyio.sleep(self.pause)
        if self.trouble:
            raise RuntimeError(what)
        self.heard.append(what)


def spec(name: str, uid: str = "") -> EndpointSpec:
    return EndpointSpec(uid=uid or name, name=name, address="10.0.0.1", port=1)


@define(eq=False)
class House:
    """A datastore and the listeners of its events."""

    wiring: Latest[Wiring]
    datastore: Datastore
    listeners: Listeners

    def ears(self, name: str = "ears") -> Ears:
        plugin: Any = self.wiring.value.installed[name].plugin
        assert isinstance(plugin, Ears)
        return plugin

    async def change(self, change: Any) -> None:
        """Apply a change and publish what follows, as the datastore's actor does."""
        for key, event in self.datastore.apply(change):
            await self.datastore.topics.topic(key.name).publish(event)


TWO = "plugins: [{type: ears}, {type: ears, name: other}]"


@pytest.fixture
def house(nursery: trio.Nursery) -> Generator[House]:
    topics = Topics()
    inbox = Mailbox[Any].open("datastore", capacity=1)
    inbox.close()
    datastore = Datastore(inbox, topics)
    wiring = Latest(wired(TWO, Ears))
    listeners = Listeners(wiring, topics, datastore.members)
    listeners.subscribe()
    nursery.start_soon(listeners.run)
    yield House(wiring, datastore, listeners)
    topics.close()


async def test_each_change_of_the_pool_is_heard_once(house: House) -> None:
    await house.change(ReplaceEndpoints([spec("a"), spec("b")]))
    await house.change(ChangeEndpoints(removals=[spec("a")]))
    await wait_all_tasks_blocked()
    assert house.ears().heard == ["+a", "+b", "-a"]


async def test_a_pod_created_again_under_its_name_is_deleted_once_and_added_once(
    house: House,
) -> None:
    await house.change(ReplaceEndpoints([spec("a", "u1")]))
    await house.change(ChangeEndpoints(upserts=[spec("a", "u2")]))
    await house.change(ChangeEndpoints(removals=[spec("a", "u1")]))
    await wait_all_tasks_blocked()
    assert house.ears().heard == ["+u1", "-u1", "+u2"]


async def test_a_slow_listener_delays_neither_others_nor_the_publisher(
    house: House, autojump_clock: MockClock
) -> None:
    house.ears("other").pause = 60
    await house.change(ReplaceEndpoints([spec("a"), spec("b")]))
    assert trio.current_time() == 0
    await wait_all_tasks_blocked()
    assert house.ears().heard == ["+a", "+b"]
    await anyio.sleep(121)
    assert house.ears("other").heard == ["+a", "+b"]


async def test_a_listener_that_raises_hears_the_next_event_all_the_same(house: House) -> None:
    house.ears().trouble = True
    await house.change(ReplaceEndpoints([spec("a")]))
    await wait_all_tasks_blocked()
    house.ears().trouble = False
    await house.change(ReplaceEndpoints([]))
    await wait_all_tasks_blocked()
    assert house.ears().heard == ["-a"]
    assert house.wiring.value.installed["ears"].failures == 1


async def test_events_of_requests_wait_for_nobody_and_what_is_lost_is_counted(
    house: House,
) -> None:
    topic = house.datastore.topics.topic("response-end")
    for number in range(5):
        topic.offer(ResponseEnded(number, endpoint("a"), EndCause.NATURAL))
    await wait_all_tasks_blocked()
    assert house.ears().heard == ["end 3", "end 4"]
    assert house.listeners.dropped["response-end", "ears"] == 3


async def test_a_plugin_that_joins_later_hears_of_the_pods_that_are_there(house: House) -> None:
    await house.change(ReplaceEndpoints([spec("a")]))
    await wait_all_tasks_blocked()
    before = house.wiring.value
    third = f"{TWO[:-1]}, {{type: ears, name: third}}]"
    house.wiring.set(wired(third, Ears, before=before))
    house.listeners.subscribe()
    await wait_all_tasks_blocked()
    assert house.ears("third").heard == ["+a"]
    assert house.ears().heard == ["+a"]


async def test_a_plugin_that_leaves_hears_nothing_more(house: House) -> None:
    other = house.ears("other")
    house.wiring.set(wired("plugins: [{type: ears}]", Ears, before=house.wiring.value))
    house.listeners.subscribe()
    await house.change(ReplaceEndpoints([spec("a")]))
    await wait_all_tasks_blocked()
    assert other.heard == []
    assert house.ears().heard == ["+a"]
    assert len(house.datastore.topics.topic("pod-added").subscriptions) == 1


async def test_the_configuration_may_narrow_what_is_heard(nursery: trio.Nursery) -> None:
    wiring = wired("plugins: [{type: ears, consumes: [pod-deleted]}]", Ears)
    topics: Sequence[str] = [listener.topic for listener in wiring.listeners]
    assert topics == ["pod-deleted"]


def test_the_surroundings_of_the_kit_are_those_of_the_daemon() -> None:
    assert "ears" in surroundings(Ears).registry
