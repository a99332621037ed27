"""Definitions of custom kinds, as they come, change and go."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.actors.sim.kube.objects import clone
from pointsman.actors.sim.kube.samples import objective, pool

from .kit import MERGE, POOLS, Api, definitions

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/things"


def definition(**spec: Any) -> Any:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version | {"schema": {"openAPIV3Schema": schema}}],
            **spec,
        },
    }


async def test_an_absent_kind_appears_with_its_definition_and_goes_with_it(api: Api) -> None:
    assert (await api.response("GET", THINGS)).status == 404
    code, made = await api.ask("POST", DEFINITIONS, definition())
    assert code == 201
    assert (await api.get(THINGS))["kind"] == "ThingList"
    code, _ = await api.ask("POST", THINGS, {"metadata": {"name": "t"}, "any": [1]})
    assert code == 201
    await api.ask("DELETE", f"{DEFINITIONS}/{made['metadata']['name']}")
    assert (await api.response("GET", THINGS)).body == b"404 page not found\n"
    await api.ask("POST", DEFINITIONS, definition())
    assert await api.names(THINGS) == []


async def test_an_accepted_definition_says_so(api: Api) -> None:
    _, made = await api.ask("POST", DEFINITIONS, definition())
    conditions = {c["type"]: c["status"] for c in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert made["status"]["acceptedNames"]["listKind"] == "ThingList"
    assert made["status"]["storedVersions"] == ["v1"]


async def test_a_changed_schema_counts_from_then_on(api: Api) -> None:
    made = api.server.create(definition())
    await api.ask("POST", THINGS, {"metadata": {"name": "old"}, "size": "big"})
    versions = clone(made["spec"]["versions"])
    versions[0]["schema"]["openAPIV3Schema"]["properties"] = {"size": {"type": "integer"}}
    path = f"{DEFINITIONS}/{made['metadata']['name']}"
    patch = {"spec": {"versions": versions}}
    assert (await api.evolved(media=MERGE).ask("PATCH", path, patch))[0] == 200
    assert await api.names(THINGS) == ["old"]
    status = await api.refused("POST", THINGS, {"metadata": {"name": "new"}, "size": "big"})
    assert status["code"] == 422


async def test_versions_of_a_kind_are_views_of_the_same_objects(api: Api) -> None:
    first = definition()["spec"]["versions"][0]
    second = first | {"name": "v2", "storage": False}
    unserved = first | {"name": "v3", "storage": False, "served": False}
    api.server.create(definition(versions=[first, second, unserved]))
    await api.ask("POST", THINGS, {"metadata": {"name": "t"}})
    later = THINGS.replace("v1", "v2")
    assert (await api.get(f"{later}/t"))["apiVersion"] == "example.com/v2"
    assert (await api.get(later))["items"][0]["apiVersion"] == "example.com/v2"
    got = await api.get(f"{later}/t")
    code, _ = await api.ask("PUT", f"{later}/t", got | {"size": 1})
    assert code == 200
    assert (await api.get(f"{THINGS}/t"))["size"] == 1
    assert (await api.response("GET", THINGS.replace("v1", "v3"))).status == 404


async def test_a_field_of_a_custom_kind_can_be_made_selectable(api: Api) -> None:
    version = definition()["spec"]["versions"][0] | {"selectableFields": [{"jsonPath": ".size"}]}
    api.server.create(definition(versions=[version]))
    for name, size in (("a", "big"), ("b", "small")):
        await api.ask("POST", THINGS, {"metadata": {"name": name}, "size": size})
    assert await api.names(THINGS, fieldSelector="size=big") == ["a"]


VERSION = definition()["spec"]["versions"][0]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"group": "Example"}, "spec.group"),
        ({"group": None}, "spec.group"),
        ({"scope": "World"}, "spec.scope"),
        ({"names": {"plural": "things"}}, "spec.names.kind"),
        ({"names": {"plural": "other", "kind": "Thing"}}, "metadata.name"),
        ({"versions": []}, "spec.versions"),
        ({"versions": [VERSION | {"storage": False}]}, "spec.versions"),
        ({"versions": [VERSION | {"name": 1}]}, "spec.versions[0].name"),
        ({"versions": [VERSION | {"schema": None}]}, "spec.versions[0].schema.openAPIV3Schema"),
    ],
)
async def test_a_definition_that_cannot_be_is_refused(api: Api, spec: Any, field: str) -> None:
    status = await api.refused("POST", DEFINITIONS, definition(**spec))
    assert status["code"] == 422
    assert field in {cause["field"] for cause in status["details"]["causes"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "thing"},
        {"properties": []},
        {"properties": {"a": 1}},
        {"properties": {"a": {"pattern": "("}}},
        {"items": {"type": 1}},
        {"additionalProperties": {"properties": 1}},
    ],
)
async def test_a_schema_that_is_none_is_refused(api: Api, schema: Any) -> None:
    versions = [VERSION | {"schema": {"openAPIV3Schema": schema}}]
    assert (await api.refused("POST", DEFINITIONS, definition(versions=versions)))["code"] == 422


def test_every_definition_that_is_shipped_is_accepted_as_it_is() -> None:
    for one in definitions():
        for version in one["spec"]["versions"]:
            assert {"apiVersion", "kind", "metadata", "spec"} <= (
                version["schema"]["openAPIV3Schema"]["properties"].keys()
            )


async def test_both_groups_of_an_objective_are_apart(api: Api) -> None:
    api.server.create(objective("o", priority=1, pool="p"))
    older = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/default/inferenceobjectives"
    assert await api.names(older) == []


async def test_a_pool_needs_its_selector_and_its_ports(api: Api) -> None:
    obj = pool("p", selector={"a": "b"})
    for field in ("selector", "targetPorts"):
        spec = {name: value for name, value in obj["spec"].items() if name != field}
        status = await api.refused("POST", POOLS, obj | {"spec": spec})
        assert status["details"]["causes"][0]["field"] == f"spec.{field}"
