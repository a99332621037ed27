"""A simulated cluster without sockets, and what follows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import httpx
import trio
from attrs import define, evolve, field

from pointsman.actors.http import HangUp, Request, Response
from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.discovery import KubernetesDiscovery, PoolSettings, Settings
from pointsman.actors.sim.kube import samples
from pointsman.actors.sim.kube.faults import Fault
from pointsman.actors.sim.kube.manifests import load_manifests
from pointsman.actors.sim.kube.rbac import Mode
from pointsman.actors.sim.kube.server import ApiServer
from pointsman.kernel.datastore import Change, Datastore
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.topic import Topics

CRDS: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "crds"
POOLS: Final = "inferencepools"
OBJECTIVES: Final = "inferenceobjectives"
REWRITES: Final = "inferencemodelrewrites"
EVERY_KIND: Final = (
    POOLS,
    OBJECTIVES,
    REWRITES,
    f"x-k8s-{OBJECTIVES}",
    f"x-k8s-{REWRITES}",
)
X: Final = {"app": "x"}
Y: Final = {"app": "y"}


@define(eq=False)
class _Body(httpx.AsyncByteStream):
    """A response's body, and the reader's patience with it."""

    response: Response
    patience: float

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = self.response.body
        if isinstance(body, bytes):
            yield body
            return
        while True:
            try:
                with anyio.fail_after(self.patience):
                    chunk = await anext(body, None)
            except TimeoutError:
                raise httpx.ReadTimeout("") from None
            except anyio.BrokenResourceError:
                raise httpx.ReadError("the connection broke") from None
            if chunk is None:
                return
            yield chunk

    async def aclose(self) -> None:
        if self.response.on_done is not None:
            self.response.on_done()


@define(eq=False)
class Wire(httpx.AsyncBaseTransport):
    """Hands requests to the server as if over a network, with the time-outs that httpx keeps."""

    server: ApiServer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        patience = request.extensions["timeout"]["read"]
        asked = Request(
            request.method, request.url.path, dict(request.url.params), dict(request.headers)
        )
        try:
            with anyio.fail_after(patience):
                response = await self.server.handle(asked)
        except TimeoutError:
            raise httpx.ReadTimeout("") from None
        except HangUp:
            raise httpx.RemoteProtocolError("Server disconnected") from None
        body = _Body(response, patience)
        return httpx.Response(response.status, headers=list(response.headers), stream=body)


@define(eq=False)
class Cluster:
    """An API server, and a daemon's datastore that follows it."""

    nursery: trio.Nursery
    settings: Settings = PoolSettings(namespace="default", name="p")
    access: Access = Access("http://api")
    mode: Mode = "AlwaysAllow"
    server: ApiServer = field(init=False)
    store: Datastore = field(init=False)
    discovery: KubernetesDiscovery = field(init=False)
    _tasks: list[trio.CancelScope] = field(factory=list[trio.CancelScope], init=False)

    def __attrs_post_init__(self) -> None:
        self.server = ApiServer(self.mode, now=trio.current_time)
        self.store = Datastore(Mailbox[Change].open("datastore", capacity=1024), Topics())
        self.discovery = KubernetesDiscovery(
            Login(self.read),
            self.settings,
            self.store.inbox.address,
            Random(1),
            lambda access: Wire(self.server),
        )

    async def read(self) -> Access:
        return evolve(self.access)

    async def settled(self, seconds: float = 5.0) -> dict[str, str]:
        """The addresses after a time in which everything on its way has arrived."""
        await trio.sleep(seconds)
        return self.addresses

    def install(self, *kinds: str) -> None:
        """Define kinds, by the names of their manifests."""
        for kind in kinds:
            self.server.create(_definition(kind))

    def follow(self, *, discovery: bool = True) -> None:
        """Start the datastore, and what feeds it."""
        for run in (self.server.run, self.store.run):
            self.nursery.start_soon(self._run, run)
        if discovery:
            self.nursery.start_soon(self._run, self.discovery.run)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        with trio.CancelScope() as scope:
            self._tasks.append(scope)
            await run()

    def stop(self) -> None:
        for scope in self._tasks:
            scope.cancel()

    def change_pool(self, selector: Mapping[str, str], ports: Sequence[int] = (8000,)) -> None:
        changed = samples.pool("p", selector=selector, ports=ports)
        self.server.patch(POOLS, "p", {"spec": changed["spec"]})

    def fail(self, action: str, **details: Any) -> None:
        self.server.faults.add(Fault(action=action, **details))  # type: ignore[arg-type]

    @property
    def addresses(self) -> dict[str, str]:
        """What the snapshot would send requests to, by endpoint."""
        return {one.name: one.host_port for one in self.store.snapshot.endpoints}

    @property
    def wanted(self) -> dict[str, str]:
        """The addresses as they follow from the server's objects, worked out here once more."""
        found = [one for one in self.server.objects(POOLS) if one["metadata"]["name"] == "p"]
        if not found or "deletionTimestamp" in found[0]["metadata"]:
            return {}
        spec = found[0]["spec"]
        ports = [port["number"] for port in spec["targetPorts"]]
        return {
            f"{one['metadata']['name']}-rank-{rank}": f"{one['status']['podIP']}:{port}"
            for one in self.server.objects("pods")
            if _serves(one, spec["selector"]["matchLabels"])
            for rank, port in enumerate(ports)
        }

    def asked(self, verb: str, resource: str) -> int:
        """How many requests of a kind came in."""
        return sum((r.verb, r.resource) == (verb, resource) for r in self.server.requests)


@cache
def _definition(kind: str) -> dict[str, Any]:
    (manifest,) = load_manifests([CRDS / f"{kind}.yaml"])
    return manifest.object


def _serves(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    metadata, status = one["metadata"], one["status"]
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    return (
        labels.items() <= metadata["labels"].items()
        and "deletionTimestamp" not in metadata
        and status["phase"] == "Running"
        and conditions["Ready"] == "True"
    )


def serving(
    nursery: trio.Nursery,
    *pods: str,
    kinds: Iterable[str] = EVERY_KIND,
    pool: bool = True,
    **settings: Any,
) -> Cluster:
    """A cluster with pool ``p`` of the pods with the label app=x, and such pods."""
    cluster = Cluster(nursery, **settings)
    cluster.install(*kinds)
    if pool:
        cluster.server.create(samples.pool("p", selector=X))
    for number, name in enumerate(pods, 1):
        cluster.server.create(samples.pod(name, ip=f"10.0.0.{number}", labels=X))
    return cluster
