"""The node under virtual time: what becomes of a pod, seen by clients of the API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors.sim import node as node_module
from pointsman.actors.sim.kube.objects import Object, at
from pointsman.actors.sim.kube.server import ApiServer
from pointsman.actors.sim.kube.store import Deletion
from pointsman.actors.sim.node import PRE_STOP, PROBE, SETTLE, START, Node, NodeSettings

from .clients import CHAT
from .doors import Street, answer

ADDRESSES = ("127.0.2.1", "127.0.2.2", "127.0.2.3")
A_BIT = 0.01


def new(name: str, grace: int = 30) -> Object:
    spec = {"terminationGracePeriodSeconds": grace, "containers": [{"name": "server"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@define(eq=False)
class World:
    """A cluster with one node."""

    api: ApiServer
    node: Node
    street: Street = field(factory=Street)

    def address(self, name: str) -> str:
        return at(self.api.get("pods", name), "status", "podIP") or ""

    def is_ready(self, name: str) -> bool:
        conditions: list[Any] = at(self.api.get("pods", name), "status", "conditions") or []
        return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.api.objects("pods")]

    async def add(self, *names: str, grace: int = 30) -> None:
        """Create pods and wait until they are ready, if they can be."""
        for name in names:
            self.api.create(new(name, grace))
        await trio.sleep(START + A_BIT)

    async def ask(self, address: str, tokens: int) -> httpx.Response:
        body = {**CHAT, "max_tokens": tokens, "ignore_eos": True}
        request = httpx.Request("POST", "/v1/chat/completions", json=body)
        return await answer(self.street.containers[address], request)


@pytest.fixture
def make(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    def make(*addresses: str) -> World:
        api = ApiServer(now=trio.current_time)
        node = Node(api, NodeSettings(addresses=addresses or ADDRESSES, port=8000))
        world = World(api, node)
        monkeypatch.setattr(anyio, "create_tcp_listener", world.street.listen)
        monkeypatch.setattr(node_module, "Container", world.street.contain)
        nursery.start_soon(api.run)
        nursery.start_soon(node.run)
        return world

    return make


Make = Callable[..., World]


async def test_a_new_pod_gets_an_address_and_is_ready_when_it_has_started(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    world.api.create(new("a"))
    await trio.sleep(START - A_BIT)
    assert (world.address("a"), world.is_ready("a")) == ("", False)
    await trio.sleep(2 * A_BIT)
    assert (world.address("a"), world.is_ready("a")) == ("127.0.2.1", True)
    assert world.street.takes_connections("127.0.2.1")


async def test_a_pod_without_a_free_address_waits_for_one(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make("127.0.2.1")
    await world.add("a", "b")
    assert (world.is_ready("a"), world.is_ready("b")) == (True, False)
    world.api.delete("pods", "a", Deletion(grace=0))
    await trio.sleep(START + A_BIT)
    assert (world.address("b"), world.is_ready("b")) == ("127.0.2.1", True)


async def test_a_deleted_pod_serves_on_for_a_while_and_goes(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    await world.add("a")
    world.api.delete("pods", "a")
    await trio.sleep(PRE_STOP - A_BIT)
    assert world.street.takes_connections("127.0.2.1")
    await trio.sleep(SETTLE)
    assert not world.street.takes_connections("127.0.2.1")
    assert world.names() == ["a"]
    await trio.sleep(2 * A_BIT)
    assert world.names() == []


async def test_a_deleted_pod_stays_until_its_last_answer(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    await world.add("a")
    world.api.delete("pods", "a")
    response = await world.ask("127.0.2.1", tokens=400)
    assert response.json()["usage"]["completion_tokens"] == 400
    assert world.names() == ["a"]
    assert not world.street.takes_connections("127.0.2.1")
    await trio.sleep(SETTLE + A_BIT)
    assert world.names() == []


async def test_a_deleted_pod_has_no_longer_than_its_grace(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    await world.add("a", grace=2)
    async with trio.open_nursery() as clients:
        clients.start_soon(world.ask, "127.0.2.1", 10_000)
        await trio.sleep(A_BIT)
        world.api.delete("pods", "a")
        await trio.sleep(2 - A_BIT)
        assert world.names() == ["a"]
        await trio.sleep(2 * A_BIT)
        assert world.names() == []
        clients.cancel_scope.cancel()
    await world.add("b", "c", "d")
    assert world.address("d") == "127.0.2.1"


async def test_a_pod_that_is_deleted_while_it_starts_goes_too(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    world.api.create(new("a"))
    await trio.sleep(A_BIT)
    world.api.delete("pods", "a")
    await trio.sleep(START + PRE_STOP + SETTLE + A_BIT)
    assert world.names() == []


async def test_a_pod_that_is_created_anew_moves(make: Make, autojump_clock: MockClock) -> None:
    world = make()
    await world.add("a")
    world.api.delete("pods", "a", Deletion(grace=0))
    await world.add("a")
    assert (world.address("a"), world.is_ready("a")) == ("127.0.2.2", True)
    assert not world.street.takes_connections("127.0.2.1")


async def test_a_pod_that_takes_the_name_of_one_that_starts_is_not_told_its_address(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    world.api.create(new("a"))
    await trio.sleep(START / 2)
    world.api.delete("pods", "a", Deletion(grace=0))
    world.api.create(new("a"))
    await trio.sleep(START / 2 + A_BIT)
    assert world.address("a") == ""
    await trio.sleep(START / 2)
    assert world.address("a") == "127.0.2.2"


async def test_a_server_that_fails_is_noticed_later_and_starts_again(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    await world.add("a", "b")
    world.node.restart("a")
    await trio.sleep(A_BIT)
    assert (world.is_ready("a"), world.street.takes_connections("127.0.2.1")) == (True, False)
    await trio.sleep(PROBE)
    assert (world.is_ready("a"), world.is_ready("b")) == (False, True)
    await trio.sleep(SETTLE + START)
    assert (world.is_ready("a"), world.street.takes_connections("127.0.2.1")) == (True, True)
    assert world.address("a") == "127.0.2.1"


async def test_a_failed_server_whose_pod_is_deleted_does_not_start_again(
    make: Make, autojump_clock: MockClock
) -> None:
    world = make()
    await world.add("a")
    world.node.restart("a")
    await trio.sleep(A_BIT)
    world.api.delete("pods", "a")
    await trio.sleep(PROBE + SETTLE + A_BIT)
    assert world.names() == []
