"""Agreement with the official Python client, where it is installed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
import trio

from pointsman.actors.sim.kube.samples import pod, pool

from .kit import DEPLOY
from .serving import kube

pytestmark = pytest.mark.long

kubernetes: Any = pytest.importorskip("kubernetes")
informer: Any = pytest.importorskip("kubernetes.informer")

POOLS = ("inference.networking.k8s.io", "v1", "default", "inferencepools")


@asynccontextmanager
async def clients(tmp_path: Path, *more: str) -> AsyncGenerator[Any]:
    """An ``ApiClient`` for a server that holds a pod and a pool."""
    world, path = tmp_path / "world.json", tmp_path / "kube.yaml"
    objects = [pod("a", ip="10.0.0.1", labels={"app": "m"}), pool("pool", selector={"app": "m"})]
    world.write_text("\n---\n".join(map(json.dumps, objects)))
    crds = sorted((DEPLOY / "crds").iterdir())
    async with kube(world, *crds, "--kubeconfig", path, *more):
        client = await trio.to_thread.run_sync(kubernetes.config.new_client_from_config, str(path))
        yield client
        client.close()


async def within(work: Callable[[], Any]) -> Any:
    """The result of *work*, which blocks."""
    return await trio.to_thread.run_sync(work)


async def test_objects_are_read_and_written(tmp_path: Path) -> None:
    async with clients(tmp_path) as client:
        core = kubernetes.client.CoreV1Api(client)
        (listed,) = (await within(lambda: core.list_namespaced_pod("default"))).items
        assert listed.status.pod_ip == "10.0.0.1"
        models = kubernetes.client
        container = models.V1Container(name="s", image="i")
        body = models.V1Pod(
            metadata=models.V1ObjectMeta(name="b"),
            spec=models.V1PodSpec(node_name="n", containers=[container]),
        )
        made = await within(lambda: core.create_namespaced_pod("default", body))
        assert made.status.phase == "Pending"
        patch = {"metadata": {"labels": {"x": "y"}}}
        patched = await within(lambda: core.patch_namespaced_pod("b", "default", patch))
        assert patched.metadata.labels == {"x": "y"}
        leaving = await within(lambda: core.delete_namespaced_pod("b", "default"))
        assert leaving.metadata.deletion_timestamp is not None


async def test_custom_objects_are_read_and_written(tmp_path: Path) -> None:
    async with clients(tmp_path) as client:
        custom = kubernetes.client.CustomObjectsApi(client)
        ports = {"spec": {"targetPorts": [{"number": 9}]}}
        patched = await within(lambda: custom.patch_namespaced_custom_object(*POOLS, "pool", ports))
        assert patched["metadata"]["generation"] == 2
        with pytest.raises(kubernetes.client.ApiException) as refused:
            await within(lambda: custom.list_cluster_custom_object("no.group", "v1", "things"))
        assert (refused.value.status, refused.value.body) == (404, "404 page not found\n")


async def test_a_lease_is_replaced_by_whoever_has_the_last_version(tmp_path: Path) -> None:
    models = kubernetes.client
    async with clients(tmp_path) as client:
        leases = models.CoordinationV1Api(client)
        body = models.V1Lease(
            metadata=models.V1ObjectMeta(name="l"),
            spec=models.V1LeaseSpec(holder_identity="x", lease_duration_seconds=15),
        )
        lease = await within(lambda: leases.create_namespaced_lease("default", body))
        await within(lambda: leases.replace_namespaced_lease("l", "default", lease))
        lease.spec.holder_identity = "y"
        await within(lambda: leases.replace_namespaced_lease("l", "default", lease))
        with pytest.raises(models.ApiException) as refused:
            await within(lambda: leases.replace_namespaced_lease("l", "default", lease))
        assert refused.value.status == 409


async def test_a_watch_follows_a_pod_to_its_end_over_tls(tmp_path: Path) -> None:
    def follow(core: Any) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        stream = kubernetes.watch.Watch().stream(
            core.list_namespaced_pod, "default", timeout_seconds=10
        )
        for event in stream:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "ADDED":
                core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"x": "y"}}})
            elif event["type"] == "MODIFIED":
                core.delete_namespaced_pod("a", "default", grace_period_seconds=0)
            else:
                break
        return seen

    async with clients(tmp_path, "--tls", "--token", "t-1") as client:
        core = kubernetes.client.CoreV1Api(client)
        seen = await within(lambda: follow(core))
    assert seen == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_watch_of_a_compacted_version_is_gone(tmp_path: Path) -> None:
    def resume(core: Any) -> None:
        old = core.list_namespaced_pod("default").metadata.resource_version
        core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"x": "y"}}})
        host = core.api_client.configuration.host
        httpx.post(f"{host}/sim/faults", json={"action": "compact"}, trust_env=False)
        stream = kubernetes.watch.Watch().stream(
            core.list_namespaced_pod, "default", resource_version=old, timeout_seconds=5
        )
        list(stream)

    async with clients(tmp_path) as client:
        core = kubernetes.client.CoreV1Api(client)
        with pytest.raises(kubernetes.client.ApiException) as gone:
            await within(lambda: resume(core))
    assert gone.value.status == 410


async def test_rights_and_tokens_are_reviewed(tmp_path: Path) -> None:
    models = kubernetes.client
    more = ("--token", "t-1=carol", "--authorization-mode", "RBAC")
    async with clients(tmp_path, *more) as client:
        attributes = models.V1ResourceAttributes(verb="list", resource="pods")
        review = models.V1SelfSubjectAccessReview(
            spec=models.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
        api = models.AuthorizationV1Api(client)
        answer = await within(lambda: api.create_self_subject_access_review(review))
        assert answer.status.allowed is False
        with pytest.raises(models.ApiException) as refused:
            await within(lambda: models.CoreV1Api(client).list_namespaced_pod("default"))
        assert refused.value.status == 403
        message = json.loads(refused.value.body)["message"]
        assert 'User "carol" cannot list resource "pods"' in message


async def test_an_informer_keeps_up(tmp_path: Path) -> None:
    def note(told: Queue[str], event: str) -> Callable[[Any], None]:
        return lambda obj: told.put(f"{event} {obj.metadata.name}")

    def mirror(core: Any) -> list[str]:
        told: Queue[str] = Queue()
        shared = informer.SharedInformer(core.list_namespaced_pod, namespace="default")
        for event in ("ADDED", "DELETED"):
            shared.add_event_handler(event, note(told, event))
        shared.start()
        seen = [told.get(timeout=10)]
        core.delete_namespaced_pod("a", "default", grace_period_seconds=0)
        seen.append(told.get(timeout=10))
        shared.stop()
        return [*seen, *shared.cache.list_keys()]

    async with clients(tmp_path) as client:
        core = kubernetes.client.CoreV1Api(client)
        assert await within(lambda: mirror(core)) == ["ADDED a", "DELETED a"]


async def test_the_dynamic_client_discovers_the_kinds(tmp_path: Path) -> None:
    dynamic: Any = pytest.importorskip("kubernetes.dynamic")

    def discover(client: Any) -> list[str]:
        found = dynamic.DynamicClient(client).resources.get(
            api_version="inference.networking.k8s.io/v1", kind="InferencePool"
        )
        return [item.metadata.name for item in found.get(namespace="default").items]

    async with clients(tmp_path) as client:
        assert await within(lambda: discover(client)) == ["pool"]
