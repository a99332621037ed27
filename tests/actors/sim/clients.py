"""A client of a simulated server that needs no socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from pointsman.actors.http import Request, Response
from pointsman.actors.sim.model_server import ModelServer

CHAT: Final[dict[str, Any]] = {
    "model": "llama-8b",
    "messages": [{"role": "user", "content": "Where does it go?"}],
}


@attrs.define(eq=False)
class Client:
    """Asks one server."""

    server: ModelServer

    async def response(
        self, path: str, body: object = None, *, method: str | None = None, **headers: str
    ) -> Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        way = method or ("GET" if body is None else "POST")
        return await self.server.handle(Request(way, path, {}, named, data))

    async def ask(
        self, path: str, body: object = None, *, method: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """The status and the JSON of an answer that comes in one piece."""
        response = await self.response(path, body, method=method, **headers)
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body) if response.body else None

    async def stream(self, path: str, body: dict[str, Any]) -> list[Any]:
        """The events of an answer that streams."""
        response = await self.response(path, body | {"stream": True})
        assert not isinstance(response.body, bytes)
        data = b"".join([chunk async for chunk in response.body])
        assert response.on_done is not None
        response.on_done()
        events = [event.removeprefix("data: ") for event in data.decode().split("\n\n")[:-1]]
        assert events.pop() == "[DONE]"
        return [json.loads(event) for event in events]

    async def metric(self, name: str) -> float:
        response = await self.response("/metrics")
        assert isinstance(response.body, bytes)
        lines = response.body.decode().splitlines()
        (line,) = [line for line in lines if line.startswith(name + "{")]
        return float(line.rsplit(" ", 1)[1])


Start = Callable[..., Client]
