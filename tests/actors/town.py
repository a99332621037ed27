"""Envoy and the daemon, played by one object in front of a real cluster without sockets."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any, cast

import anyio
import httpx
import pytest
import trio
from attrs import define, field

from pointsman.actors.demo_kube_cluster import ADDRESSES, POOL, Cluster, pod, world
from pointsman.actors.demo_kube_steps import FIRST, Story
from pointsman.actors.demo_kube_traffic import ATTEMPTS, Traffic
from pointsman.actors.sim import node as node_module
from pointsman.actors.sim.kube.identity import Authenticator
from pointsman.actors.sim.kube.objects import Object, at, is_terminating
from pointsman.actors.sim.kube.server import ApiServer
from pointsman.actors.sim.node import Node, NodeSettings
from pointsman.actors.sim.processes import Process

from .sim.doors import Street, answer

PORT = 8000


@define(eq=False)
class Town(httpx.AsyncBaseTransport):
    """Envoy and the daemon in one: picks a ready pod of the pool, and another one if need be."""

    api: ApiServer
    random: Random = field(factory=lambda: Random(3))
    street: Street = field(factory=Street)
    forgets: bool = True
    """Deleted pods leave the pool."""
    retries: bool = True
    strays: bool = False
    """The pool's selector counts for what the daemon says, and not for where requests go."""
    blind: bool = False
    """The daemon says that it knows nobody."""
    down: bool = False
    asked: list[Any] = field(factory=list[Any])

    def pool(self, *, stray: bool = False) -> list[str]:
        """The addresses of the pool; with *stray*, of every pod that is ready."""
        chosen = at(self.api.get("inferencepools", POOL), "spec", "selector", "matchLabels")
        selector: dict[str, str] = {} if stray else chosen
        pods = [pod for pod in self.api.objects("pods") if self._serves(pod, selector)]
        return [pod["status"]["podIP"] for pod in pods]

    def _serves(self, pod: Object, selector: dict[str, str]) -> bool:
        conditions: list[Object] = at(pod, "status", "conditions") or []
        ready = any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
        wanted = selector.items() <= pod["metadata"]["labels"].items()
        return ready and wanted and not (is_terminating(pod) and self.forgets)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.down:
            raise httpx.ConnectError("refused", request=request)
        if request.url.path == "/debug/endpoints":
            rows = [{"address": f"{address}:{PORT}"} for address in self.pool() if not self.blind]
            return httpx.Response(200, json=rows)
        self.asked.append(json.loads(request.content))
        pool = self.pool(stray=self.strays)
        order = self.random.sample(pool, len(pool))
        for attempt, address in enumerate(order, start=1):
            if self.street.takes_connections(address):
                response = await answer(self.street.containers[address], request)
                response.headers[ATTEMPTS] = str(attempt)
                return response
            if not self.retries:
                break
        return httpx.Response(503, text="connection refused")


@define(eq=False)
class Stage:
    """All that a story needs."""

    town: Town
    cluster: Cluster
    traffic: Traffic

    async def play(self) -> Story:
        story = Story(self.cluster, self.traffic)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.traffic.run)
            await story.run()
            self.traffic.stop()
        return story


def stage(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Stage:
    """A cluster with its first pods, which are about to start."""
    api = world(PORT, Authenticator(), [pod(name) for name in FIRST])
    node = Node(api, NodeSettings(addresses=ADDRESSES, port=PORT))
    town = Town(api, **settings)
    monkeypatch.setattr(anyio, "create_tcp_listener", town.street.listen)
    monkeypatch.setattr(node_module, "Container", town.street.contain)
    nursery.start_soon(api.run)
    nursery.start_soon(node.run)
    client = httpx.AsyncClient(transport=town, base_url="http://gateway")
    nobody = cast("Process", None)
    cluster = Cluster(api, node, nobody, client, client, Path("kubeconfig"))
    return Stage(town, cluster, Traffic(client, Random(0), 20.0))


async def started(on: Stage) -> None:
    """Wait until the first pods are ready."""
    await trio.sleep(1)
    assert len(on.town.pool()) == len(FIRST)
