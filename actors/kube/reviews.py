"""Asks the API server who somebody is, and what he may do: TokenReview, SubjectAccessReview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar, final

import anyio
import httpx
import msgspec
from attrs import define, field, frozen
from msgspec import Struct

from .access import Access, Login
from .client import OpenTransport, http_transport
from .errors import Unauthorized, Unavailable, error_for

TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
RIGHTS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PATIENCE: Final = 5.0  # seconds for an answer
REASON_LIMIT: Final = 300  # characters of a server's explanation

S = TypeVar("S", bound=Struct)


class User(Struct, frozen=True):
    """Somebody, as the API server knows him; what it tells goes into the question of rights."""

    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(Struct, frozen=True):
    authenticated: bool = False
    user: User = User()


class _Token(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _RightsStatus(Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Rights(Struct, frozen=True):
    status: _RightsStatus = _RightsStatus()


@final
@define(eq=False)
class Reviews:
    """One connection to the API server, for these questions; `aclose` ends it."""

    login: Login
    open_transport: OpenTransport = http_transport
    _access: Access | None = field(default=None, init=False, repr=False)
    _transport: httpx.AsyncBaseTransport | None = field(default=None, init=False, repr=False)

    async def who(self, token: str) -> User | None:
        """Whose token it is; None when it is nobody's.

        Raises:
            KubeError: it could not be found out.
        """
        question = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1"}
        status = (await self._ask(TOKENS, question, {"token": token}, _Token)).status
        return status.user if status.authenticated else None

    async def may_get(self, user: User, path: str) -> bool:
        """Whether *user* has the right to get a path that is no resource.

        Raises:
            KubeError: it could not be found out.
        """
        question = {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups or [],
            "extra": user.extra or {},
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        status = (await self._ask(RIGHTS, question, spec, _Rights)).status
        return status.allowed and not status.denied

    async def _ask(
        self, path: str, kind: Mapping[str, str], spec: Mapping[str, Any], answer: type[S]
    ) -> S:
        body = msgspec.json.encode({**kind, "spec": spec})
        access = await self.login.access()
        try:
            return await self._post(access, path, body, answer)
        except Unauthorized:
            await self.login.refused(access)
            return await self._post(await self.login.access(), path, body, answer)

    async def _post(self, access: Access, path: str, body: bytes, answer: type[S]) -> S:
        kind = path.rpartition("/")[2]
        try:
            with anyio.fail_after(PATIENCE):
                response = await self._send(access, path, body)
        except TimeoutError:
            await self.aclose()
            raise Unavailable("create", kind, f"no answer within {PATIENCE:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
            raise Unavailable("create", kind, f"{type(exc).__name__}: {exc}") from exc
        if response.status not in (200, 201):
            reason = f"HTTP status {response.status}: {_message(response.body)}"
            raise error_for(response.status)("create", kind, reason[:REASON_LIMIT])
        try:
            return msgspec.json.decode(response.body, type=answer)
        except msgspec.DecodeError as exc:
            raise Unavailable("create", kind, f"garbage: {exc}") from exc

    async def _send(self, access: Access, path: str, body: bytes) -> _Answer:
        transport = await self._transport_for(access)
        headers = {
            "accept": "application/json",
            "content-type": "application/json",
            "user-agent": "pointsman",
            **access.headers,
        }
        extensions: dict[str, Any] = {"timeout": httpx.Timeout(PATIENCE).as_dict()}
        if access.server_name:
            extensions["sni_hostname"] = access.server_name
        request = httpx.Request(
            "POST", access.host + path, headers=headers, content=body, extensions=extensions
        )
        response = await transport.handle_async_request(request)
        try:
            return _Answer(response.status_code, await response.aread())
        finally:
            await response.aclose()

    async def _transport_for(self, access: Access) -> httpx.AsyncBaseTransport:
        if self._access is None or not access.shares_connections_with(self._access):
            await self.aclose()
        if self._transport is None:
            self._access, self._transport = access, self.open_transport(access)
        return self._transport

    async def aclose(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            with anyio.CancelScope(shield=True):  # closes sockets, waits for nobody
                await transport.aclose()


@final
@frozen
class _Answer:
    status: int
    body: bytes


class _Status(Struct, frozen=True):
    message: str = ""


def _message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Status).message
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace").strip()
