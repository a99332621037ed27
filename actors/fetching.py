"""Fetching small texts from endpoints over HTTP, one keep-alive connection each."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, final

import anyio
import h11
import httpx
from anyio.abc import ByteStream
from attrs import define, field, frozen

from pointsman.plugins.sources import MetricsSourceParameters

from .memory import forget_origin

TEXT_LIMIT: Final = 8 * 1024 * 1024  # bytes; a real vLLM prints 50 KB
REASON: Final = 200  # characters of what is said about a failure
PORTS: Final = {"http": 80, "https": 443}

Fetch = Callable[[str], Awaitable[bytes]]
"""From a URL to its text. Raises `FetchError`."""


class FetchError(Exception):
    """An endpoint did not give its text; says why, without the text."""


class Fetching(Protocol):
    """Makes the fetch function of one endpoint, to be used while the context is open."""

    @asynccontextmanager
    def open(self, source: MetricsSourceParameters) -> AsyncGenerator[Fetch, None]: ...


@final
@frozen
class Target:
    """What a URL says."""

    url: str
    host: str
    port: int
    request: h11.Request

    @classmethod
    def of(cls, url: str) -> Target:
        """Raises ValueError for a URL that says nothing that could be fetched."""
        try:
            read = httpx.URL(url)
            headers = [(b"host", read.netloc), (b"accept-encoding", b"identity")]
            request = h11.Request(method="GET", target=read.raw_path, headers=headers)
        except (httpx.InvalidURL, h11.LocalProtocolError) as exc:
            raise ValueError(str(exc)) from exc
        if read.scheme not in PORTS or not read.host:
            raise ValueError(f"{url!r} is no address of an HTTP server")
        return cls(url, read.host, read.port or PORTS[read.scheme], request)


@final
@define(eq=False)
class Line:
    """One keep-alive connection to the server that was asked last."""

    context: ssl.SSLContext | None
    """How to talk TLS; None for plain text."""
    _target: Target | None = field(default=None, init=False)
    _stream: ByteStream | None = field(default=None, init=False)
    """The connection, while it can be used for another fetch."""
    _http: h11.Connection = field(init=False)
    _heard: bool = field(default=False, init=False)
    """Whether anything has come of the answer that is awaited."""

    async def fetch(self, url: str) -> bytes:
        """Raises FetchError."""
        try:
            if self._target is None or url != self._target.url:
                await self.close()
                self._target = Target.of(url)
            status, text = await self._ask(self._target)
        except h11.RemoteProtocolError as exc:
            raise _failure("no proper answer", exc) from exc
        except (OSError, anyio.BrokenResourceError) as exc:
            raise _failure("the connection fails", exc) from exc
        except ValueError as exc:
            raise _failure("not to be fetched", exc) from exc
        if status != 200:
            raise FetchError(f"HTTP status {status}")
        return text

    async def close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await anyio.aclose_forcefully(stream)

    async def _ask(self, target: Target) -> tuple[int, bytes]:
        """The status and the text. A server may have closed a connection that nobody used."""
        if self._stream is not None:
            try:
                return await self._exchange(self._stream, target.request)
            except (OSError, anyio.BrokenResourceError, h11.RemoteProtocolError) as exc:
                if self._heard:
                    raise
                forget_origin(exc)
        return await self._exchange(await self._connect(target), target.request)

    async def _connect(self, target: Target) -> ByteStream:
        self._http = h11.Connection(h11.CLIENT)
        if self.context is None:
            return await anyio.connect_tcp(target.host, target.port)
        return await anyio.connect_tcp(
            target.host,
            target.port,
            tls=True,
            ssl_context=self.context,
            tls_standard_compatible=False,
        )

    async def _exchange(self, stream: ByteStream, request: h11.Request) -> tuple[int, bytes]:
        """One request and its answer; the connection is kept only if it can have another."""
        self._stream, self._heard = None, False
        http = self._http
        try:
            await stream.send(http.send(request) + http.send(h11.EndOfMessage()))
            answer = await self._answer(stream)
            if http.their_state is h11.DONE:
                http.start_next_cycle()
                self._stream = stream
        finally:
            if self._stream is None:
                await anyio.aclose_forcefully(stream)
        return answer

    async def _answer(self, stream: ByteStream) -> tuple[int, bytes]:
        status, size = 0, 0
        pieces: list[bytes] = []
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._more(stream))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                pieces.append(event.data)
                size += len(event.data)
                if size > TEXT_LIMIT:
                    raise FetchError(f"more than {TEXT_LIMIT} bytes")
        return status, b"".join(pieces)

    async def _more(self, stream: ByteStream) -> bytes:
        try:
            data = await stream.receive()
        except anyio.EndOfStream:
            return b""
        self._heard = True
        return data


@final
@define(eq=False)
class HttpFetching:
    """h11 parses, anyio moves the bytes; one connection per endpoint.

    A scrape has no cookies, redirects or proxies, and it is most of what an idle daemon does and
    what may hold up a pick: 50 KB take httpx 0.7 ms, httpcore 0.4 and this 0.2.
    """

    _contexts: dict[MetricsSourceParameters, ssl.SSLContext] = field(
        factory=dict[MetricsSourceParameters, ssl.SSLContext], init=False
    )

    @asynccontextmanager
    async def open(self, source: MetricsSourceParameters) -> AsyncGenerator[Fetch, None]:
        try:
            line = Line(self._context(source))
        except OSError as exc:
            yield _never(f"the TLS files of the source cannot be used: {exc}")
            return
        try:
            yield line.fetch
        finally:
            await line.close()

    def _context(self, source: MetricsSourceParameters) -> ssl.SSLContext | None:
        """One TLS context per source, so that one's leniency is never another's."""
        if source.scheme == "http":
            return None
        context = self._contexts.get(source)
        if context is None:
            context = self._contexts[source] = tls_context(source)
        return context


def tls_context(source: MetricsSourceParameters) -> ssl.SSLContext:
    """How to talk TLS to a source's endpoints. Raises OSError for files that cannot be read."""
    context = ssl.create_default_context(cafile=source.ca_cert_path or None)
    if source.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if source.client_cert_path:
        context.load_cert_chain(source.client_cert_path, source.client_key_path)
    return context


def _failure(what: str, exc: Exception) -> FetchError:
    """Says why, and lets go of the connection that *exc* came through: h11's hold on to it."""
    reason = exc.__cause__ or exc  # anyio's own texts say less
    failure = FetchError(f"{what}: {reason}"[:REASON])
    forget_origin(exc)
    return failure


def _never(reason: str) -> Fetch:
    """A fetch that fails for *reason*: a bad source costs its own data, not the daemon."""

    async def fail(url: str) -> bytes:
        raise FetchError(reason)

    return fail
