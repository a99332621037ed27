"""The API server: HTTP requests in, the store behind them, and faults between.

`ApiServer.handle` answers without a socket; `pointsman.actors.http.serve` gives it one. What time
does to objects, such as the end of a pod that is being deleted, is the business of `ApiServer.run`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Final, final

import anyio
from attrs import define, field

from pointsman.actors.http import (
    HangUp,
    Headers,
    Request,
    Response,
    json_response,
    text_response,
)
from pointsman.kernel.channel import Latest

from .admission import Write
from .calls import Call
from .controls import Controls, Record
from .discovery import Discovery
from .failures import ApiError, NoSuchKind, NoSuchPath
from .faults import Fault, Faults
from .identity import Authenticator, User
from .kinds import NAMESPACES, Kind
from .kubelet import Kubelet
from .objects import Object, at, key_of, with_metadata
from .patches import merge_patch
from .rbac import Authorizer, Mode, first_roles
from .resources import Resources
from .reviews import Reviewer
from .store import NORMAL, Deletion, Store
from .watching import Watch

REMEMBERED: Final = 10_000  # requests
WORLD: Final = Write(whole=True)
"""How the simulation itself writes: status, uid and age are what it says they are."""


@final
@define(eq=False)
class ApiServer:
    """One cluster's API."""

    mode: Mode = "AlwaysAllow"
    authenticator: Authenticator = field(factory=Authenticator)
    random: Random = field(factory=lambda: Random(0))
    now: Callable[[], float] = time.time
    """Unix time."""
    faults: Faults = field(init=False)
    store: Store = field(init=False)
    requests: deque[Record] = field(factory=lambda: deque[Record](maxlen=REMEMBERED), init=False)
    pulse: Latest[int] = field(factory=lambda: Latest(0), init=False)
    """Changes with the objects and with the faults."""
    _authorizer: Authorizer = field(init=False)
    _resources: Resources = field(init=False)
    _discovery: Discovery = field(init=False)
    _controls: Controls = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.faults = Faults(self._beat)
        self.store = Store(self.now, self.random, on_change=self._beat)
        self._authorizer = Authorizer(self.store, self.mode)
        reviewer = Reviewer(self.authenticator, self._authorizer)
        self._resources = Resources(self.store, reviewer, self.faults, self.pulse, self.random)
        self._discovery = Discovery(self.store.kinds)
        self._controls = Controls(self.store, self.faults, self.requests)
        for obj in first_roles():
            self.create(obj)

    def _beat(self) -> None:
        self.pulse.set(self.pulse.value + 1)

    @property
    def watches(self) -> frozenset[Watch]:
        """Those that are open."""
        return frozenset(self._resources.watches)

    async def run(self) -> None:
        """Let time pass for the objects, until cancelled."""
        await Kubelet(self.store, self.pulse).run()

    async def handle(self, request: Request, peer: User | None = None) -> Response:
        """Answer *request*, whose connection was made by *peer* if a certificate says so.

        Raises HangUp when a fault drops the connection.
        """
        if request.path.startswith("/sim/"):
            return self._controls.answer(request)
        call = Call.of(request)
        record = self._record(call)
        try:
            response = await self._answer(call, peer, record)
        except ApiError as error:
            response = json_response(error.status, error.code)
        except NoSuchPath:
            response = text_response("404 page not found\n", 404)
        record.status = response.status
        return response

    def _record(self, call: Call) -> Record:
        record = Record(
            time=self.now(),
            verb=call.verb,
            resource=call.resource,
            subresource=call.subresource,
            namespace=call.namespace,
            name=call.name,
            path=call.request.path,
            query=dict(call.request.query),
            agent=call.request.headers.get("user-agent", ""),
        )
        self.requests.append(record)
        return record

    async def _answer(self, call: Call, peer: User | None, record: Record) -> Response:
        truncated = False
        for fault in self.faults.of_request(call):
            struck = await _strike(fault)
            if struck is not None:
                return struck
            truncated = fault.action == "truncate"
        user = self.authenticator.user_of(call.request.headers, peer)
        record.user = user.name
        self._authorizer.check(call.attempt(user))
        if not call.resource:
            response = self._discovery.answer(call.request)
        else:
            response = self._resources.answer(call, user)
        return _truncated(response) if truncated else response

    def create(self, obj: Object) -> Object:
        """Put *obj* into the world as it is, in its namespace, which is made if need be."""
        kind = self._kind_of(obj)
        if kind.namespaced:
            obj = _placed(obj)
            namespace = key_of(obj)[0]
            if ("", namespace) not in self.store.objects(NAMESPACES):
                self.store.create(NAMESPACES, {"metadata": {"name": namespace}})
        return self.store.create(kind, obj, WORLD)

    def update(self, obj: Object) -> Object:
        """Replace an object by *obj*, status and all."""
        kind = self._kind_of(obj)
        return self.store.update(kind, _placed(obj) if kind.namespaced else obj, WORLD)

    def patch(self, plural: str, name: str, patch: Object, *, namespace: str = "default") -> Object:
        """Merge *patch* into an object, status and all."""
        kind, key = self._find(plural, name, namespace)
        return self.store.patch(kind, key, merge_patch(patch), WORLD)

    def delete(
        self, plural: str, name: str, how: Deletion = NORMAL, *, namespace: str = "default"
    ) -> Object:
        """Delete an object, or begin to."""
        kind, key = self._find(plural, name, namespace)
        return self.store.delete(kind, key, how)

    def get(self, plural: str, name: str, *, namespace: str = "default") -> Object:
        kind, key = self._find(plural, name, namespace)
        return self.store.get(kind, key)

    def objects(self, plural: str) -> list[Object]:
        """All objects of a kind."""
        return self.store.collect(self._kind(plural)).items

    def compact(self) -> None:
        """Make every earlier resource version too old."""
        self.store.compact()

    def _kind(self, plural: str) -> Kind:
        kind = self.store.kinds.named(plural)
        if kind is None:
            raise NoSuchKind(plural)
        return kind

    def _find(self, plural: str, name: str, namespace: str) -> tuple[Kind, tuple[str, str]]:
        kind = self._kind(plural)
        return kind, (namespace if kind.namespaced else "", name)

    def _kind_of(self, obj: Object) -> Kind:
        kind = self.store.kinds.of_object(obj.get("apiVersion", ""), obj.get("kind", ""))
        if kind is None:
            raise NoSuchKind(f"{obj.get('apiVersion')} {obj.get('kind')}")
        return kind


def _placed(obj: Object) -> Object:
    return with_metadata(obj, namespace=at(obj, "metadata", "namespace") or "default")


async def _strike(fault: Fault) -> Response | None:
    """What a fault makes of a request; None when the request goes on."""
    match fault.action:
        case "drop":
            raise HangUp
        case "delay":
            await anyio.sleep(fault.seconds)
        case "hang":
            await anyio.sleep_forever()
        case "status":
            return _refusal(fault)
        case _:
            pass
    return None


def _refusal(fault: Fault) -> Response:
    if fault.plain:
        return text_response(fault.message, fault.status)
    headers: Headers = ()
    details: Object = {}
    if fault.seconds:
        headers = (("retry-after", f"{fault.seconds:g}"),)
        details = {"retryAfterSeconds": int(fault.seconds)}
    error = ApiError(fault.status, fault.message, details=details)
    return json_response(error.status, fault.status, headers)


def _truncated(response: Response) -> Response:
    """*response* that breaks off in the middle."""
    whole = response.body
    assert isinstance(whole, bytes)

    async def half() -> AsyncIterator[bytes]:
        yield whole[: len(whole) // 2]
        raise anyio.BrokenResourceError

    return Response(response.status, half(), response.headers)
