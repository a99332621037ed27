"""What the server tells of itself."""

from __future__ import annotations

from typing import Any

import pytest

from .kit import Api


async def plural_names(api: Api, path: str) -> dict[str, Any]:
    return {entry["name"]: entry for entry in (await api.get(path))["resources"]}


async def test_the_core_group_is_discovered(api: Api) -> None:
    versions = await api.get("/api")
    assert (versions["kind"], versions["versions"]) == ("APIVersions", ["v1"])
    assert versions["serverAddressByClientCIDRs"][0]["serverAddress"] == "kube"
    resources = await plural_names(api, "/api/v1")
    assert resources["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "shortNames": ["po"],
        "verbs": [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
    }
    assert resources["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert not resources["namespaces"]["namespaced"]


async def test_other_groups_are_discovered(api: Api) -> None:
    groups = {group["name"]: group for group in (await api.get("/apis"))["groups"]}
    assert "coordination.k8s.io" in groups
    group = await api.get("/apis/llm-d.ai")
    assert group["kind"] == "APIGroup"
    assert group["preferredVersion"]["groupVersion"] == "llm-d.ai/v1alpha2"
    listed = await api.get("/apis/llm-d.ai/v1alpha2")
    assert listed["groupVersion"] == "llm-d.ai/v1alpha2"
    assert {entry["name"] for entry in listed["resources"]} == {
        "inferenceobjectives",
        "inferenceobjectives/status",
        "inferencemodelrewrites",
        "inferencemodelrewrites/status",
    }


async def test_a_kind_is_discovered_as_long_as_it_is_defined(api: Api) -> None:
    name = "inferencepools.inference.networking.k8s.io"
    api.server.delete("customresourcedefinitions", name)
    assert (await api.response("GET", "/apis/inference.networking.k8s.io/v1")).status == 404
    assert (await api.response("GET", "/apis/inference.networking.k8s.io")).status == 404


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/readyz/etcd"])
async def test_the_server_is_well(api: Api, path: str) -> None:
    response = await api.response("GET", path)
    assert (response.status, response.body) == (200, b"ok")


async def test_the_server_has_a_version_and_a_front_page(api: Api) -> None:
    assert (await api.get("/version"))["major"] == "1"
    assert "/apis" in (await api.get("/"))["paths"]


async def test_openapi_says_that_the_server_validates(api: Api) -> None:
    assert (await api.get("/openapi/v2"))["swagger"] == "2.0"
    places = (await api.get("/openapi/v3"))["paths"]
    for place in ("api/v1", "apis/inference.networking.k8s.io/v1"):
        document = await api.get(places[place]["serverRelativeURL"])
        for path in document["paths"].values():
            named = {parameter["name"] for parameter in path["patch"]["parameters"]}
            assert "fieldValidation" in named
            assert "kind" in path["patch"]["x-kubernetes-group-version-kind"]


@pytest.mark.parametrize("path", ["/openapi/v4", "/openapi/v3/api/v9", "/apis/nobody", "/api/v9"])
async def test_pages_that_there_are_not(api: Api, path: str) -> None:
    assert (await api.response("GET", path)).status == 404
