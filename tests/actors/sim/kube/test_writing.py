"""Creating and changing objects over the API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from trio.testing import MockClock

from pointsman.actors.sim.kube.samples import objective, pod, pool, readiness, rewrite

from .kit import APPLY, JSON_PATCH, MERGE, PODS, POOLS, STRATEGIC, Api

POD: Any = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "s", "image": "x"}]}}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
OBJECTIVES = "/apis/llm-d.ai/v1alpha2/namespaces/default/inferenceobjectives"


async def created(api: Api, path: str, obj: Any, **query: object) -> Any:
    status, answer = await api.ask("POST", path, obj, **query)
    assert status == 201, answer
    return answer


async def changed(api: Api, method: str, path: str, obj: Any, **query: object) -> Any:
    status, answer = await api.ask(method, path, obj, **query)
    assert status == 200, answer
    return answer


async def test_the_server_completes_what_is_created(api: Api, autojump_clock: MockClock) -> None:
    made = await created(api, PODS, POD)
    metadata = made["metadata"]
    assert (made["kind"], made["apiVersion"]) == ("Pod", "v1")
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "2026-11-29T12:00:00Z"
    assert metadata["resourceVersion"] == str(api.server.store.revision)
    assert len(metadata["uid"]) == 36
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    assert await api.get(f"{PODS}/a") == made


async def test_a_client_cannot_create_a_pod_that_runs_already(api: Api) -> None:
    made = await created(api, PODS, pod("a", ip="10.0.0.1"))
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_name_can_be_left_to_the_server(api: Api) -> None:
    one, other = [
        await created(api, PODS, {"metadata": {"generateName": "web-"}}) for _ in range(2)
    ]
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["metadata"]["name"].startswith("web-")


async def test_what_is_there_cannot_be_created_again(api: Api) -> None:
    await created(api, PODS, POD)
    status = await api.refused("POST", PODS, POD)
    assert (status["code"], status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'pods "a" already exists'


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({}, 422),
        ({"name": "Upper"}, 422),
        ({"name": "a" * 254}, 422),
        ({"name": "a..b"}, 422),
        ({"name": "a", "labels": {"k": "v" * 64}}, 422),
        ({"name": "a", "labels": {"a/b/c": "v"}}, 422),
        ({"name": "a", "labels": {"k": 1}}, 422),
        ({"name": "a", "labels": ["k"]}, 422),
        ({"name": "a", "annotations": {"k": True}}, 422),
        ({"name": "a", "finalizers": "x"}, 422),
        ({"name": 1}, 400),
        ({"name": "a", "namespace": "other"}, 400),
        ("a", 400),
    ],
)
async def test_metadata_that_cannot_be_is_refused(api: Api, metadata: Any, code: int) -> None:
    assert (await api.refused("POST", PODS, {"metadata": metadata}))["code"] == code


async def test_labels_at_the_limit_are_taken(api: Api) -> None:
    labels = {f"{'p' * 63}.example/{'n' * 63}": "v" * 63, "e": ""}
    made = await created(api, PODS, {"metadata": {"name": "a" * 253, "labels": labels}})
    assert made["metadata"]["labels"] == labels


@pytest.mark.parametrize(
    ("body", "media", "code"),
    [
        (b"{", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"a: [", "application/yaml", 400),
        (b"{}", "text/plain", 415),
        (b"k8s\x00garbage", "application/vnd.kubernetes.protobuf", 400),
        (b'{"kind": "Service"}', "application/json", 400),
        (b'{"apiVersion": "v2"}', "application/json", 400),
    ],
)
async def test_a_body_that_is_no_such_object_is_refused(
    api: Api, body: bytes, media: str, code: int
) -> None:
    assert (await api.evolved(media=media).refused("POST", PODS, body))["code"] == code


async def test_yaml_is_read_as_json_data(api: Api) -> None:
    text = b"metadata: {name: a, annotations: {at: '2026-01-01'}}\ndata: {day: 2026-01-01, n: '1'}"
    made = await created(api.evolved(media="application/yaml"), CONFIG_MAPS, text)
    assert made["data"] == {"day": "2026-01-01", "n": "1"}


async def test_an_object_needs_its_namespace(api: Api) -> None:
    status = await api.refused("POST", PODS.replace("default", "nowhere"), POD)
    assert (status["code"], status["message"]) == (404, 'namespaces "nowhere" not found')


async def test_the_world_has_the_namespaces_it_needs(api: Api) -> None:
    api.server.create(pod("a", ip="10.0.0.1", namespace="elsewhere"))
    assert "elsewhere" in await api.names("/api/v1/namespaces")


async def test_an_update_of_an_older_version_is_a_conflict(api: Api) -> None:
    old = await created(api, PODS, POD)
    new = await changed(api, "PUT", f"{PODS}/a", old | {"spec": {"nodeName": "n"}})
    assert new["spec"]["nodeName"] == "n"
    status = await api.refused("PUT", f"{PODS}/a", old)
    assert (status["code"], status["reason"]) == (409, "Conflict")


async def test_an_update_without_a_version_wins_where_that_is_allowed(api: Api) -> None:
    await created(api, PODS, POD)
    await changed(api, "PUT", f"{PODS}/a", POD | {"spec": {"nodeName": "n"}})
    await created(api, LEASES, {"metadata": {"name": "l"}})
    status = await api.refused("PUT", f"{LEASES}/l", {"metadata": {"name": "l"}})
    assert status["details"]["causes"][0]["field"] == "metadata.resourceVersion"


async def test_an_update_is_about_the_object_of_its_path(api: Api) -> None:
    await created(api, PODS, POD)
    assert (await api.refused("PUT", f"{PODS}/b", POD))["code"] == 400
    other = {"metadata": {"name": "b"}}
    assert (await api.refused("PUT", f"{PODS}/b", other))["code"] == 404
    stranger = {"metadata": {"name": "a", "uid": "u"}}
    assert (await api.refused("PUT", f"{PODS}/a", stranger))["code"] == 409


async def test_a_dry_run_changes_nothing(api: Api) -> None:
    before = api.server.store.revision
    await created(api, PODS, POD, dryRun="All")
    assert api.server.store.revision == before
    await created(api, PODS, POD)
    before = api.server.store.revision
    patch = {"metadata": {"labels": {"a": "b"}}}
    merging = api.evolved(media=MERGE)
    dry = await changed(merging, "PATCH", f"{PODS}/a", patch, dryRun="All")
    assert dry["metadata"]["labels"] == {"a": "b"}
    await changed(api, "DELETE", f"{PODS}/a", {"dryRun": ["All"]})
    assert api.server.store.revision == before


async def test_all_four_kinds_of_patches_are_understood(api: Api) -> None:
    await created(api, PODS, POD)
    patches: list[tuple[str, object]] = [
        (MERGE, {"metadata": {"labels": {"a": "1"}}}),
        (JSON_PATCH, [{"op": "add", "path": "/metadata/labels/b", "value": "2"}]),
        (STRATEGIC, {"spec": {"containers": [{"name": "t", "image": "y"}]}}),
        (APPLY, {"metadata": {"labels": {"c": "3"}}}),
    ]
    for media, patch in patches:
        await changed(api.evolved(media=media), "PATCH", f"{PODS}/a", patch, fieldManager="me")
    got = await api.get(f"{PODS}/a")
    assert got["metadata"]["labels"] == {"a": "1", "b": "2", "c": "3"}
    assert [container["name"] for container in got["spec"]["containers"]] == ["s", "t"]


@pytest.mark.parametrize(
    ("media", "patch", "code"),
    [
        ("application/json", {}, 415),
        (MERGE, [], 400),
        (JSON_PATCH, {}, 400),
        (JSON_PATCH, [{"op": "remove", "path": "/nothing"}], 422),
        (MERGE, {"metadata": {"name": "b"}}, 400),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, 409),
        (MERGE, {"metadata": None}, 400),
        (APPLY, {"kind": "Service"}, 400),
    ],
)
async def test_a_patch_that_cannot_be_carried_out_is_refused(
    api: Api, media: str, patch: object, code: int
) -> None:
    await created(api, PODS, POD)
    patching = api.evolved(media=media)
    status = await patching.refused("PATCH", f"{PODS}/a", patch, fieldManager="me")
    assert status["code"] == code


async def test_custom_kinds_know_no_strategic_patch(api: Api) -> None:
    api.server.create(pool("p", selector={"a": "b"}))
    patching = api.evolved(media=STRATEGIC)
    assert (await patching.refused("PATCH", f"{POOLS}/p", {}))["code"] == 415


async def test_only_applying_creates_what_is_not_there(api: Api) -> None:
    text = msgspec.yaml.encode(POD)
    status = await api.evolved(media=MERGE).refused("PATCH", f"{PODS}/a", {})
    assert status["code"] == 404
    applying = api.evolved(media=APPLY)
    assert (await applying.refused("PATCH", f"{PODS}/a", text))["code"] == 422
    code, made = await applying.ask("PATCH", f"{PODS}/a", text, fieldManager="me")
    assert (code, made["status"]["phase"]) == (201, "Pending")
    code, _ = await applying.ask("PATCH", f"{PODS}/a", text, fieldManager="me")
    assert code == 200


async def test_status_and_the_rest_are_written_apart(api: Api) -> None:
    api.server.create(pool("p", selector={"a": "b"}))
    merging = api.evolved(media=MERGE)
    parents = [{"parentRef": {"name": "gw"}}]
    both: Any = {"spec": {"appProtocol": "kubernetes.io/h2c"}, "status": {"parents": parents}}
    plain = await changed(merging, "PATCH", f"{POOLS}/p", both)
    assert (plain["spec"]["appProtocol"], "status" in plain) == ("kubernetes.io/h2c", False)
    both["spec"]["appProtocol"] = "http"
    both["metadata"] = {"labels": {"x": "y"}}
    status = await changed(merging, "PATCH", f"{POOLS}/p/status", both)
    assert status["spec"]["appProtocol"] == "kubernetes.io/h2c"
    assert status["status"]["parents"][0]["parentRef"]["kind"] == "Gateway"
    assert "labels" not in status["metadata"]


async def test_the_status_of_pods_takes_labels_too(api: Api) -> None:
    await created(api, PODS, POD)
    patch = readiness(True) | {"metadata": {"labels": {"x": "y"}}, "spec": {"nodeName": "n"}}
    got = await changed(api.evolved(media=MERGE), "PATCH", f"{PODS}/a/status", patch)
    assert got["metadata"]["labels"] == {"x": "y"}
    assert got["status"]["conditions"][1]["type"] == "Ready"
    assert "nodeName" not in got["spec"]


async def test_generations_count_what_is_wanted(api: Api) -> None:
    api.server.create(pool("p", selector={"a": "b"}))
    merging = api.evolved(media=MERGE)
    generations: list[int] = []
    for path, patch in [
        ("", {"metadata": {"labels": {"x": "y"}}}),
        ("/status", {"status": {"parents": [{"parentRef": {"name": "gw"}}]}}),
        ("", {"spec": {"targetPorts": [{"number": 1}]}}),
        ("", {"spec": {"targetPorts": [{"number": 1}]}}),
    ]:
        got = await changed(merging, "PATCH", f"{POOLS}/p{path}", patch)
        generations.append(got["metadata"]["generation"])
    assert generations == [1, 1, 2, 2]


async def test_the_schema_fills_in_and_drops(api: Api) -> None:
    obj = pool("p", selector={"a": "b"})
    obj["spec"]["odd"] = 1
    made = await created(api, POOLS, obj)
    assert made["spec"] == {
        "selector": {"matchLabels": {"a": "b"}},
        "targetPorts": [{"number": 8000}],
        "appProtocol": "http",
        "endpointPickerRef": {
            "group": "",
            "kind": "Service",
            "name": "pointsman",
            "port": {"number": 9002},
            "failureMode": "FailClose",
        },
    }


async def test_unknown_fields_are_refused_on_demand(api: Api) -> None:
    obj = pool("p", selector={"a": "b"})
    obj["spec"]["odd"] = 1
    status = await api.refused("POST", POOLS, obj, fieldValidation="Strict")
    assert status["code"] == 400
    assert 'unknown field "spec.odd"' in status["message"]


async def test_what_breaks_the_schema_is_unprocessable(api: Api) -> None:
    obj = pool("p", selector={}, ports=(0, 70000))
    status = await api.refused("POST", POOLS, obj)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {
        "spec.selector.matchLabels",
        "spec.targetPorts[0].number",
        "spec.targetPorts[1].number",
    }
    assert status["message"].startswith(
        'InferencePool.inference.networking.k8s.io "p" is invalid: ['
    )


async def test_a_pool_lists_a_port_once(api: Api) -> None:
    await created(api, POOLS, pool("good", selector={"a": "b"}, ports=(8000, 8001)))
    status = await api.refused("POST", POOLS, pool("p", selector={"a": "b"}, ports=(8000, 8000)))
    assert "a port number may be listed only once" in status["message"]


@pytest.mark.parametrize(
    ("picker", "accepted"),
    [
        (None, True),
        ({"name": "p"}, False),
        ({"name": "p", "kind": "Service"}, False),
        ({"name": "p", "port": {"number": 9002}}, True),
        ({"name": "p", "kind": "Deployment"}, True),
        ({"port": {"number": 9002}}, False),
        ({"name": "p", "port": {"number": 9002}, "failureMode": "FailSoft"}, False),
    ],
)
async def test_a_picker_that_is_a_service_needs_a_port(
    api: Api, picker: Any, accepted: bool
) -> None:
    obj = pool("p", selector={"a": "b"})
    obj["spec"]["endpointPickerRef"] = picker
    if picker is None:
        del obj["spec"]["endpointPickerRef"]
    status, _ = await api.ask("POST", POOLS, obj)
    assert status == (201 if accepted else 422)


@pytest.mark.parametrize("group", ["llm-d.ai", "inference.networking.x-k8s.io"])
async def test_objectives_and_rewrites_are_in_two_groups(api: Api, group: str) -> None:
    place = f"/apis/{group}/v1alpha2/namespaces/default"
    made = await created(
        api, f"{place}/inferenceobjectives", objective("o", priority=-1, pool="p", group=group)
    )
    assert made["spec"]["poolRef"]["group"] == "inference.networking.k8s.io"
    targets: dict[str, int | None] = {"x": 1, "y": 1_000_000}
    obj = rewrite("r", pool="p", models=["m"], targets=targets, group=group)
    made = await created(api, f"{place}/inferencemodelrewrites", obj)
    assert made["spec"]["rules"][0]["matches"] == [{"model": {"type": "Exact", "value": "m"}}]


@pytest.mark.parametrize("targets", [{}, {"x": 0}, {"x": 1_000_001}, {"x": 1, "y": None}])
async def test_a_rewrite_has_weights_for_all_targets_or_for_none(
    api: Api, targets: dict[str, int | None]
) -> None:
    path = "/apis/llm-d.ai/v1alpha2/namespaces/default/inferencemodelrewrites"
    obj = rewrite("r", pool="p", targets=targets)
    assert (await api.refused("POST", path, obj))["code"] == 422
    await created(api, path, rewrite("r", pool="p", targets={"x": None, "y": None}))


async def test_a_priority_is_a_number_of_32_bits(api: Api) -> None:
    await created(api, OBJECTIVES, objective("o", priority=None, pool="p"))
    too_big = objective("big", priority=2**31, pool="p")
    assert (await api.refused("POST", OBJECTIVES, too_big))["code"] == 422


async def test_the_world_writes_status_and_age_as_it_likes(api: Api) -> None:
    api.server.create(rewrite("r", pool="p", targets={"x": None}, created="2020-01-01T00:00:00Z"))
    got = api.server.get("inferencemodelrewrites.llm-d.ai", "r")
    assert got["metadata"]["creationTimestamp"] == "2020-01-01T00:00:00Z"
    api.server.create(pod("a", ip="10.0.0.1", uid="u-1", ready=False))
    api.server.patch("pods", "a", readiness(True))
    got = await api.get(f"{PODS}/a")
    assert got["metadata"]["uid"] == "u-1"
    assert got["status"]["conditions"][-1]["status"] == "True"
    got["status"]["podIP"] = "10.0.0.2"
    assert api.server.update(got)["status"]["podIP"] == "10.0.0.2"
