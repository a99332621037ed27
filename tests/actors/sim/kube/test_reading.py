"""Getting and listing over the API."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.sim.kube.samples import pod, pool

from .kit import PODS, POOLS, Api


def add(api: Api, *names: str, **settings: Any) -> None:
    for name in names:
        api.server.create(pod(name, ip="10.0.0.1", **settings))


async def test_a_list_carries_a_version_and_its_items_say_no_kind(api: Api) -> None:
    add(api, "a")
    listed = await api.get(PODS)
    assert (listed["kind"], listed["apiVersion"]) == ("PodList", "v1")
    assert listed["metadata"] == {"resourceVersion": str(api.server.store.revision)}
    assert not {"kind", "apiVersion"} & listed["items"][0].keys()


async def test_items_of_custom_kinds_say_what_they_are(api: Api) -> None:
    api.server.create(pool("p", selector={"app": "a"}))
    listed = await api.get(POOLS)
    assert listed["kind"] == "InferencePoolList"
    assert listed["items"][0]["apiVersion"] == "inference.networking.k8s.io/v1"


async def test_one_object_says_what_it_is(api: Api) -> None:
    add(api, "a")
    got = await api.get(f"{PODS}/a")
    assert (got["kind"], got["apiVersion"], got["status"]["podIP"]) == ("Pod", "v1", "10.0.0.1")
    assert await api.get(f"{PODS}/a/status") == got


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    status = await api.refused("GET", f"{PODS}/a")
    assert (status["code"], status["reason"]) == (404, "NotFound")
    assert status["message"] == 'pods "a" not found'
    assert status["details"] == {"name": "a", "group": "", "kind": "pods"}


async def test_a_list_can_be_narrowed(api: Api) -> None:
    add(api, "a", labels={"app": "x"})
    add(api, "b", labels={"app": "y"}, node="node-2")
    add(api, "c", labels={"app": "x"}, namespace="other", phase="Pending")
    everywhere = "/api/v1/pods"
    assert await api.names(everywhere) == ["a", "b", "c"]
    assert await api.names(PODS) == ["a", "b"]
    assert await api.names(everywhere, labelSelector="app in (x)") == ["a", "c"]
    assert await api.names(PODS, fieldSelector="metadata.name=b") == ["b"]
    assert await api.names(everywhere, fieldSelector="metadata.namespace!=other") == ["a", "b"]
    assert await api.names(everywhere, fieldSelector="status.phase=Pending") == ["c"]
    assert await api.names(everywhere, fieldSelector="spec.nodeName=node-2") == ["b"]


async def test_events_are_found_by_what_they_are_about(api: Api) -> None:
    events = "/api/v1/namespaces/default/events"
    for pod_name, reason in (("a", "Started"), ("a", "Killing"), ("b", "Started")):
        about = {"kind": "Pod", "name": pod_name, "namespace": "default"}
        event = {"metadata": {"generateName": "e-"}, "involvedObject": about, "reason": reason}
        assert (await api.ask("POST", events, event))[0] == 201
    selector = "involvedObject.name=a,reason=Started"
    (found,) = (await api.get(events, fieldSelector=selector))["items"]
    assert found["involvedObject"]["name"] == "a"


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in b"},
        {"fieldSelector": "spec.image=x"},
        {"limit": "many"},
        {"resourceVersion": "abc"},
        {"continue": "nonsense"},
        {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Nearly", "resourceVersion": "1"},
        {"continue": "eyJydiI6MX0", "resourceVersion": "1"},
    ],
)
async def test_an_option_that_makes_no_sense_is_a_bad_request(
    api: Api, query: dict[str, str]
) -> None:
    assert (await api.refused("GET", PODS, **query))["code"] == 400


async def test_a_long_list_comes_in_pages_of_one_version(api: Api) -> None:
    add(api, *"abcde")
    first = await api.get(PODS, limit=2)
    assert first["metadata"]["remainingItemCount"] == 3
    api.server.delete("pods", "e")
    add(api, "f")
    token = first["metadata"]["continue"]
    second = await api.get(PODS, **{"limit": 2, "continue": token})
    last = await api.get(PODS, **{"limit": 2, "continue": second["metadata"]["continue"]})
    names = [item["metadata"]["name"] for page in (first, second, last) for item in page["items"]]
    assert names == ["a", "b", "c", "d", "e"]
    assert "continue" not in last["metadata"]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, last)}
    assert len(versions) == 1


async def test_a_selected_list_does_not_count_what_remains(api: Api) -> None:
    add(api, *"abc", labels={"app": "x"})
    page = await api.get(PODS, limit=1, labelSelector="app=x")
    assert page["metadata"].keys() == {"resourceVersion", "continue"}


async def test_the_rest_of_a_list_expires_with_a_compaction(api: Api) -> None:
    add(api, *"abc")
    page = await api.get(PODS, limit=1)
    add(api, "d")
    api.server.compact()
    status = await api.refused("GET", PODS, **{"continue": page["metadata"]["continue"]})
    assert (status["code"], status["reason"]) == (410, "Expired")


async def test_any_version_will_do_and_then_there_are_no_pages(api: Api) -> None:
    add(api, *"abc")
    assert await api.names(PODS, resourceVersion=0, limit=1) == ["a", "b", "c"]


async def test_a_list_can_be_had_as_of_an_exact_version(api: Api) -> None:
    add(api, "a")
    version = (await api.get(PODS))["metadata"]["resourceVersion"]
    add(api, "b")
    assert await api.names(PODS, resourceVersion=version) == ["a", "b"]
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert await api.names(PODS, **exact) == ["a"]
    api.server.compact()
    assert (await api.refused("GET", PODS, **exact))["code"] == 410


async def test_a_version_from_the_future_is_too_large(api: Api) -> None:
    status = await api.refused("GET", PODS, resourceVersion=10**9)
    assert (status["code"], status["reason"]) == (504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize(
    "path",
    [
        "/apis/no.such.group/v1/things",
        "/apis/inference.networking.k8s.io/v2/inferencepools",
        "/api/v1/things",
        "/api/v1/pods/a",
        "/nowhere",
    ],
)
async def test_a_kind_that_is_not_served_is_a_plain_404(api: Api, path: str) -> None:
    response = await api.response("GET", path)
    assert (response.status, response.body) == (404, b"404 page not found\n")
    assert dict(response.headers)["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("PUT", PODS, 405),
        ("PATCH", PODS, 405),
        ("POST", f"{PODS}/a", 405),
        ("POST", "/api/v1/pods", 405),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews", 405),
        ("BREW", PODS, 405),
        ("GET", f"{PODS}/a/log", 404),
        ("GET", "/api/v1/namespaces/default/configmaps/a/status", 404),
    ],
)
async def test_a_method_or_part_that_there_is_not_is_refused(
    api: Api, method: str, path: str, code: int
) -> None:
    assert (await api.refused(method, path, {}))["code"] == code


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def test_a_client_that_prints_gets_a_table(api: Api, autojump_clock: MockClock) -> None:
    add(api, "a", "b", ready=False)
    api.server.patch("pods", "b", {"metadata": {"labels": {"x": "y"}}})
    printing = api.evolved(headers={"accept": TABLE})
    table = await printing.get(PODS)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Ready", "Status", "Age", "IP", "Node"]
    assert table["rows"][0]["cells"] == ["a", "0/1", "Running", "0s", "10.0.0.1", "node-1"]
    assert table["rows"][1]["object"]["kind"] == "PartialObjectMetadata"
    bare = await printing.get(PODS, includeObject="None")
    assert bare["rows"][0].keys() == {"cells"}
    full = await printing.get(f"{PODS}/a", includeObject="Object")
    assert full["rows"][0]["object"]["spec"]["nodeName"] == "node-1"


async def test_a_table_has_the_columns_that_a_definition_asks_for(
    api: Api, autojump_clock: MockClock
) -> None:
    api.server.create(pool("p", selector={"app": "a"}))
    table = await api.evolved(headers={"accept": TABLE}).get(POOLS)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Picker", "Age"]
    assert table["rows"][0]["cells"] == ["p", "pointsman", "0s"]


async def test_a_watch_shows_tables_too(api: Api, autojump_clock: MockClock) -> None:
    watcher = await api.evolved(headers={"accept": TABLE}).watch(PODS, timeoutSeconds=1)
    add(api, "a")
    api.server.delete("pods", "a")
    await trio.sleep(2)
    assert [event["object"]["rows"][0]["cells"][2] for event in watcher.events] == [
        "Running",
        "Terminating",
    ]
