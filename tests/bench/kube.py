"""What following a cluster costs: from the API server's socket to the datastore, in CPU time.

The server is another process, so that only the followers and the datastore are measured.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random
from time import process_time
from typing import IO, Final

import anyio
from attrs import define

from pointsman.actors.kube.access import Access, Login
from pointsman.actors.kube.discovery import KubernetesDiscovery, SelectorSettings
from pointsman.kernel.datastore import Change, Datastore
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.topic import Topics

from .kube_server import PODS, VERSION

BURST: Final = 2000
LONE: Final = 500
APART: Final = 0.004  # seconds between lone events
LOOK: Final = 0.05  # seconds
SETTINGS: Final = SelectorSettings(
    namespace="default", name="bench", selector="app=vllm", ports=(8000,)
)


def rows() -> list[tuple[str, float]]:
    """Name and CPU microseconds per operation."""
    _measured()  # the libraries import parts of themselves at their first use
    return _measured()


def _measured() -> list[tuple[str, float]]:
    with subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.kube_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            return anyio.run(_follow, int(server.stdout.readline()), server.stdin)
        finally:
            server.kill()


@define(eq=False)
class _Followed:
    """A cluster of 1,000 pods, and a datastore that has taken them in."""

    discovery: KubernetesDiscovery
    store: Datastore
    commands: IO[str]
    version: int = VERSION
    network: int = 0

    async def events(self, count: int, apart: float) -> float:
        """CPU microseconds of one of *count* events, *apart* seconds from each other."""
        self.version += count
        self.commands.write(f"{count} {apart} {self.network}\n")
        self.commands.flush()
        started = process_time()
        while self.told < self.version or len(self.store.inbox):  # noqa: ASYNC110
            await anyio.sleep(LOOK)  # to be woken would be measured as well
        return (process_time() - started) / count * 1e6

    async def moves(self, count: int, apart: float) -> float:
        """The same of events each of which gives its pod another address."""
        self.network += 1
        return await self.events(count, apart)

    @property
    def told(self) -> int:
        serving = self.discovery._pods._serving
        return int(serving.reflector._version or 0) if serving is not None else 0


async def _follow(port: int, commands: IO[str]) -> list[tuple[str, float]]:
    access = Access(f"http://127.0.0.1:{port}")

    async def read() -> Access:
        return access

    with Mailbox[Change].open("datastore", capacity=1024) as inbox:
        store = Datastore(inbox, Topics())
        discovery = KubernetesDiscovery(Login(read), SETTINGS, inbox.address, Random(1))
        figures: list[tuple[str, float]] = []
        async with anyio.create_task_group() as tasks:
            started = process_time()
            tasks.start_soon(store.run)
            tasks.start_soon(discovery.run)
            await _sync(store)
            figures.append((f"kube: first sync of {PODS} pods", (process_time() - started) * 1e6))
            followed = _Followed(discovery, store, commands)
            figures.append(("kube: an event of many", await followed.events(BURST, 0)))
            figures.append(("kube: such a one that moves a pod", await followed.moves(BURST, 0)))
            figures.append(("kube: an event by itself", await followed.events(LONE, APART)))
            tasks.cancel_scope.cancel()
    return figures


async def _sync(store: Datastore) -> None:
    version = 0
    while len(store.snapshot.endpoints) < PODS:
        version, _ = await store.members.newer(version)
