"""A real Envoy in front of a picker process and the model servers of one test.

`PICKERS` names the picker under test; everything else is the same for all of them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import httpx
from attrs import define, frozen

from pointsman.actors.sim.envoy import envoy
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, HostPort, Json, JsonObject
from pointsman.actors.sim.processes import Process, Ready, answers, child, free_ports

from .model_servers import MODEL, ModelServer

LOOPBACK: Final = "127.0.0.1"
SOON: Final = 30.0  # seconds within which whatever a test waits for must happen
OPEN_STREAMS: Final = re.compile(r"^pointsman_open_streams (\S+)", re.MULTILINE)


@frozen
class PickerProgram:
    """A picker that understands the flags of ``pointsman serve``."""

    argv: tuple[str, ...]
    scrapes: bool
    """It reads the metrics of the model servers, so it needs a moment to know them."""


SCORERS: Final[Sequence[Json]] = (
    {"type": "queue-scorer"},
    {"type": "kv-cache-utilization-scorer"},
)
BY_LOAD: Final[JsonObject] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": SCORERS,
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "queue-scorer", "weight": 2},
                {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
            ],
        }
    ],
}
"""A configuration whose endpoints come from elsewhere."""
FROM_FILE: Final[Json] = {"discovery": {"pluginRef": "file"}}
PICKERS: Final[Mapping[str, PickerProgram]] = {
    "tiny": PickerProgram(
        (sys.executable, str(Path(__file__).with_name("tiny_picker.py"))), scrapes=False
    ),
    "pointsman": PickerProgram((sys.executable, "-m", "pointsman", "serve"), scrapes=True),
}


@frozen(kw_only=True)
class Layout:
    """Where everything of one test listens and which files it is configured by."""

    program: PickerProgram
    servers: tuple[ModelServer, ...]
    folder: Path
    listen: HostPort
    admin: HostPort
    picker: HostPort
    health: HostPort
    metrics: HostPort
    flags: tuple[str, ...] = ()
    """More flags for the picker: where else it finds its endpoints."""
    config: Json = None
    """The picker's configuration; None, one that reads the endpoints from a file."""

    @property
    def fallback(self) -> tuple[HostPort, ...]:
        return tuple(server.address for server in self.servers)

    def envoy(self) -> EnvoySettings:
        """Settings that tests evolve: fail-close, every model server known to Envoy."""
        return EnvoySettings(
            listen=self.listen, admin=self.admin, picker=self.picker, fallback=self.fallback
        )

    def picker_command(self, *, tls: bool) -> Sequence[str]:
        return (
            *self.program.argv,
            f"--bind-address={LOOPBACK}",  # of all addresses, a server may have the port
            f"--grpc-port={self.picker.port}",
            f"--grpc-health-port={self.health.port}",
            f"--metrics-port={self.metrics.port}",
            f"--secure-serving={str(tls).lower()}",
            "--drain-timeout=1s",
            "--refresh-metrics-interval=50ms",
            f"--config-file={self.folder / 'config.yaml'}",
            *self.flags,
        )

    @property
    def endpoints(self) -> Path:
        """The file that the picker reads its endpoints from."""
        return self.folder / "endpoints.yaml"

    def write_files(self, pool: Sequence[ModelServer]) -> None:
        """Write the picker's configuration and its endpoints; JSON is YAML too."""
        told = {"endpoints": [endpoint(server) for server in pool]}
        self.endpoints.write_text(json.dumps(told))
        config = self.folder / "config.yaml"
        config.write_text(json.dumps(self.config or picker_config(self.endpoints)))

    async def is_ready(self) -> bool:
        return await answers(f"http://{self.metrics}/readyz")()


def layout(program: PickerProgram, servers: Sequence[ModelServer], folder: Path) -> Layout:
    listen, admin, picker, health, metrics = (HostPort(LOOPBACK, port) for port in free_ports(5))
    return Layout(
        program=program,
        servers=tuple(servers),
        folder=folder,
        listen=listen,
        admin=admin,
        picker=picker,
        health=health,
        metrics=metrics,
    )


def endpoint(server: ModelServer) -> Json:
    return {
        "name": server.name,
        "address": server.address.host,
        "port": str(server.address.port),
        "labels": {"waiting": str(server.waiting)},
    }


def picker_config(endpoints: Path) -> JsonObject:
    return scored_by({"queue-scorer": 2, "kv-cache-utilization-scorer": 2}, endpoints)


def scored_by(weights: Mapping[str, float], endpoints: Path) -> JsonObject:
    """A configuration that reads the endpoints from a file, with these scorers."""
    discovery: Json = {
        "name": "file",
        "type": "file-discovery",
        "parameters": {"path": str(endpoints), "watchFile": True},
    }
    profile: Json = {
        "name": "default",
        "plugins": [{"pluginRef": name, "weight": weight} for name, weight in weights.items()],
    }
    return {
        **BY_LOAD,
        "plugins": [*({"type": name} for name in weights), discovery],
        "dataLayer": FROM_FILE,
        "schedulingProfiles": [profile],
    }


@define(eq=False)
class Gateway:
    """What a test talks to."""

    layout: Layout
    settings: EnvoySettings
    client: httpx.AsyncClient
    picker: Process

    @property
    def best(self) -> ModelServer:
        """The server that a picker must prefer: the one with the shortest queue."""
        return min(self.layout.servers, key=lambda server: server.waiting)

    async def chat(self, prompt: str = "hello", *, stream: bool = False) -> httpx.Response:
        return await self.post(chat(prompt, stream=stream))

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> httpx.Response:
        headers = {"content-type": "application/json", **(headers or {})}
        return await self.client.post("/v1/chat/completions", content=body, headers=headers)

    async def in_flight(self) -> float:
        """How many requests the picker believes to be on their way."""
        metrics = await self.client.get(f"http://{self.layout.metrics}/metrics")
        return sum(float(value) for value in OPEN_STREAMS.findall(metrics.text))

    async def stat(self, name: str) -> int:
        """Read one of Envoy's own counters or gauges."""
        stats = await self.client.get(
            f"{self.settings.admin_url}/stats", params={"filter": f"^{re.escape(name)}$"}
        )
        return int(stats.text.rpartition(": ")[2])

    async def lost_picker(self) -> bool:
        """Tell whether Envoy has noticed that the picker is gone."""
        return await self.stat("cluster.picker.upstream_cx_active") == 0

    async def is_idle(self) -> bool:
        """Tell whether the picker believes that every request has ended."""
        return await self.in_flight() == 0

    async def is_busy(self) -> bool:
        return not await self.is_idle()


def chat(prompt: str, *, stream: bool = False) -> bytes:
    message = {"role": "user", "content": prompt}
    return json.dumps({"model": MODEL, "messages": [message], "stream": stream}).encode()


@asynccontextmanager
async def gateway(
    where: Layout, settings: EnvoySettings, pool: Sequence[ModelServer] | None = None
) -> AsyncGenerator[Gateway]:
    """Run picker and Envoy; *pool* is what the picker is told of, else all model servers."""
    told = where.servers if pool is None else pool
    where.write_files(told)
    async with (
        running_picker(where, told, tls=settings.picker_tls) as picker,
        envoy(settings, log_to=where.folder / "envoy.log"),
        httpx.AsyncClient(base_url=settings.url, trust_env=False, timeout=SOON) as client,
    ):
        yield Gateway(where, settings, client, picker)


@asynccontextmanager
async def running_picker(
    where: Layout, pool: Sequence[ModelServer], *, tls: bool = False, ready: Ready | None = None
) -> AsyncGenerator[Process]:
    """Run the picker; the block begins when it is *ready* and knows the load of all of *pool*."""
    scrapes = [server.scrapes for server in pool]

    def knows_load() -> bool:
        """The second scrape begins when the first one is over."""
        return all(s.scrapes >= old + 2 for s, old in zip(pool, scrapes, strict=True))

    async with child(
        "picker",
        where.picker_command(tls=tls),
        ready=ready or where.is_ready,
        ready_within=SOON,
        log_to=where.folder / "picker.log",
    ) as process:
        if where.program.scrapes:
            await eventually(knows_load)
        yield process
        process.kill()  # a drain takes seconds, and has its own test


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Look at *condition* often until it holds; fail when it does not hold soon."""
    with anyio.fail_after(SOON):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await anyio.sleep(0.01)
