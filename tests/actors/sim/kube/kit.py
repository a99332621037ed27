"""A client of a simulated API server that needs no socket, and watches that take notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import trio
import yaml

from pointsman.actors.http import Request, Response
from pointsman.actors.sim.kube.identity import User
from pointsman.actors.sim.kube.server import ApiServer

EPOCH: Final = 1_795_953_600.0
"""Unix time at which the tests begin: 2026-11-29T12:00:00Z."""
DEPLOY: Final = Path(__file__).parents[4] / "deploy" / "kubernetes"
PODS: Final = "/api/v1/namespaces/default/pods"
POOLS: Final = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"


@cache
def definitions() -> tuple[Any, ...]:
    """The definitions of custom kinds that Pointsman ships."""
    return tuple(yaml.safe_load(path.read_text()) for path in sorted((DEPLOY / "crds").iterdir()))


@attrs.define(eq=False)
class Watcher:
    """What came over a watch."""

    response: Response
    lines: list[bytes] = attrs.field(factory=list[bytes])
    ended: bool = False
    broken: bool = False

    async def run(self) -> None:
        assert not isinstance(self.response.body, bytes)
        try:
            async for line in self.response.body:
                self.lines.append(line)
            self.ended = True
        except anyio.BrokenResourceError:
            self.broken = True
        if self.response.on_done is not None:
            self.response.on_done()

    @property
    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]

    @property
    def told(self) -> list[tuple[str, str | None]]:
        """Type and name of each event; bookmarks have no name."""
        return [(event["type"], event["object"]["metadata"].get("name")) for event in self.events]


@attrs.define(eq=False)
class Api:
    """Asks the server, as somebody."""

    server: ApiServer
    nursery: trio.Nursery
    token: str = ""
    peer: User | None = None
    media: str = "application/json"
    headers: dict[str, str] = attrs.field(factory=dict[str, str])

    def evolved(self, **changes: Any) -> Api:
        return attrs.evolve(self, **changes)

    async def response(
        self, method: str, path: str, body: object = None, **query: object
    ) -> Response:
        headers = {"content-type": self.media, "host": "kube", **self.headers}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        texts = {name: str(value) for name, value in query.items()}
        return await self.server.handle(Request(method, path, texts, headers, data), self.peer)

    async def ask(
        self, method: str, path: str, body: object = None, **query: object
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        response = await self.response(method, path, body, **query)
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)

    async def get(self, path: str, **query: object) -> Any:
        status, body = await self.ask("GET", path, **query)
        assert status == 200, body
        return body

    async def names(self, path: str, **query: object) -> list[str]:
        """The names of the objects in a list."""
        items = (await self.get(path, **query))["items"]
        return [item["metadata"]["name"] for item in items]

    async def refused(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """The ``Status`` of an answer that says no."""
        status, answer = await self.ask(method, path, body, **query)
        assert (answer["kind"], answer["status"], answer["code"]) == ("Status", "Failure", status)
        return answer

    async def watch(self, path: str, **query: object) -> Watcher:
        """Open a watch and take notes of it in the background."""
        response = await self.response("GET", path, **{"watch": "1", **query})
        assert response.status == 200
        watcher = Watcher(response)
        self.nursery.start_soon(watcher.run)
        return watcher


MakeApi = Callable[..., Api]
