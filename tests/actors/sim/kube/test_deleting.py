"""Deleting: at once, with finalizers, with time for pods, in bulk, with a whole namespace."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from pointsman.actors.sim.kube.objects import Object
from pointsman.actors.sim.kube.samples import pod, pool

from .kit import MERGE, PODS, POOLS, Api


def add(api: Api, name: str, **settings: Any) -> Object:
    return api.server.create(pod(name, ip="10.0.0.1", **settings))


async def deleted(api: Api, path: str, body: object = None, **query: object) -> Any:
    status, answer = await api.ask("DELETE", path, body, **query)
    assert status == 200, answer
    return answer


async def test_a_pod_has_time_to_end(api: Api, autojump_clock: MockClock) -> None:
    add(api, "a")
    watcher = await api.watch(PODS, resourceVersion=api.server.store.revision)
    leaving = await deleted(api, f"{PODS}/a")
    assert leaving["metadata"]["deletionTimestamp"] == "2026-11-29T12:00:30Z"
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    await trio.sleep(29)
    assert watcher.told == [("MODIFIED", "a")]
    await trio.sleep(2)
    assert watcher.told == [("MODIFIED", "a"), ("DELETED", "a")]
    last = watcher.events[1]["object"]["metadata"]
    assert last["deletionTimestamp"] == leaving["metadata"]["deletionTimestamp"]
    assert last["resourceVersion"] == str(api.server.store.revision)


async def test_a_client_says_how_long_a_pod_has(api: Api, autojump_clock: MockClock) -> None:
    for name, body, query in [
        ("a", {"gracePeriodSeconds": 5}, {}),
        ("b", None, {"gracePeriodSeconds": 5}),
    ]:
        add(api, name)
        leaving = await deleted(api, f"{PODS}/{name}", body, **query)
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 5
    await trio.sleep(6)
    assert await api.names(PODS) == []


async def test_no_time_at_all_ends_a_pod_at_once(api: Api) -> None:
    add(api, "a")
    gone = await deleted(api, f"{PODS}/a", gracePeriodSeconds=0)
    assert gone["metadata"]["name"] == "a"
    assert await api.names(PODS) == []


async def test_the_time_of_a_pod_can_be_shortened_and_not_prolonged(
    api: Api, autojump_clock: MockClock
) -> None:
    add(api, "a")
    await deleted(api, f"{PODS}/a", gracePeriodSeconds=20)
    longer = await deleted(api, f"{PODS}/a", gracePeriodSeconds=40)
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 20
    await deleted(api, f"{PODS}/a", gracePeriodSeconds=2)
    await trio.sleep(3)
    assert await api.names(PODS) == []
    add(api, "a")
    await trio.sleep(30)
    assert await api.names(PODS) == ["a"]


async def test_a_pod_that_runs_nowhere_needs_no_time(api: Api) -> None:
    add(api, "unscheduled", node="")
    add(api, "over", phase="Succeeded")
    for name in ("unscheduled", "over"):
        await deleted(api, f"{PODS}/{name}")
    assert await api.names(PODS) == []


async def test_the_end_of_a_pod_survives_a_compaction(api: Api, autojump_clock: MockClock) -> None:
    add(api, "a")
    api.server.delete("pods", "a")
    api.server.compact()
    await trio.sleep(31)
    assert api.server.objects("pods") == []


async def test_a_finalizer_holds_an_object_back(api: Api, autojump_clock: MockClock) -> None:
    obj = pool("p", selector={"a": "b"})
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    api.server.create(obj)
    watcher = await api.watch(POOLS, resourceVersion=api.server.store.revision)
    held = await deleted(api, f"{POOLS}/p")
    assert held["metadata"]["deletionTimestamp"] == "2026-11-29T12:00:00Z"
    assert await deleted(api, f"{POOLS}/p") == held
    merging = api.evolved(media=MERGE)
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}}
    assert (await merging.refused("PATCH", f"{POOLS}/p", more))["code"] == 403
    await merging.ask("PATCH", f"{POOLS}/p", {"metadata": {"finalizers": None}})
    await trio.sleep(1)
    assert watcher.told == [("MODIFIED", "p"), ("DELETED", "p")]
    assert await api.names(POOLS) == []


async def test_a_pod_with_a_finalizer_is_held_back_after_its_time(
    api: Api, autojump_clock: MockClock
) -> None:
    obj = pod("a", ip="10.0.0.1")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    api.server.create(obj)
    await deleted(api, f"{PODS}/a", gracePeriodSeconds=1)
    await trio.sleep(2)
    assert api.server.get("pods", "a")["metadata"]["deletionGracePeriodSeconds"] == 0
    api.server.patch("pods", "a", {"metadata": {"finalizers": None}})
    assert await api.names(PODS) == []


async def test_a_deletion_answers_with_a_success(api: Api) -> None:
    made = api.server.create(pool("p", selector={"a": "b"}))
    answer = await deleted(api, f"{POOLS}/p")
    assert (answer["kind"], answer["status"]) == ("Status", "Success")
    assert answer["details"] == {
        "name": "p",
        "group": "inference.networking.k8s.io",
        "kind": "inferencepools",
        "uid": made["metadata"]["uid"],
    }


async def test_a_deletion_may_be_about_one_identity_only(api: Api) -> None:
    made = add(api, "a")
    for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
        status = await api.refused("DELETE", f"{PODS}/a", {"preconditions": wrong})
        assert status["code"] == 409
    right = {"uid": made["metadata"]["uid"]}
    await deleted(api, f"{PODS}/a", {"preconditions": right})


async def test_options_that_make_no_sense_are_refused(api: Api) -> None:
    add(api, "a")
    for body in ({"gracePeriodSeconds": "soon"}, [1]):
        assert (await api.refused("DELETE", f"{PODS}/a", body))["code"] == 400


async def test_many_can_be_deleted_by_a_selector(api: Api) -> None:
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        add(api, name, labels={"app": app})
    answer = await deleted(api, PODS, labelSelector="app=x", gracePeriodSeconds=0)
    assert answer["kind"] == "PodList"
    assert [item["metadata"]["name"] for item in answer["items"]] == ["a", "c"]
    assert await api.names(PODS) == ["b"]


async def test_a_pod_of_the_same_name_is_another_one(api: Api, autojump_clock: MockClock) -> None:
    first = add(api, "a")
    await deleted(api, f"{PODS}/a", gracePeriodSeconds=5)
    api.server.delete("pods", "a", namespace="default")
    await trio.sleep(6)
    second = add(api, "a")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]


async def test_a_namespace_takes_what_is_in_it_along(api: Api, autojump_clock: MockClock) -> None:
    add(api, "a", namespace="work")
    api.server.create(pool("p", selector={"a": "b"}, namespace="work"))
    answer = await deleted(api, "/api/v1/namespaces/work")
    assert answer["status"] == {"phase": "Terminating"}
    status = await api.refused("POST", PODS.replace("default", "work"), {"metadata": {"name": "b"}})
    assert status["code"] == 403
    await trio.sleep(31)
    assert await api.names("/api/v1/namespaces") == ["default", "kube-system"]
    assert await api.names("/api/v1/pods") == []


async def test_an_empty_namespace_goes_at_once(api: Api) -> None:
    api.server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "work"}})
    await deleted(api, "/api/v1/namespaces/work")
    assert await api.names("/api/v1/namespaces") == ["default", "kube-system"]


async def test_a_namespace_that_is_being_deleted_stays_for_what_is_held_back(api: Api) -> None:
    obj = pool("p", selector={"a": "b"}, namespace="work")
    obj["metadata"]["finalizers"] = ["example.com/hold"]
    api.server.create(obj)
    await deleted(api, "/api/v1/namespaces/work")
    api.server.patch("namespaces", "work", {"metadata": {"labels": {"x": "y"}}})
    assert "work" in await api.names("/api/v1/namespaces")
    patch = {"metadata": {"finalizers": None}}
    api.server.patch("inferencepools", "p", patch, namespace="work")
    assert "work" not in await api.names("/api/v1/namespaces")
