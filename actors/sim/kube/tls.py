"""HTTP over TLS, where a connection's certificate says who its requests are from."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, final

import anyio
import anyio.lowlevel
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.tls import TLSAttribute, TLSStream
from attrs import define

from pointsman.actors.http import Handler, Request, Response, serve

from .identity import User, certified

logger = logging.getLogger(__name__)

PeerHandler = Callable[[Request, User | None], Awaitable[Response]]

HANDSHAKE: Final = 10.0  # seconds for a client to finish it


async def serve_tls(
    listener: Listener[SocketStream], context: ssl.SSLContext, handler: PeerHandler
) -> None:
    """Answer requests from *listener* with *handler* until cancelled; closes the listener."""

    async def converse(stream: SocketStream) -> None:
        secure = await _start_tls(stream, context)
        if secure is not None:
            certificate = secure.extra(TLSAttribute.peer_certificate, None)
            peer = certified(certificate or {})
            await _serve_one(_Secure(secure, stream), partial(_as_peer, handler, peer))

    async with listener:
        await listener.serve(converse)


async def _start_tls(stream: SocketStream, context: ssl.SSLContext) -> TLSStream | None:
    """The stream with TLS on it; None, and it is closed, when the client does not manage."""
    try:
        with anyio.fail_after(HANDSHAKE):
            return await TLSStream.wrap(
                stream, server_side=True, ssl_context=context, standard_compatible=False
            )
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        logger.info("a client failed to start TLS: %r", error)
        await anyio.aclose_forcefully(stream)
        return None


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


@final
@define(eq=False)
class _Secure(SocketStream):
    """A TLS stream as the HTTP server wants it: a socket that breaks rather than complains."""

    stream: TLSStream
    transport: SocketStream

    @property
    def _raw_socket(self) -> socket.socket:
        found: socket.socket = self.transport.extra(SocketAttribute.raw_socket)
        return found

    async def receive(self, max_bytes: int = 65536) -> bytes:
        try:
            return await self.stream.receive(max_bytes)
        except ssl.SSLError as error:
            raise anyio.BrokenResourceError from error

    async def send(self, item: bytes) -> None:
        try:
            await self.stream.send(item)
        except ssl.SSLError as error:
            raise anyio.BrokenResourceError from error

    async def send_eof(self) -> None:
        # TLS cannot close one direction. By now the answer is complete, and its end is known.
        await self.transport.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()
