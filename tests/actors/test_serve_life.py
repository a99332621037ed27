"""A daemon's whole life, on asyncio as in production."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpx
import pytest

from pointsman.actors.serve import Daemon
from pointsman.actors.sim.processes import free_ports
from pointsman.kernel.channel import Latest

from .daemons import Make

pytestmark = pytest.mark.long


def flags(*more: str) -> tuple[tuple[str, ...], str]:
    grpc, health, admin = free_ports(3)
    ports = (f"--grpc-port={grpc}", f"--grpc-health-port={health}", f"--metrics-port={admin}")
    fixed = ("--bind-address=127.0.0.1", "--drain-timeout=0", "--secure-serving=false")
    return (*ports, *fixed, *more), f"http://127.0.0.1:{admin}"


async def live(daemon: Daemon, meanwhile: Callable[[], AsyncIterator[None]]) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(daemon.run)
            async for _ in meanwhile():
                os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def client_of(url: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A client, as soon as there is somebody to talk to."""
    async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while True:
            try:
                await client.get("/healthz")
            except httpx.ConnectError:
                await anyio.lowlevel.checkpoint()
            else:
                break
        yield client


def test_p_18_a_daemon_becomes_ready_serves_and_ends_on_sigterm(make: Make, unfrozen: None) -> None:
    arguments, url = flags()
    daemon = make(*arguments)

    async def look() -> AsyncIterator[None]:
        await daemon.ready.until(True)
        async with client_of(url) as client:
            assert (await client.get("/readyz")).status_code == 200
            assert "llm_d_epp_ready_endpoints" in (await client.get("/metrics")).text
            assert (await client.get("/debug/endpoints")).json() == []
        yield

    anyio.run(live, daemon, look)
    assert not daemon.ready.value


class Silence:
    """A source of endpoints that never tells any."""

    def __init__(self) -> None:
        self.synced = Latest(value=False)

    async def prepare(self) -> None: ...
    async def run(self) -> None: ...

    def ages(self) -> Mapping[str, float]:
        return {}

    def skipped(self) -> Mapping[str, Sequence[str]]:
        return {}


def test_a_daemon_that_is_not_ready_yet_ends_on_sigterm(make: Make, unfrozen: None) -> None:
    arguments, url = flags()
    daemon = make(*arguments)
    daemon.discovery = Silence()

    async def look() -> AsyncIterator[None]:
        async with client_of(url) as client:
            response = await client.get("/readyz")
            assert response.status_code == 503
            assert response.text == "not ready: the first list of endpoints\n"
        yield

    anyio.run(live, daemon, look)
    assert not daemon.ready.value
