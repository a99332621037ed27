"""Lists and watches, over httpx: one transport per follower, which makes one request at a time.

The transport is used without httpx's client around it, which has nothing to add here: no cookies,
no redirects, and proxies come from the kubeconfig only, never from the environment.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from random import Random
from types import TracebackType
from typing import Final, Generic, Self, final

import anyio
import httpx
import msgspec
from attrs import define, field, frozen

from .access import Access, Login
from .errors import AccessError, ApiError, Expired, Unavailable, error_for
from .kinds import O, Page, PageMetadata, RawPage, Selection, Status
from .watching import Broken, Watch, reference_of

PAGE: Final = 500  # objects
WATCH_TIME: Final = (240.0, 360.0)  # seconds; spread, so that replicas do not reconnect together
SILENCE: Final = 15.0  # seconds beyond a watch's time after which the server counts as hung
ANSWER: Final = 30.0  # seconds until a response begins, and without a byte of a list
CONNECT: Final = 10.0  # seconds
REASON_LIMIT: Final = 500  # characters of a server's explanation
LONGEST_WAIT: Final = 120.0  # seconds; more is not believed of a Retry-After

# A peer that is gone is noticed after about a minute, by the kernel.
_KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 30),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 3),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 60_000),
)
SOCKET_OPTIONS: Final = [
    (level, getattr(socket, name), value)
    for level, name, value in _KEEP_ALIVE
    if hasattr(socket, name)
]

_HEADERS: Final = {
    "accept": "application/json",
    "accept-encoding": "identity",  # compression costs both sides more than the bytes do
    "user-agent": "pointsman",
}

OpenTransport = Callable[[Access], httpx.AsyncBaseTransport]


def http_transport(access: Access) -> httpx.AsyncBaseTransport:
    """A transport for *access*. Raises AccessError when its proxy is of no kind we know."""
    try:
        return httpx.AsyncHTTPTransport(
            verify=access.ssl_context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            limits=httpx.Limits(max_connections=2, keepalive_expiry=30.0),
            proxy=access.proxy,
            socket_options=SOCKET_OPTIONS,
        )
    except (ImportError, ValueError, httpx.InvalidURL) as exc:
        raise AccessError(f"proxy-url: {exc}") from exc


@final
@frozen
class Listing(Generic[O]):
    """All objects of a selection, as of one version."""

    version: str
    objects: list[O]
    broken: list[Broken]
    """Those that do not fit their schema."""


@final
@define(eq=False)
class Client:
    """Talks to the API server for one follower. Use it as a context: leaving it disconnects."""

    login: Login
    random: Random
    open_transport: OpenTransport = http_transport
    _access: Access | None = field(default=None, init=False, repr=False)
    _transport: httpx.AsyncBaseTransport | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._disconnect()

    async def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            with anyio.CancelScope(shield=True):  # closes sockets, waits for nobody
                await transport.aclose()

    async def list(self, selection: Selection[O]) -> Listing[O]:
        """All objects of *selection*, fetched page by page.

        Raises:
            KubeError: it did not succeed.
        """
        with suppress(Expired):
            return await self._list(selection, {"limit": str(PAGE)})
        # The rest of a list is kept for minutes only; a list in one piece needs no keeping.
        return await self._list(selection, {})

    async def _list(self, selection: Selection[O], size: dict[str, str]) -> Listing[O]:
        objects: list[O] = []
        broken: list[Broken] = []
        query = selection.parameters() | size
        while True:
            body = await self._fetch(selection, query)
            metadata = _read_page(selection, body, objects, broken)
            if not metadata.token:
                break
            query["continue"] = metadata.token
        if not metadata.resource_version:
            raise Unavailable("list", str(selection), "the list has no resourceVersion")
        return Listing(metadata.resource_version, objects, broken)

    async def _fetch(self, selection: Selection[O], query: Mapping[str, str]) -> bytes:
        response = await self._send("list", selection, query, ANSWER)
        try:
            return await _body(response)
        except (httpx.HTTPError, OSError) as exc:
            raise Unavailable("list", str(selection), _explained(exc)) from exc
        finally:
            await response.aclose()

    @asynccontextmanager
    async def watch(self, selection: Selection[O], version: str) -> AsyncGenerator[Watch[O], None]:
        """Open a watch for what happens to *selection* after *version*.

        Raises:
            KubeError: it was not opened.
        """
        seconds = round(self.random.uniform(*WATCH_TIME))
        query = selection.parameters() | {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        response = await self._send("watch", selection, query, seconds + SILENCE)
        watch = Watch(selection, seconds, response.aiter_raw())
        try:
            yield watch
        finally:
            try:
                await watch.abandon()
            finally:
                await response.aclose()

    async def _send(
        self, verb: str, selection: Selection[O], query: Mapping[str, str], patience: float
    ) -> httpx.Response:
        """The response to a request, if its status is 200; credentials that were refused are
        read again, once."""
        access = await self.login.access()
        response = await self._request(access, verb, selection, query, patience)
        if response.status_code == 401:
            await response.aclose()
            await self.login.refused(access)
            access = await self.login.access()
            response = await self._request(access, verb, selection, query, patience)
        if response.status_code != 200:
            raise await _refusal(verb, selection, response)
        return response

    async def _request(
        self,
        access: Access,
        verb: str,
        selection: Selection[O],
        query: Mapping[str, str],
        patience: float,
    ) -> httpx.Response:
        transport = await self._transport_for(access)
        try:
            with anyio.fail_after(CONNECT + ANSWER):
                request = _get(access, selection, query, patience)
                return await transport.handle_async_request(request)
        except TimeoutError:
            reason = f"no answer within {CONNECT + ANSWER:g} s"
            raise Unavailable(verb, str(selection), reason) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
            raise Unavailable(verb, str(selection), _explained(exc)) from exc

    async def _transport_for(self, access: Access) -> httpx.AsyncBaseTransport:
        if self._transport is not None and self._access is not None:
            if access.shares_connections_with(self._access):
                return self._transport
            await self._disconnect()
        self._access, self._transport = access, self.open_transport(access)
        return self._transport


def _get(
    access: Access, selection: Selection[O], query: Mapping[str, str], patience: float
) -> httpx.Request:
    url = access.host + selection.kind.path(selection.namespace)
    extensions: dict[str, object] = {
        "timeout": httpx.Timeout(CONNECT, read=patience).as_dict(),
    }
    if access.server_name:
        extensions["sni_hostname"] = access.server_name
    headers = {**_HEADERS, **access.headers}
    return httpx.Request(
        "GET", httpx.URL(url, params=query), headers=headers, extensions=extensions
    )


def _explained(exc: BaseException) -> str:
    """What *exc* says, or the cause that it came of."""
    while not str(exc) and (cause := exc.__cause__ or exc.__context__) is not None:
        exc = cause
    return f"{type(exc).__name__}: {exc}"[:REASON_LIMIT]


async def _body(response: httpx.Response) -> bytes:
    return b"".join([chunk async for chunk in response.aiter_raw()])


def _read_page(
    selection: Selection[O], body: bytes, objects: list[O], broken: list[Broken]
) -> PageMetadata:
    """Append a page's objects to *objects*, and those that cannot be read to *broken*."""
    kind = selection.kind
    try:
        page: Page[O] = kind.page.decode(body)
    except msgspec.DecodeError:
        return _read_one_by_one(selection, body, objects, broken)
    if all(obj.metadata.name for obj in page.items or ()):
        objects.extend(page.items or ())
        return page.metadata
    return _read_one_by_one(selection, body, objects, broken)


def _read_one_by_one(
    selection: Selection[O], body: bytes, objects: list[O], broken: list[Broken]
) -> PageMetadata:
    try:
        page = msgspec.json.decode(body, type=RawPage)
    except msgspec.DecodeError as exc:
        raise Unavailable("list", str(selection), f"garbage: {exc}") from exc
    for raw in page.items or ():
        try:
            obj = selection.kind.one.decode(raw)
            if obj.metadata.name:
                objects.append(obj)
                continue
            problem = "it has no name"
        except msgspec.ValidationError as exc:
            problem = str(exc)
        broken.append(Broken("LISTED", reference_of(raw), problem))
    return page.metadata


async def _refusal(verb: str, selection: Selection[O], response: httpx.Response) -> ApiError:
    """What a response with another status than 200 means."""
    try:
        body = await _body(response)
    except (httpx.HTTPError, OSError) as exc:
        body = _explained(exc).encode()
    finally:
        await response.aclose()
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body.decode("utf-8", "replace").strip())
    reason = f"HTTP status {response.status_code}: {status.message or status.reason}"
    return error_for(response.status_code)(
        verb,
        str(selection),
        reason[:REASON_LIMIT],
        retry_after=_retry_after(response, status),
    )


def _retry_after(response: httpx.Response, status: Status) -> float:
    header = response.headers.get("retry-after", "")
    asked = float(header) if header.isascii() and header.isdecimal() else 0.0
    if status.details is not None:
        asked = max(asked, status.details.retry_after_seconds)
    return min(asked, LONGEST_WAIT)
