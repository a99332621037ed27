"""The node of a simulated cluster: it runs a model server for each pod, as a kubelet would.

Pods that are created get an address and become ready; pods that are deleted serve on for a while,
finish, and go. What is to run follows from the pods that there are, and from nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

import anyio
import msgspec
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from .container import Container
from .kube import samples
from .kube.failures import ApiError
from .kube.objects import Object, is_terminating, key_of, uid_of
from .kube.server import ApiServer
from .kube.store import Deletion
from .pods import Pod, PodSettings

START: Final = 0.5  # seconds that a server needs to start
PRE_STOP: Final = 1.0  # seconds that a deleted pod serves on: others have to hear of it first
PROBE: Final = 2.0  # seconds until it is noticed that a server takes no connections
SETTLE: Final = 0.5  # seconds without a request, after which a server that is to end may


@final
@frozen(kw_only=True)
class NodeSettings:
    """Where the pods of a node are and how they behave."""

    addresses: Sequence[str]
    """One for each pod; pods for whom there is none wait."""
    port: int
    servers: PodSettings = PodSettings()
    speed: float = 1.0


@final
@define(eq=False)
class _Running:
    """A pod that has an address."""

    namespace: str
    name: str
    uid: str
    address: str
    leaving: anyio.Event = field(factory=anyio.Event)
    """Set when it was deleted."""
    failing: anyio.Event = field(factory=anyio.Event)
    """Set when its server is to end by itself."""
    scope: anyio.CancelScope = field(factory=anyio.CancelScope)


@final
@define(eq=False)
class Node:
    """Runs the pods of one cluster. A pod that is created anew under its name moves."""

    api: ApiServer
    settings: NodeSettings
    _running: dict[str, _Running] = field(factory=dict[str, _Running], init=False)
    """By uid."""
    _turn: int = field(default=0, init=False)

    async def run(self) -> None:
        """Run what is to run, until cancelled. Raises OSError: an address cannot be had."""
        async with anyio.create_task_group() as tasks:
            while True:
                seen = self.api.pulse.version
                self._look(tasks)
                await self.api.pulse.newer(seen)

    def restart(self, name: str) -> None:
        """Let the server of a pod end by itself and start again.

        It takes no connections from now on, which is noticed a while later.
        """
        for pod in self._running.values():
            if pod.name == name:
                pod.failing.set()

    def _look(self, tasks: TaskGroup) -> None:
        pods = {uid_of(pod): pod for pod in self.api.objects("pods")}
        for uid, mine in self._running.items():
            if uid not in pods:
                mine.scope.cancel()
            elif is_terminating(pods[uid]):
                mine.leaving.set()
        for uid, pod in pods.items():
            if uid not in self._running and not is_terminating(pod):
                self._take(pod, tasks)

    def _take(self, pod: Object, tasks: TaskGroup) -> None:
        address = self._next_address()
        if address is not None:
            namespace, name = key_of(pod)
            mine = self._running[uid_of(pod)] = _Running(namespace, name, uid_of(pod), address)
            tasks.start_soon(self._keep, mine, tasks)

    def _next_address(self) -> str | None:
        """The next one in turn that nobody has."""
        taken = {pod.address for pod in self._running.values()}
        for _ in self.settings.addresses:
            address = self.settings.addresses[self._turn % len(self.settings.addresses)]
            self._turn += 1
            if address not in taken:
                return address
        return None

    async def _keep(self, pod: _Running, tasks: TaskGroup) -> None:
        """Run a pod from its first start to its end."""
        with pod.scope:
            self._patch(pod, {"spec": {"nodeName": "node-1"}})
            while not pod.leaving.is_set():
                await self._serve(pod)
        del self._running[pod.uid]
        with suppress(ApiError):  # somebody was quicker
            gone = Deletion(grace=0, uid=pod.uid)
            self.api.delete("pods", pod.name, gone, namespace=pod.namespace)
        self._look(tasks)  # for who waits for the address

    async def _serve(self, pod: _Running) -> None:
        """Run the server of a pod once."""
        await anyio.sleep(START)
        port = self.settings.port
        listener = await anyio.create_tcp_listener(local_host=pod.address, local_port=port)
        servers = msgspec.structs.replace(self.settings.servers, namespace=pod.namespace)
        server = Pod(pod.name, pod.address, port, servers)
        container = Container(server, listener, self.settings.speed)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(container.run)
            self._patch(pod, samples.running(pod.address))
            await _either(pod.leaving, pod.failing)
            if pod.leaving.is_set():
                await anyio.sleep(PRE_STOP)
            else:
                container.refuse()
                await anyio.sleep(PROBE)
                self._patch(pod, samples.readiness(False))
            await container.finish(SETTLE)
            tasks.cancel_scope.cancel()
        pod.failing = anyio.Event()

    def _patch(self, pod: _Running, patch: Object) -> None:
        with suppress(ApiError):  # there is none of the name any more
            if uid_of(self.api.get("pods", pod.name, namespace=pod.namespace)) == pod.uid:
                self.api.patch("pods", pod.name, patch, namespace=pod.namespace)


async def _either(*events: anyio.Event) -> None:
    """Wait until one of *events* is set."""
    async with anyio.create_task_group() as tasks:

        async def wait(event: anyio.Event) -> None:
            await event.wait()
            tasks.cancel_scope.cancel()

        for event in events:
            tasks.start_soon(wait, event)
