"""A picker and its API server, which comes late, goes away, comes back changed, or refuses."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import httpx
from attrs import define, field

from pointsman.actors.sim.kube.command import load
from pointsman.actors.sim.kube.kubeconfig import Access
from pointsman.actors.sim.kube.objects import Object
from pointsman.actors.sim.processes import Process, answers, child
from pointsman.proto import (
    HEALTH_CHECK,
    HealthCheckRequest,
    HealthCheckResponse,
    ServingStatus,
    decode,
    encode,
)

from .gateway import Gateway, Layout, eventually, gateway, running_picker
from .kube import (
    DEFINITIONS,
    NETWORK,
    RBAC,
    cluster,
    listening,
    pool_of,
    somewhere,
    write_objects,
)
from .model_servers import serving

grpc: Any = import_module("grpc")


@asynccontextmanager
async def api_process(file: Path, access: Access) -> AsyncGenerator[Process]:
    """An API server that can be killed."""
    port = access.url.rpartition(":")[2]
    command = (sys.executable, "-m", "pointsman", "sim", "kube", *map(str, DEFINITIONS), str(file))
    ready = re.compile("^ready", re.MULTILINE)
    flags = (f"--port={port}", f"--token={access.token}")
    async with child("API server", (*command, *flags), ready=ready) as process:
        yield process
        process.kill()


async def pods_age(where: Layout) -> float:
    """Seconds since the picker last heard of pods, as its figures have it."""
    async with httpx.AsyncClient(trust_env=False) as client:
        text = (await client.get(f"http://{where.metrics}/metrics")).text
    (age,) = re.findall(r'^pointsman_kube_watch_age_seconds\{kind="pods"\} (\S+)', text, re.M)
    return float(age)


@define(eq=False)
class Asking:
    """Asks over and over, and notes the statuses of the answers."""

    statuses: Counter[int] = field(factory=Counter[int])
    served: str = ""
    """Who answered last."""

    async def run(self, under_test: Gateway) -> None:
        while True:
            response = await under_test.chat()
            self.statuses[response.status_code] += 1
            self.served = response.headers.get("x-inference-pod", "")


async def test_the_loss_of_the_api_server_costs_no_request_and_is_made_up_for(
    tmp_path: Path,
) -> None:
    pool, access, file = pool_of("p", NETWORK), somewhere(), tmp_path / "objects.yaml"
    where = pool.layout(tmp_path, access)
    best = min(pool.servers, key=lambda server: server.waiting)
    asking = Asking()

    async def is_old() -> bool:
        return await pods_age(where) > 2.0

    async def is_fresh() -> bool:
        return await pods_age(where) < 1.0

    write_objects(file, pool.objects())
    async with (
        serving(*pool.servers),
        api_process(file, access) as api,
        gateway(where, where.envoy(), pool.servers) as under_test,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(asking.run, under_test)
        await eventually(lambda: asking.served == best.name)
        api.kill()
        await api.wait()
        await eventually(is_old)
        assert asking.served == best.name
        assert await where.is_ready()
        write_objects(file, [obj for obj in pool.objects() if not is_at(obj, best.address.host)])
        async with api_process(file, access):
            await eventually(is_fresh)
            await eventually(lambda: asking.served != best.name)
        tasks.cancel_scope.cancel()
    assert set(asking.statuses) == {200}


def is_at(obj: Object, host: str) -> bool:
    """Whether *obj* is the pod at that address."""
    address: str = obj["status"]["podIP"] if obj["kind"] == "Pod" else ""
    return address == host


async def health(where: Layout, service: str) -> ServingStatus:
    """Ask the picker's health port, as probes do."""

    def check() -> ServingStatus:
        with grpc.insecure_channel(str(where.health)) as channel:
            ask = channel.unary_unary(HEALTH_CHECK, encode, answer)
            found: HealthCheckResponse = ask(HealthCheckRequest(service=service), timeout=10)
            return found.status

    def answer(data: bytes) -> HealthCheckResponse:
        return decode(HealthCheckResponse, data)

    return await anyio.to_thread.run_sync(check)


@asynccontextmanager
async def unready_picker(where: Layout) -> AsyncGenerator[Process]:
    """The picker, which is alive and need not be ready."""
    where.write_files(())
    alive = answers(f"http://{where.metrics}/healthz")
    async with running_picker(where, (), ready=alive) as picker:
        yield picker


async def test_a_picker_that_starts_before_the_api_server_is_ready_after_it(
    tmp_path: Path,
) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    where = pool.layout(tmp_path, access)

    async def is_serving() -> bool:
        return await health(where, "") is ServingStatus.SERVING

    async with serving(*pool.servers), unready_picker(where):
        assert await health(where, "") is ServingStatus.NOT_SERVING
        assert await health(where, "liveness") is ServingStatus.SERVING
        assert not await where.is_ready()
        async with listening(cluster(pool.objects()), access):
            await eventually(is_serving)
            assert await where.is_ready()


async def test_a_picker_without_rights_on_pods_says_so_and_waits_for_them(tmp_path: Path) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    where = pool.layout(tmp_path, access)
    api = cluster(pool.objects(), "RBAC")
    load(api, [RBAC])
    rules = api.get("roles", "pointsman")["rules"]
    api.patch("roles", "pointsman", {"rules": [r for r in rules if r["resources"] != ["pods"]]})
    async with (
        serving(*pool.servers),
        listening(api, access),
        unready_picker(where) as picker,
    ):
        await eventually(lambda: "no right to list pods" in picker.output)
        assert picker.returncode is None
        assert not await where.is_ready()
        assert "inferencepools" not in picker.output
        api.patch("roles", "pointsman", {"rules": rules})
        await eventually(where.is_ready)
