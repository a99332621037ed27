"""Pools in a cluster, behind a real Envoy: the part of the gateways' conformance tests that is the
picker's, and the demonstration."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import anyio
import httpx
import pytest
from attrs import evolve

from pointsman.actors.sim.envoy_bootstrap import Json, Mode
from pointsman.actors.sim.kube import samples
from pointsman.actors.sim.kube.server import ApiServer
from pointsman.actors.sim.processes import child

from .gateway import BY_LOAD, Gateway, chat, eventually, gateway
from .kube import (
    BY_HEADER,
    NETWORK,
    SELECTION,
    SERVED,
    SERVED_BY_HEADER,
    SEVERAL_BY_HEADER,
    Pool,
    cluster,
    listening,
    pool_of,
    somewhere,
)
from .model_servers import serving
from .modes import INCREMENTAL, in_each, in_each_mode

AT_ONCE = 10
REQUESTS = 100


@asynccontextmanager
async def pool_behind_envoy(
    pool: Pool, folder: Path, config: Json = BY_LOAD, spec: Mapping[str, object] = {}
) -> AsyncGenerator[tuple[ApiServer, Gateway]]:
    """A cluster with this pool, our picker following it, and Envoy."""
    api, access = cluster(pool.objects(spec)), somewhere()
    where = pool.layout(folder, access, config)
    async with (
        serving(*pool.servers),
        listening(api, access),
        gateway(where, where.envoy(), pool.servers) as under_test,
    ):
        yield api, under_test


def served_by(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.headers["x-inference-pod"]


async def many(
    under_test: Gateway, headers: Mapping[str, str], count: int = REQUESTS
) -> Counter[str]:
    """Send chats, ten at once; how many each server got. All have to be served."""
    counts = Counter[str]()
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def one(number: int) -> None:
        async with limiter:
            response = await under_test.post(chat(f"prompt {number}"), headers)
        counts[served_by(response)] += 1

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(one, number)
    return counts


# -- conformance ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [{}, {"appProtocol": "http"}, {"appProtocol": "kubernetes.io/h2c"}],
    ids=["no-protocol", "http", "h2c"],
)
async def test_the_best_pod_of_a_pool_serves_whatever_its_protocol(
    tmp_path: Path, spec: Mapping[str, object]
) -> None:
    pool = pool_of("p", NETWORK)
    async with pool_behind_envoy(pool, tmp_path, spec=spec) as (_, under_test):
        assert served_by(await under_test.chat()) == under_test.best.name


@pytest.mark.parametrize("chosen", [1, 2, 3])
async def test_a_gateway_follows_the_picker_to_the_chosen_pods(tmp_path: Path, chosen: int) -> None:
    pool = pool_of("p", NETWORK)
    wanted = pool.servers[:chosen]
    listed = ",".join(server.address.host for server in wanted)
    async with pool_behind_envoy(pool, tmp_path, BY_HEADER) as (_, under_test):
        counts = await many(under_test, {SELECTION: listed})
    assert set(counts) == {server.name for server in wanted}
    assert counts.total() == REQUESTS


async def test_a_gateway_follows_the_picker_to_every_rank_or_to_one(tmp_path: Path) -> None:
    pool = pool_of("p", NETWORK, ports=3)
    first, *_ = pool.hosts
    one = pool.servers[4]
    async with pool_behind_envoy(pool, tmp_path, BY_HEADER) as (_, under_test):
        of_a_pod = await many(under_test, {SELECTION: first})
        of_a_rank = await many(under_test, {SELECTION: str(one.address)})
    assert set(of_a_pod) == {s.name for s in pool.servers if s.address.host == first}
    assert of_a_rank == {one.name: REQUESTS}


@in_each_mode
async def test_the_endpoint_that_served_comes_back_to_the_client(
    tmp_path: Path, mode: Mode
) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    where = pool.layout(tmp_path, access, SERVED_BY_HEADER)
    async with (
        serving(*pool.servers),
        listening(cluster(pool.objects()), access),
        gateway(where, evolve(where.envoy(), mode=mode), pool.servers) as under_test,
    ):
        for server in pool.servers:
            selection = {SELECTION: server.address.host}
            response = await under_test.post(chat("hello"), selection)
            assert served_by(response) == server.name
            assert response.headers[SERVED] == str(server.address)


@asynccontextmanager
async def two_pools(
    folder: Path, config: Json = BY_LOAD
) -> AsyncGenerator[tuple[Sequence[Pool], Sequence[Gateway]]]:
    """Two pools of one cluster, each with a picker and an Envoy of its own."""
    pools = pool_of("one", "127.0.5"), pool_of("two", "127.0.6")
    api, access = cluster([obj for pool in pools for obj in pool.objects()]), somewhere()
    one, two = (pool.layout(folder / pool.name, access, config) for pool in pools)
    async with (
        serving(*pools[0].servers, *pools[1].servers),
        listening(api, access),
        gateway(one, one.envoy()) as first,
        gateway(two, two.envoy()) as second,
    ):
        yield pools, (first, second)


async def test_every_route_reaches_its_own_pool(tmp_path: Path) -> None:
    async with two_pools(tmp_path) as (_, gateways):
        for under_test in gateways:
            assert served_by(await under_test.chat()) == under_test.best.name


async def test_with_weights_for_two_pools_each_picker_drops_the_other_s_pods(
    tmp_path: Path,
) -> None:
    random = Random(7)
    share = sum(random.random() < 0.7 for _ in range(2 * REQUESTS))
    async with two_pools(tmp_path, BY_HEADER) as (pools, gateways):
        everybody = ",".join(host for pool in pools for host in pool.hosts)
        counts = [
            await many(under_test, {SELECTION: everybody}, count)
            for under_test, count in zip(gateways, (share, 2 * REQUESTS - share), strict=True)
        ]
    for pool, served in zip(pools, counts, strict=True):
        assert set(served) == {server.name for server in pool.servers}
    assert abs(counts[0].total() / (2 * REQUESTS) - 0.7) < 0.146


@pytest.mark.parametrize(("allowed", "status"), [(True, 200), (False, 500)])
async def test_without_a_picker_the_pool_s_failure_mode_decides(
    tmp_path: Path, allowed: bool, status: int
) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    where = pool.layout(tmp_path, access)
    settings = evolve(where.envoy(), mode=Mode.LEAN_BUFFERED, failure_mode_allow=allowed)
    async with (
        serving(*pool.servers),
        listening(cluster(pool.objects()), access),
        gateway(where, settings) as under_test,
    ):
        under_test.picker.kill()
        await under_test.picker.wait()
        await eventually(under_test.lost_picker)
        responses = [await under_test.chat() for _ in range(30)]
    assert {response.status_code for response in responses} == {status}


@in_each(INCREMENTAL)
async def test_only_pods_of_the_subset_serve(tmp_path: Path, mode: Mode) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    hinted = pool.servers[2]
    where = pool.layout(tmp_path, access)
    settings = evolve(where.envoy(), mode=mode, subset_hint=(hinted.address,))
    async with (
        serving(*pool.servers),
        listening(cluster(pool.objects()), access),
        gateway(where, settings) as under_test,
    ):
        assert served_by(await under_test.chat()) == hinted.name


async def test_a_subset_of_another_pool_is_unavailable(tmp_path: Path) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    other = pool_of("other", "127.0.6").servers[0].address
    where = pool.layout(tmp_path, access)
    async with (
        serving(*pool.servers),
        listening(cluster(pool.objects()), access),
        gateway(where, evolve(where.envoy(), subset_hint=(other,))) as under_test,
    ):
        response = await under_test.chat()
    assert response.status_code == 503
    assert response.headers["x-llm-d-request-dropped-reason"]


async def test_a_body_of_two_megabytes_arrives_whole(tmp_path: Path) -> None:
    body = chat("0123456789abcdef" * (1 << 17))
    pool = pool_of("p", NETWORK)
    async with pool_behind_envoy(pool, tmp_path) as (_, under_test):
        served_by(await under_test.post(body))
        assert under_test.best.received[-1].body == body


async def test_a_pod_that_is_not_ready_leaves_and_comes_back(tmp_path: Path) -> None:
    pool = pool_of("p", NETWORK)
    async with pool_behind_envoy(pool, tmp_path) as (api, under_test):

        async def best_serves() -> bool:
            return served_by(await under_test.chat()) == under_test.best.name

        async def others_serve() -> bool:
            return not await best_serves()

        name = pool.pod_name(under_test.best.address.host)
        assert await best_serves()
        api.patch("pods", name, samples.readiness(False))
        await eventually(others_serve)
        api.patch("pods", name, samples.readiness(True))
        await eventually(best_serves)


async def test_a_pool_without_pods_is_unavailable_until_one_is_ready(tmp_path: Path) -> None:
    pool, access = pool_of("p", NETWORK), somewhere()
    empty, *pods = pool.objects()
    api = cluster([empty])
    where = pool.layout(tmp_path, access)
    async with (
        serving(*pool.servers),
        listening(api, access),
        gateway(where, where.envoy(), pool=()) as under_test,
    ):

        async def is_served() -> bool:
            return (await under_test.chat()).status_code == 200

        assert (await under_test.chat()).status_code == 503
        api.create(pods[0])
        await eventually(is_served)


async def test_a_pod_that_takes_no_connections_costs_no_request(tmp_path: Path) -> None:
    """Retries last as long as their streams: far more than Envoy's own three are under way."""
    pool, access = pool_of("p", NETWORK), somewhere()
    dead, *alive = pool.servers
    where = pool.layout(tmp_path, access, SEVERAL_BY_HEADER)
    selection = {SELECTION: ",".join(pool.hosts)}
    attempts = Counter[str]()

    async def one(under_test: Gateway) -> None:
        response = await under_test.post(chat("hello", stream=True), selection)
        assert served_by(response) != dead.name
        attempts[response.headers["x-envoy-attempt-count"]] += 1

    for server in alive:
        server.hold()
    async with (
        serving(*alive),
        listening(cluster(pool.objects()), access),
        gateway(where, where.envoy(), alive) as under_test,
        anyio.create_task_group() as clients,
    ):
        for _ in range(4 * AT_ONCE):
            clients.start_soon(one, under_test)
        await eventually(lambda: sum(server.running for server in alive) == 4 * AT_ONCE)
        for server in alive:
            server.release()
    assert set(attempts) == {"1", "2"}
    assert attempts["2"] > 3


# -- the demonstration ----------------------------------------------------------------------------


async def test_the_demonstration_loses_no_request() -> None:
    command = (sys.executable, "-m", "pointsman", "demo", "kube", "--once", "--seed=7")
    async with child("demo", command) as demo:
        with anyio.fail_after(120):
            assert await demo.wait() == 0, demo.output
