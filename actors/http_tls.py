"""HTTP over TLS: a listener whose connections have shaken hands."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup
from anyio.streams.tls import TLSAttribute, TLSStream
from attrs import define

logger = logging.getLogger(__name__)

HANDSHAKE: Final = 10.0  # seconds for a client to finish it


@final
@define(eq=False)
class TlsListener(Listener[SocketStream]):
    """Hands on the connections of *listener* on which TLS has begun; drops the others."""

    listener: Listener[SocketStream]
    context: ssl.SSLContext

    async def serve(
        self, handler: Callable[[SocketStream], Any], task_group: TaskGroup | None = None
    ) -> None:
        async def begin(stream: SocketStream) -> None:
            secure = await shake_hands(stream, self.context)
            if secure is not None:
                await handler(secure)

        await self.listener.serve(begin, task_group)

    async def aclose(self) -> None:
        await self.listener.aclose()


def is_certified(stream: SocketStream) -> bool:
    """Whether the client has shown a certificate that was verified."""
    return isinstance(stream, SecureStream) and bool(stream.certificate)


async def shake_hands(stream: SocketStream, context: ssl.SSLContext) -> SecureStream | None:
    """*stream* with TLS on it; None, and it is closed, when the client does not manage."""
    try:
        with anyio.fail_after(HANDSHAKE):
            secure = await TLSStream.wrap(
                stream, server_side=True, ssl_context=context, standard_compatible=False
            )
            return SecureStream(secure, stream)
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        logger.info("a client failed to start TLS: %r", error)
        await anyio.aclose_forcefully(stream)
        return None


@final
@define(eq=False)
class SecureStream(SocketStream):
    """A TLS stream as the HTTP server wants it: a socket that breaks rather than complains."""

    stream: TLSStream
    transport: SocketStream

    @property
    def certificate(self) -> Mapping[str, Any]:
        """The client's, as `ssl` reads it; empty without one that was verified."""
        found: Mapping[str, Any] | None = self.stream.extra(TLSAttribute.peer_certificate, None)
        return found or {}

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
