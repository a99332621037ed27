"""A cluster on loopback: API server, node and pods in this process, Envoy and daemon beside it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, final

import anyio
import httpx
from anyio.abc import SocketAttribute
from attrs import frozen

from .demo import command, flags, say
from .sim.envoy import envoy
from .sim.envoy_bootstrap import EnvoySettings, HostPort, Mode
from .sim.kube.certificates import Authority
from .sim.kube.command import load
from .sim.kube.identity import ADMIN, Authenticator, service_account
from .sim.kube.kubeconfig import Access, write_kubeconfig
from .sim.kube.objects import Object
from .sim.kube.samples import pool
from .sim.kube.server import ApiServer
from .sim.kube.tls import serve_tls
from .sim.node import Node, NodeSettings
from .sim.processes import Process, ProcessError, answers, child, free_ports

LOOPBACK: Final = "127.0.0.1"
ADDRESSES: Final = tuple(f"127.0.2.{number}" for number in range(1, 17))
"""Of the pods. Envoy has to be told all of them beforehand."""
POOL: Final = "llama"
APP: Final = {"app": POOL}
PATIENCE: Final = 30.0  # seconds for one answer
GRACE: Final = 20  # seconds for a deleted pod to finish
MANIFESTS: Final = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes"
CONFIG: Final = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: max-score-picker
  parameters: {maxNumOfEndpoints: 3}  # Envoy goes to the others when the first takes no connection
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: max-score-picker}
"""


@frozen(kw_only=True)
class Settings:
    """What may be chosen about a cluster."""

    port: int = 0
    """Of Envoy; any free one when 0."""
    mode: Mode = Mode.LEAN_BUFFERED
    first: Sequence[Object] = ()
    """The pods that there are at the beginning."""


@final
@frozen
class Cluster:
    """A running cluster."""

    api: ApiServer
    node: Node
    daemon: Process
    gateway: httpx.AsyncClient
    """For requests."""
    admin: httpx.AsyncClient
    """For questions about the daemon."""
    kubeconfig: Path
    """For kubectl, with all rights."""

    async def known(self) -> frozenset[str]:
        """The addresses that the daemon chooses from now."""
        response = await self.admin.get("/debug/endpoints")
        rows: Sequence[Mapping[str, Any]] = response.raise_for_status().json()
        return frozenset(str(row["address"]) for row in rows)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until *condition* holds, which is asked whenever an object changes."""
        while not condition():
            await self.api.pulse.newer(self.api.pulse.version)

    def address(self, name: str) -> str:
        """Where a pod serves; empty while it does not."""
        pods = {pod["metadata"]["name"]: pod for pod in self.api.objects("pods")}
        ip: str = pods.get(name, {}).get("status", {}).get("podIP", "")
        return f"{ip}:{self.node.settings.port}" if ip else ""


def pod(name: str, **labels: str) -> Object:
    """A pod that is to run a model server."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {**APP, **labels}},
        "spec": {
            "terminationGracePeriodSeconds": GRACE,
            "containers": [{"name": "server", "image": "model-server"}],
        },
        "status": {"phase": "Pending"},
    }


def world(port: int, tokens: Authenticator, first: Sequence[Object]) -> ApiServer:
    """An API server with our definitions and rights, a pool and its *first* pods."""
    if not MANIFESTS.is_dir():
        raise ProcessError(f"{MANIFESTS} is not there: run the demonstration from a clone")
    api = ApiServer("RBAC", tokens)
    load(api, [*sorted((MANIFESTS / "crds").glob("*.yaml")), MANIFESTS / "rbac.yaml"])
    api.create(pool(POOL, selector=APP, ports=[port]))
    for each in first:
        api.create(each)
    return api


@asynccontextmanager
async def cluster(settings: Settings, folder: Path) -> AsyncGenerator[Cluster]:
    """Run a cluster whose files are in *folder* for as long as the block runs."""
    (port,) = free_ports(1, ADDRESSES[0])
    token, authority = secrets.token_urlsafe(), Authority.new()
    tokens = {token: service_account("default", "pointsman")}
    api = world(port, Authenticator(tokens, anonymous=False), settings.first)
    node = Node(api, NodeSettings(addresses=ADDRESSES, port=port))
    listener = await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=0)
    url = f"https://{LOOPBACK}:{listener.extra(SocketAttribute.local_port)}"
    ours, theirs = folder / "kubeconfig", folder / "pointsman.kubeconfig"
    admin = authority.client(ADMIN)
    write_kubeconfig(ours, Access(url=url, authority=authority.pem, client=admin))
    write_kubeconfig(theirs, Access(url=url, authority=authority.pem, token=token))
    async with anyio.create_task_group() as tasks:
        say(f"starting a Kubernetes API server and a node that runs {len(settings.first)} pods")
        tasks.start_soon(serve_tls, listener, authority.server_context(LOOPBACK), api.handle)
        tasks.start_soon(api.run)
        tasks.start_soon(node.run)
        async with (
            _gateway(settings, folder, theirs, port) as (process, at, metrics),
            client_of(at.url) as requests,
            client_of(f"http://{metrics}") as admin_pages,
        ):
            yield Cluster(api, node, process, requests, admin_pages, ours)
        tasks.cancel_scope.cancel()


def client_of(url: str) -> httpx.AsyncClient:
    """A client that opens as many connections as it needs."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=32)
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE, limits=limits)


@asynccontextmanager
async def _gateway(
    settings: Settings, folder: Path, kubeconfig: Path, port: int
) -> AsyncGenerator[tuple[Process, EnvoySettings, HostPort]]:
    """The daemon and Envoy, each ready before the next is started."""
    grpc, health, metrics, listen, admin = free_ports(5)
    at = EnvoySettings(
        listen=HostPort(LOOPBACK, settings.port or listen),
        admin=HostPort(LOOPBACK, admin),
        picker=HostPort(LOOPBACK, grpc),
        picker_tls=True,
        mode=settings.mode,
        fallback=tuple(HostPort(address, port) for address in ADDRESSES),
    )
    ports = flags(grpc_port=grpc, grpc_health_port=health, metrics_port=metrics)
    source = (f"--pool-name={POOL}", "--pool-namespace=default", f"--kubeconfig={kubeconfig}")
    serving = command("serve", *source, f"--config-text={CONFIG}", *ports)
    say(f"starting the daemon: pointsman serve {source[0]} --kubeconfig=...")
    ready = answers(f"http://{LOOPBACK}:{metrics}/readyz")
    log = folder / "pointsman.log"
    async with child("pointsman", serving, ready=ready, ready_within=30, log_to=log) as process:
        say("starting Envoy")
        async with envoy(at):
            yield process, at, HostPort(LOOPBACK, metrics)
