"""Clients that see how their requests end: over HTTP/1.1, and over one shared HTTP/2 connection.

httpx does not tell the server when the reader of an HTTP/2 response leaves, so that one is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import Final, cast

import anyio
import httpx
from anyio.abc import SocketStream
from attrs import define, field, frozen
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

from pointsman.actors.sim.envoy_bootstrap import HostPort

PATH: Final = "/v1/chat/completions"
JSON_BODY: Final = {"content-type": "application/json"}


class Cut(Exception):
    """The answer ended before its end, or never began."""


@frozen
class Answer:
    """The beginning of an answer, and the way to the rest of it."""

    status: int
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces])


Ask = Callable[[bytes], AbstractAsyncContextManager[Answer]]
"""Ask for a chat with this body. Who leaves the block before the answer's end aborts it."""


@asynccontextmanager
async def http1(where: HostPort) -> AsyncGenerator[Ask]:
    """A client with as many connections as it has requests; leaving one closes it."""
    limits = httpx.Limits(max_connections=None)
    client = httpx.AsyncClient(
        base_url=f"http://{where}", trust_env=False, timeout=None, limits=limits
    )

    @asynccontextmanager
    async def ask(body: bytes) -> AsyncGenerator[Answer]:
        try:
            async with (
                client.stream("POST", PATH, content=body, headers=JSON_BODY) as response,
                aclosing(cast(AsyncGenerator[bytes], response.aiter_raw())) as pieces,
            ):
                yield Answer(response.status_code, response.headers, pieces)
        except httpx.TransportError as exc:
            raise Cut(repr(exc)) from exc

    async with client:
        yield ask


@asynccontextmanager
async def http2(where: HostPort) -> AsyncGenerator[Ask]:
    """A client with one connection in clear, made anew when it was lost."""
    async with anyio.create_task_group() as tasks:
        connection, connecting = await _connect(where), anyio.Lock()
        tasks.start_soon(connection.run)

        @asynccontextmanager
        async def ask(body: bytes) -> AsyncGenerator[Answer]:
            nonlocal connection
            async with connecting:
                if connection.lost:
                    connection = await _connect(where)
                    tasks.start_soon(connection.run)
            async with connection.ask(body) as answer:
                yield answer

        yield ask
        tasks.cancel_scope.cancel()


async def _connect(where: HostPort) -> _Connection:
    try:
        return _Connection(str(where), await anyio.connect_tcp(where.host, where.port))
    except OSError as exc:
        raise Cut(repr(exc)) from exc


@define(eq=False)
class _Exchange:
    """One stream, as far as it has come."""

    headers: dict[str, str] | None = None
    parts: deque[bytes] = field(factory=deque[bytes])
    ended: bool = False
    cut: str = ""
    _changed: anyio.Event = field(factory=anyio.Event, init=False)

    @property
    def over(self) -> bool:
        return self.ended or bool(self.cut)

    def wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def change(self) -> None:
        """Wait for whatever comes next, unless nothing will."""
        if self.cut:
            raise Cut(self.cut)
        await self._changed.wait()

    async def pieces(self) -> AsyncGenerator[bytes]:
        while self.parts or not self.ended:
            if self.parts:
                yield self.parts.popleft()
            else:
                await self.change()


@define(eq=False)
class _Connection:
    authority: str
    _socket: SocketStream
    lost: bool = field(default=False, init=False)
    _http: H2Connection = field(factory=lambda: H2Connection(H2Configuration()), init=False)
    _exchanges: dict[int, _Exchange] = field(factory=dict[int, _Exchange], init=False)
    _sending: anyio.Lock = field(factory=anyio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self._http.initiate_connection()

    async def run(self) -> None:
        """Read until the other side closes the connection."""
        async with self._socket:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError, ProtocolError):
                while True:
                    for event in self._http.receive_data(await self._socket.receive()):
                        self._take(event)
                    await self._flush()
            self.lost = True
            for exchange in self._exchanges.values():
                exchange.cut = exchange.cut or "the connection was closed"
                exchange.wake()

    def _take(self, event: Event) -> None:
        number: int | None = getattr(event, "stream_id", None)
        # What is of the connection's (0), or of its settings, may be news for all.
        exchange = self._exchanges.get(number) if number else None
        if isinstance(event, DataReceived) and event.flow_controlled_length:
            self._http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        match event, exchange:
            case ConnectionTerminated(), _:
                self.lost = True
            case ResponseReceived(), _Exchange():
                exchange.headers = {_text(name): _text(value) for name, value in event.headers}
            case DataReceived(), _Exchange():
                exchange.parts.append(event.data)
            case StreamEnded(), _Exchange():
                exchange.ended = True
            case StreamReset(), _Exchange():
                exchange.cut = f"the stream was reset: {event.error_code!r}"
            case _:
                pass
        for concerned in (exchange,) if exchange else tuple(self._exchanges.values()):
            concerned.wake()

    @asynccontextmanager
    async def ask(self, body: bytes) -> AsyncGenerator[Answer]:
        number, exchange = self._http.get_next_available_stream_id(), _Exchange()
        self._exchanges[number] = exchange
        try:
            self._http.send_headers(number, self._head(len(body)))
            await self._send_body(number, exchange, body)
            while exchange.headers is None:
                await exchange.change()
            status = int(exchange.headers[":status"])
            async with aclosing(exchange.pieces()) as pieces:
                yield Answer(status, exchange.headers, pieces)
        except ProtocolError as exc:  # nothing can be sent any more
            raise Cut(repr(exc)) from exc
        finally:
            del self._exchanges[number]
            if not exchange.over:
                await self._leave(number)

    def _head(self, length: int) -> list[tuple[str, str]]:
        pseudo = {":method": "POST", ":scheme": "http", ":path": PATH, ":authority": self.authority}
        return [*pseudo.items(), *JSON_BODY.items(), ("content-length", str(length))]

    async def _send_body(self, number: int, exchange: _Exchange, body: bytes) -> None:
        while body and not exchange.over:
            window = self._http.local_flow_control_window(number)
            if not window:
                await exchange.change()
                continue
            part = body[: min(window, self._http.max_outbound_frame_size)]
            body = body[len(part) :]
            self._http.send_data(number, part, end_stream=not body)
            await self._flush()

    async def _leave(self, number: int) -> None:
        with suppress(ProtocolError):  # it may have ended just now
            self._http.reset_stream(number, ErrorCodes.CANCEL)
        await self._flush()

    async def _flush(self) -> None:
        """Send what is to be sent, all of it: half a frame would be the end of the connection."""
        gone = suppress(anyio.BrokenResourceError, anyio.ClosedResourceError)  # `run` tells it
        with anyio.CancelScope(shield=True), gone:
            async with self._sending:
                if data := self._http.data_to_send():
                    await self._socket.send(data)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
