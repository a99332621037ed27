"""A simulated cluster around the model servers of one test, and pickers that follow its pools."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from attrs import define, evolve

from pointsman.actors.http import serve
from pointsman.actors.sim.envoy_bootstrap import HostPort, Json, JsonObject
from pointsman.actors.sim.kube import samples
from pointsman.actors.sim.kube.command import load
from pointsman.actors.sim.kube.identity import Authenticator, service_account
from pointsman.actors.sim.kube.kubeconfig import Access, write_kubeconfig
from pointsman.actors.sim.kube.objects import Object
from pointsman.actors.sim.kube.rbac import Mode
from pointsman.actors.sim.kube.server import ApiServer
from pointsman.actors.sim.processes import free_ports

from .gateway import BY_LOAD, LOOPBACK, PICKERS, Layout, layout
from .model_servers import ModelServer

DEPLOY: Final = Path(__file__).parents[2] / "deploy" / "kubernetes"
DEFINITIONS: Final = sorted((DEPLOY / "crds").glob("*.yaml"))
RBAC: Final = DEPLOY / "rbac.yaml"
NETWORK: Final = "127.0.5"
"""Where the pods are: the first three bytes of their addresses."""
TOKEN: Final = "the-picker"
SELECTION: Final = "test-epp-endpoint-selection"
BY_HEADER: Final[JsonObject] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [{"type": "header-based-testing-filter"}, {"type": "random-picker"}],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "header-based-testing-filter"},
                {"pluginRef": "random-picker"},
            ],
        }
    ],
}
"""The picker of the conformance tests: the request says which endpoints it may go to."""
SERVED: Final = "x-conformance-test-served-endpoint"
SERVED_BY_HEADER: Final[JsonObject] = {
    **BY_HEADER,
    "plugins": [
        {"type": "header-based-testing-filter"},
        {"type": "random-picker"},
        {"type": "destination-endpoint-served-verifier"},
    ],
}
"""The same, and the response says in a header who served."""
SEVERAL_BY_HEADER: Final[JsonObject] = {
    **BY_HEADER,
    "plugins": [
        {"type": "header-based-testing-filter"},
        {"type": "random-picker", "parameters": {"maxNumOfEndpoints": 3}},
    ],
}
"""As the first, and all of them are named, in any order."""


@define(eq=False)
class Pool:
    """An InferencePool, and the model servers of its pods: one for each pod and port."""

    name: str
    servers: Sequence[ModelServer]
    ports: Sequence[int]

    @property
    def hosts(self) -> list[str]:
        """The addresses of its pods."""
        return list(dict.fromkeys(server.address.host for server in self.servers))

    def pod_name(self, host: str) -> str:
        return f"{self.name}-{self.hosts.index(host) + 1}"

    def pods(self) -> list[Object]:
        """Its pods, whose identity survives a restart of the API server."""
        return [
            samples.pod(
                self.pod_name(host),
                ip=host,
                labels={"app": self.name},
                port=self.ports[0],
                uid=f"uid-of-{self.pod_name(host)}",
            )
            for host in self.hosts
        ]

    def objects(self, spec: Mapping[str, object] = {}) -> list[Object]:
        """All that the API server has to hold; *spec* is put into the pool's."""
        pool = samples.pool(self.name, selector={"app": self.name}, ports=self.ports)
        return [{**pool, "spec": {**pool["spec"], **spec}}, *self.pods()]

    def layout(self, folder: Path, access: Access, config: Json = BY_LOAD) -> Layout:
        """A picker of ours that follows this pool, and Envoy in front of it."""
        folder.mkdir(exist_ok=True)
        kubeconfig = folder / "kubeconfig"
        write_kubeconfig(kubeconfig, access)
        flags = (f"--pool-name={self.name}", f"--kubeconfig={kubeconfig}")
        where = layout(PICKERS["pointsman"], self.servers, folder)
        return evolve(where, flags=flags, config=config)


def pool_of(name: str, network: str, waiting: Iterable[int] = (5, 1, 9), *, ports: int = 1) -> Pool:
    """A pool with a pod for each queue length, at addresses in *network* (its first three bytes).

    All have the same ports. The servers are not running yet.
    """
    hosts = [(f"{network}.{number}", queue) for number, queue in enumerate(waiting, start=1)]
    numbers = sorted(free_ports(ports, hosts[0][0]))
    servers = [
        ModelServer(f"{host}:{port}", HostPort(host, port), queue)
        for host, queue in hosts
        for port in numbers
    ]
    return Pool(name, servers, numbers)


def cluster(objects: Iterable[Object], mode: Mode = "AlwaysAllow") -> ApiServer:
    """A cluster that has our definitions; with *mode* RBAC the picker has no rights yet."""
    tokens = {TOKEN: service_account("default", "pointsman")}
    api = ApiServer(mode, Authenticator(tokens))
    load(api, DEFINITIONS)
    for obj in objects:
        api.create(obj)
    return api


def somewhere() -> Access:
    """A way to an API server that does not run yet."""
    return Access(url=f"http://{HostPort(LOOPBACK, *free_ports(1))}", token=TOKEN)


@asynccontextmanager
async def listening(api: ApiServer, access: Access) -> AsyncGenerator[None]:
    """Let *api* be reached by *access* for as long as the block runs."""
    _, _, port = access.url.rpartition(":")
    listener = await anyio.create_tcp_listener(local_host=LOOPBACK, local_port=int(port))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, listener, api.handle)
        tasks.start_soon(api.run)
        yield
        tasks.cancel_scope.cancel()


def write_objects(path: Path, objects: Sequence[Object]) -> None:
    """Write a file that ``pointsman sim kube`` reads; JSON is YAML too."""
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
