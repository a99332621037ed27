"""HTTP over TLS, where a connection's certificate says who its requests are from."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, final

import anyio
import anyio.lowlevel
from anyio.abc import Listener, SocketStream, TaskGroup
from attrs import define

from pointsman.actors.http import Handler, Request, Response, serve
from pointsman.actors.http_tls import shake_hands

from .identity import User, certified

PeerHandler = Callable[[Request, User | None], Awaitable[Response]]


async def serve_tls(
    listener: Listener[SocketStream], context: ssl.SSLContext, handler: PeerHandler
) -> None:
    """Answer requests from *listener* with *handler* until cancelled; closes the listener."""

    async def converse(stream: SocketStream) -> None:
        secure = await shake_hands(stream, context)
        if secure is not None:
            peer = certified(secure.certificate)
            await _serve_one(secure, partial(_as_peer, handler, peer))

    async with listener:
        await listener.serve(converse)


async def _as_peer(handler: PeerHandler, peer: User | None, request: Request) -> Response:
    return await handler(request, peer)


async def _serve_one(stream: SocketStream, handler: Handler) -> None:
    with anyio.CancelScope() as scope:
        await serve(_Once(stream, scope), handler)


@final
@define(eq=False)
class _Once(Listener[SocketStream]):
    """Accepts one connection, and ends the serving with it."""

    stream: SocketStream
    scope: anyio.CancelScope

    async def serve(
        self,
        handler: Callable[[SocketStream], Any],
        task_group: TaskGroup | None = None,
    ) -> None:
        await handler(self.stream)
        self.scope.cancel()
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
