"""An API server that plays a script: one answer for each request, in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Any, Final

import anyio
import httpx
import msgspec
from attrs import define, evolve, field

from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.client import Client

API: Final = Access("http://api")
Answer = httpx.Response | Exception | Callable[[], Awaitable[httpx.Response]]


@define(eq=False)
class Script(httpx.AsyncBaseTransport):
    """Gives the answers and keeps the requests; hangs when it has no more to say."""

    answers: list[Answer]
    requests: list[httpx.Request] = field(factory=list[httpx.Request], init=False)
    times: list[float] = field(factory=list[float], init=False)
    """When the requests came."""
    closed: int = field(default=0, init=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.times.append(anyio.current_time())
        if not self.answers:
            await anyio.sleep_forever()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else await answer()

    async def aclose(self) -> None:
        self.closed += 1

    @property
    def queries(self) -> list[dict[str, str]]:
        return [dict(request.url.params) for request in self.requests]


@define(eq=False)
class Pieces(httpx.AsyncByteStream):
    """A body in pieces; what is no bytes is a pause in seconds or an error."""

    pieces: Iterable[bytes | float | Exception]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, bytes):
                yield piece
            else:
                await anyio.sleep(piece)


def many(count: int, *make: Callable[[], Answer]) -> list[Answer]:
    """That many rounds of new answers."""
    return [one() for _ in range(count) for one in make]


def stream(*pieces: bytes | float | Exception) -> httpx.Response:
    return httpx.Response(200, stream=Pieces(pieces))


def line(kind: str, obj: Mapping[str, Any]) -> bytes:
    """One line of a watch."""
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def page(*items: Mapping[str, Any], version: str = "10", token: str = "") -> httpx.Response:
    """A page of a list, with more to come if there is a token."""
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return stream(msgspec.json.encode({"metadata": metadata, "items": items}))


def status(code: int, reason: str = "", *, message: str = "no", **headers: str) -> httpx.Response:
    """A refusal as the API server words it."""
    body = {"kind": "Status", "status": "Failure", "message": message, "reason": reason}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = msgspec.json.encode({**body, "code": code})
    return httpx.Response(code, headers=named, stream=Pieces([content]))


def pod(name: str, version: int = 1, *, uid: str = "", **status: Any) -> dict[str, Any]:
    """A pod with as little as a pod may have."""
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": status}


def scripted(*answers: Answer, access: Access = API) -> tuple[Client, Script]:
    """A client and the script that it talks to."""
    script = Script(list(answers))

    async def read() -> Access:
        return evolve(access)

    return Client(Login(read), Random(1), lambda _access: script), script
