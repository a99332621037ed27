"""Whoever follows the rules of list and watch ends up right, whatever goes wrong on the way."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from random import Random
from typing import Any, cast

import anyio
import attrs
import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.http import HangUp
from pointsman.actors.sim.kube.faults import Action, Fault
from pointsman.actors.sim.kube.samples import pod
from pointsman.actors.sim.kube.store import Deletion

from .kit import PODS, Api

SELECTOR = "app=x"
HOUR = 3600.0
ON_STREAMS: list[Action] = ["truncate", "end", "break", "expire", "garbage", "silence"]
ON_REQUESTS: list[Action] = ["status", "drop", "delay"]


@attrs.define(eq=False)
class Follower:
    """Lists, then watches from where it was; lists anew when its version is too old."""

    api: Api
    version: str = ""
    mirror: dict[str, Any] = attrs.field(factory=dict[str, Any])
    lists: int = 0

    async def run(self) -> None:
        while True:
            try:
                if not self.version:
                    await self.relist()
                with anyio.move_on_after(120):
                    await self.follow()
            except (HangUp, anyio.BrokenResourceError, ValueError):
                await anyio.sleep(1)

    async def relist(self) -> None:
        query: dict[str, object] = {"labelSelector": SELECTOR, "limit": 3}
        items: dict[str, Any] = {}
        while True:
            page = json.loads(await self.whole(**query))
            items |= {item["metadata"]["name"]: item for item in page["items"]}
            if "continue" not in page["metadata"]:
                break
            query["continue"] = page["metadata"]["continue"]
        self.mirror, self.version = items, page["metadata"]["resourceVersion"]
        self.lists += 1

    async def whole(self, **query: object) -> bytes:
        response = await self.api.response("GET", PODS, **query)
        if response.status != 200 or not isinstance(response.body, bytes):
            raise ValueError
        return response.body

    async def follow(self) -> None:
        query = {"labelSelector": SELECTOR, "resourceVersion": self.version, "watch": "1"}
        response = await self.api.response(
            "GET", PODS, timeoutSeconds=60, allowWatchBookmarks="true", **query
        )
        if response.status != 200:
            self.version = "" if response.status == 410 else self.version
            raise ValueError
        lines = cast("AsyncGenerator[bytes]", response.body)
        async with aclosing(lines):
            async for line in lines:
                self.take(json.loads(line))

    def take(self, event: Any) -> None:
        if event["type"] == "ERROR":
            self.version = ""
            raise ValueError
        obj = event["object"]
        self.version = obj["metadata"]["resourceVersion"]
        if event["type"] == "DELETED":
            del self.mirror[obj["metadata"]["name"]]
        elif event["type"] != "BOOKMARK":
            self.mirror[obj["metadata"]["name"]] = obj


def change(api: Api, random: Random) -> None:
    """Something happens to one of the pods."""
    name, app = f"p-{random.randrange(12)}", random.choice("xxy")
    if name not in map(named, api.server.objects("pods")):
        api.server.create(pod(name, ip="10.0.0.1", labels={"app": app}))
    elif random.random() < 0.3:
        api.server.delete("pods", name, Deletion(grace=random.choice([None, 0, 5])))
    else:
        api.server.patch("pods", name, {"metadata": {"labels": {"app": app}}})


def named(obj: Any) -> str:
    return str(obj["metadata"]["name"])


def go_wrong(api: Api, random: Random) -> None:
    match random.randrange(6):
        case 0:
            api.server.compact()
        case 1:
            api.server.faults.disconnect()
        case 2 | 3:
            action = random.choice(ON_STREAMS)
            api.server.faults.add(Fault(action=action, count=1, skip=random.randrange(3)))
        case _:
            action = random.choice(ON_REQUESTS)
            status = random.choice([401, 403, 404, 410, 429, 500, 503])
            api.server.faults.add(Fault(action=action, count=1, status=status, seconds=5))


@pytest.mark.parametrize("seed", range(5))
async def test_a_follower_ends_with_what_is_there(
    api: Api, nursery: trio.Nursery, autojump_clock: MockClock, seed: int
) -> None:
    random = Random(seed)
    follower = Follower(api)
    nursery.start_soon(follower.run)
    end = trio.current_time() + HOUR
    while trio.current_time() < end:
        await trio.sleep(random.expovariate(1 / 20))
        change(api, random)
        if random.random() < 0.3:
            go_wrong(api, random)
    api.server.faults.clear()
    await trio.sleep(600)
    listed = (await api.get(PODS, labelSelector=SELECTOR))["items"]
    assert {named(obj): version(obj) for obj in listed} == {
        name: version(obj) for name, obj in follower.mirror.items()
    }
    assert follower.lists > 1


def version(obj: Any) -> str:
    return str(obj["metadata"]["resourceVersion"])
