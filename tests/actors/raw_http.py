"""A client that speaks HTTP in raw bytes, and a server for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.streams.buffered import BufferedByteReceiveStream
from attrs import define, field

from pointsman.actors.http import Handler, Limits, serve

GET = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n"


@define(eq=False)
class Client:
    """Speaks to the server in raw bytes."""

    stream: ByteStream
    _reader: BufferedByteReceiveStream = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reader = BufferedByteReceiveStream(self.stream)

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self._reader.receive_until(b"\r\n\r\n", 65536)).decode().split("\r\n")
        fields = (line.split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]), {name.lower(): value for name, value in fields}

    async def answer(self) -> tuple[int, bytes]:
        status, headers = await self.head()
        return status, await self._reader.receive_exactly(int(headers["content-length"]))

    async def chunk(self) -> bytes:
        size = int(await self._reader.receive_until(b"\r\n", 100), 16)
        return (await self._reader.receive_exactly(size + 2))[:-2]

    async def at_end(self) -> bool:
        """Whether the server closes without another byte."""
        try:
            await self._reader.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
        return False

    async def ask(self, data: bytes = GET) -> tuple[int, bytes]:
        await self.send(data)
        return await self.answer()


@define(eq=False)
class Served:
    port: int
    scope: anyio.CancelScope

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        async with await anyio.connect_tcp("127.0.0.1", self.port) as stream:
            yield Client(stream)


@asynccontextmanager
async def served(handler: Handler, limits: Limits | None = None) -> AsyncGenerator[Served]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: serve(listener, handler, limits=limits))
            yield Served(listener.extra(SocketAttribute.local_port), tasks.cancel_scope)
            tasks.cancel_scope.cancel()
