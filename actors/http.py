"""A small HTTP/1.1 server for control-plane services on the loopback or a cluster's inside.

h11 parses, anyio moves the bytes. A connection is two tasks: one that always reads, so that a
client who leaves is noticed in the middle of an answer, and one that answers request by request.
Ending the server is cancelling `serve`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from inspect import isasyncgen
from typing import Final, final
from urllib.parse import parse_qsl, unquote

import anyio
import h11
import msgspec
from anyio.abc import Listener, SocketStream, TaskGroup
from attrs import define, field, frozen

from .http_tls import is_certified

logger = logging.getLogger(__name__)

Headers = tuple[tuple[str, str], ...]

JSON: Final[Headers] = (("content-type", "application/json"),)
ACCEPT_PAUSE: Final = 1.0  # seconds without accepting after the system ran out of descriptors
LINGER: Final = 1.0  # seconds for a client to take the last answer of a connection
READ_AHEAD: Final = 65536  # bytes taken from a client whose previous request is being answered


@frozen
class Request:
    """A complete request; header names are lower-case, repeated headers joined by commas."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    body: bytes = b""
    certified: bool = False
    """The client has shown a certificate that was verified."""


@frozen
class Response:
    """An answer: its body is bytes, or chunks of which each is sent as soon as it is there."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    headers: Headers = ()
    on_done: Callable[[], None] | None = None
    """Called once when the answer was sent or given up, even if no chunk was ever asked for."""


Handler = Callable[[Request], Awaitable[Response]]


class HangUp(Exception):
    """Raised by a handler that wants the connection closed without an answer."""


@frozen(kw_only=True)
class Limits:
    """What one client may ask of the server."""

    body: int = 16 << 20  # bytes
    head: int = 16 << 10  # bytes of request line and headers
    idle: float = 75.0  # seconds, for waiting for a request and for receiving it
    connections: int = 4096


def json_response(value: object, status: int = 200, headers: Headers = ()) -> Response:
    body = msgspec.json.encode(value)
    return Response(status, body, JSON + headers)


def text_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode(), (("content-type", "text/plain; charset=utf-8"),))


async def serve(
    listener: Listener[SocketStream], handler: Handler, *, limits: Limits | None = None
) -> None:
    """Answer requests from *listener* with *handler* until cancelled; closes the listener."""
    server = _Server(handler, limits or Limits())
    async with listener, anyio.create_task_group() as connections:
        while True:
            await _accept(listener, server, connections)


async def _accept(
    listener: Listener[SocketStream], server: _Server, connections: TaskGroup
) -> None:
    try:
        await listener.serve(server.converse, connections)
    except* (OSError, anyio.BrokenResourceError) as failures:
        logger.warning("cannot accept connections: %s", failures.exceptions[0])
        await anyio.sleep(ACCEPT_PAUSE)


@define(eq=False)
class _Server:
    handler: Handler
    limits: Limits
    connections: int = 0

    async def converse(self, stream: SocketStream) -> None:
        """Serve one connection to its end, and close it."""
        self.connections += 1
        try:
            connection = _Connection(stream, self.handler, self.limits)
            await connection.run(full=self.connections > self.limits.connections)
        except Exception:
            logger.exception("a connection ended with an error")
        finally:
            self.connections -= 1
            await anyio.aclose_forcefully(stream)


class _Refused(Exception):
    """The request cannot be handed to the handler; the connection ends after saying so."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@final
@define(eq=False)
class _Connection:
    stream: SocketStream
    handler: Handler
    limits: Limits
    _parser: h11.Connection = field(init=False)
    _arrived: anyio.Event = field(factory=anyio.Event, init=False)
    _wanted: anyio.Event | None = field(default=None, init=False)
    """Set by the answering task when the reader, stopped at its limit, may go on."""
    _unread: int = field(default=0, init=False)
    _answering: bool = field(default=False, init=False)
    _discarding: bool = field(default=False, init=False)
    _gone: bool = field(default=False, init=False)
    """The client has closed its side, or all of it."""
    _scope: anyio.CancelScope = field(init=False)
    _certified: bool = field(init=False)

    async def run(self, *, full: bool) -> None:
        self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=self.limits.head)
        self._certified = is_certified(self.stream)
        async with anyio.create_task_group() as tasks:
            self._scope = tasks.cancel_scope
            tasks.start_soon(self._read)
            await self._answer_all(full)
            tasks.cancel_scope.cancel()

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self.stream.receive())
                if self._unread > READ_AHEAD:
                    self._wanted = anyio.Event()
                    await self._wanted.wait()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self._parser.receive_data(b"")
            self._gone = True
            self._arrived.set()
            if self._answering:
                self._scope.cancel()

    def _take(self, data: bytes) -> None:
        if not self._discarding:
            self._unread += len(data)
            self._parser.receive_data(data)
            self._arrived.set()

    async def _answer_all(self, full: bool) -> None:
        try:
            if full:
                raise _Refused(503)
            while (request := await self._next_request()) is not None:
                self._scope.deadline = math.inf
                self._answering = True
                await self._answer(request)
                self._answering = False
                if self._parser.our_state is not h11.DONE:
                    break
                self._parser.start_next_cycle()
            await self._linger()
        except _Refused as refused:
            await self._refuse(refused.status)
        except (HangUp, anyio.BrokenResourceError):
            self._gone = True

    async def _next_request(self) -> Request | None:
        """Wait for a complete request; None when the client has no more."""
        self._scope.deadline = anyio.current_time() + self.limits.idle
        head: h11.Request | None = None
        body = bytearray()
        while True:
            match await self._next_event():
                case h11.Request() as head:
                    self._check_size(head)
                case h11.Data(data=data):
                    body += data
                    if len(body) > self.limits.body:
                        raise _Refused(413)
                case h11.EndOfMessage() if head is not None:
                    return _request(head, bytes(body), certified=self._certified)
                case _:
                    return None

    async def _next_event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as error:
                raise _Refused(error.error_status_hint) from None
            if event is not h11.NEED_DATA:
                return event  # type: ignore[return-value]
            await self._more()

    async def _more(self) -> None:
        if self._parser.they_are_waiting_for_100_continue:
            await self._write(h11.InformationalResponse(status_code=100, headers=[]))
        self._unread = 0
        if self._wanted is not None:
            self._wanted.set()
        await self._arrived.wait()
        self._arrived = anyio.Event()

    def _check_size(self, head: h11.Request) -> None:
        size = len(head.target)
        for name, value in head.headers:
            size += len(name) + len(value)
            if name == b"content-length" and int(value) > self.limits.body:
                raise _Refused(413)
        if size > self.limits.head:  # the parser's own limit is on heads that come in pieces
            raise _Refused(431)

    async def _answer(self, request: Request) -> None:
        response = await self._ask(request)
        bare = request.method == "HEAD"
        try:
            if isinstance(response.body, bytes):
                await self._send_whole(response, response.body, bare=bare)
            elif bare:
                await self._write(_head(response), h11.EndOfMessage())
            else:
                await self._send_chunks(request, response, response.body)
        finally:
            if response.on_done is not None:
                response.on_done()

    async def _ask(self, request: Request) -> Response:
        try:
            return await self.handler(request)
        except HangUp:
            raise
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return json_response({"detail": "Internal Server Error"}, 500)

    async def _send_whole(self, response: Response, body: bytes, *, bare: bool = False) -> None:
        head = _head(response, ("content-length", str(len(body))))
        data = () if bare or not body else (h11.Data(data=body),)
        await self._write(head, *data, h11.EndOfMessage())

    async def _send_chunks(
        self, request: Request, response: Response, chunks: AsyncIterator[bytes]
    ) -> None:
        try:
            await self._write(_head(response))
            async for chunk in chunks:
                await self._write(h11.Data(data=chunk))
            await self._write(h11.EndOfMessage())
        except anyio.BrokenResourceError:
            raise
        except Exception:
            logger.exception("the answer to %s %s broke off", request.method, request.path)
            raise HangUp from None
        finally:
            if isasyncgen(chunks):
                await chunks.aclose()

    async def _write(self, *events: h11.Event) -> None:
        await self.stream.send(b"".join([self._parser.send(event) or b"" for event in events]))

    async def _refuse(self, status: int) -> None:
        if self._parser.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = msgspec.json.encode({"detail": _reason(status)})
            await self._send_whole(Response(status, headers=(*JSON, ("connection", "close"))), body)
            await self._linger()

    async def _linger(self) -> None:
        """Let the client read the last answer: closing on unread data would destroy it."""
        self._discarding = True
        if self._gone:
            return
        with anyio.move_on_after(LINGER):
            await self.stream.send_eof()
            while not self._gone:
                await self._more()


def _request(head: h11.Request, body: bytes, *, certified: bool) -> Request:
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, _, query = head.target.decode("latin-1").partition("?")
    fields = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
    return Request(
        head.method.decode("ascii"), unquote(path), fields, headers, body, certified=certified
    )


def _head(response: Response, *more: tuple[str, str]) -> h11.Response:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.headers]
    headers += [(name.encode("ascii"), value.encode("ascii")) for name, value in more]
    reason = _reason(response.status).encode("ascii")
    return h11.Response(status_code=response.status, headers=headers, reason=reason)


@cache
def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
