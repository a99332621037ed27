"""Rights, from the roles and bindings in the store; and the roles that Pointsman ships."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from trio.testing import wait_all_tasks_blocked

from pointsman.actors.sim.kube.identity import ADMIN, Authenticator, User, service_account
from pointsman.actors.sim.kube.kinds import ALL_VERBS
from pointsman.actors.sim.kube.rbac import Attempt, Authorizer
from pointsman.actors.sim.kube.samples import pool

from .kit import DEPLOY, MERGE, PODS, POOLS, Api, MakeApi

API = "rbac.authorization.k8s.io"
CAROL = User.known("carol", "staff")


@pytest.fixture
def rbac(make_api: MakeApi) -> Api:
    """A server on which Carol has no rights yet."""
    tokens = {"carol": CAROL, "admin": ADMIN, "app": service_account("default", "app")}
    return make_api("RBAC", Authenticator(tokens)).evolved(token="carol")


def role(name: str, *rules: Any, namespace: str = "") -> Any:
    kind, metadata = "ClusterRole", {"name": name}
    if namespace:
        kind, metadata = "Role", {"name": name, "namespace": namespace}
    return {"apiVersion": f"{API}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}


def binding(granted: Any, subject: Any, namespace: str = "") -> Any:
    name = granted["metadata"]["name"]
    return {
        "apiVersion": f"{API}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"apiGroup": API, "kind": granted["kind"], "name": name},
        "subjects": [subject],
    }


def rule(verbs: str, resources: str = "pods", group: str = "", **more: Any) -> Any:
    return {
        "apiGroups": [group],
        "resources": resources.split(),
        "verbs": verbs.split(),
        **more,
    }


AS_CAROL: Any = {"kind": "User", "apiGroup": API, "name": "carol"}


def grant(api: Api, *rules: Any, namespace: str = "default", subject: Any = AS_CAROL) -> None:
    granted = role("granted", *rules, namespace=namespace)
    api.server.create(granted)
    api.server.create(binding(granted, subject, namespace))


async def code(api: Api, path: str, method: str = "GET", body: Any = None, **query: object) -> int:
    response = await api.response(method, path, body, **query)
    return response.status


async def test_what_no_rule_allows_is_forbidden_in_the_known_words(rbac: Api) -> None:
    status = await rbac.refused("GET", PODS)
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'pods is forbidden: User "carol" cannot list resource "pods" in API group "" in the '
        'namespace "default"'
    )
    assert status["details"]["kind"] == "pods"
    status = await rbac.refused("DELETE", f"{POOLS}/p")
    assert status["message"] == (
        'inferencepools.inference.networking.k8s.io "p" is forbidden: User "carol" cannot delete '
        'resource "inferencepools" in API group "inference.networking.k8s.io" in the namespace '
        '"default"'
    )
    status = await rbac.refused("PATCH", "/api/v1/nodes/n/status")
    assert status["message"].endswith(
        'cannot patch resource "nodes/status" in API group "" at the cluster scope'
    )
    status = await rbac.refused("GET", "/metrics")
    assert status["message"] == 'forbidden: User "carol" cannot get path "/metrics"'


async def test_nobody_in_particular_may_see_health_and_nothing_else(rbac: Api) -> None:
    anybody = rbac.evolved(token="")
    assert [await code(anybody, path) for path in ("/healthz", "/version", "/apis", PODS)] == [
        200,
        200,
        403,
        403,
    ]


async def test_whoever_is_known_may_look_around(rbac: Api) -> None:
    for path in ("/apis", "/api/v1", "/openapi/v3"):
        assert await code(rbac, path) == 200


async def test_masters_may_do_everything(rbac: Api) -> None:
    master = rbac.evolved(token="admin")
    assert await code(master, "/api/v1/secrets") == 200


async def test_a_role_counts_in_its_namespace(rbac: Api) -> None:
    grant(rbac, rule("list watch"))
    assert await code(rbac, PODS) == 200
    assert await code(rbac, PODS, watch=1) == 200
    assert await code(rbac, f"{PODS}/a") == 403
    assert await code(rbac, "/api/v1/pods") == 403
    assert await code(rbac, PODS.replace("default", "other")) == 403


async def test_a_cluster_role_counts_where_it_is_bound(rbac: Api) -> None:
    granted = role("reader", rule("list"))
    rbac.server.create(granted)
    rbac.server.create(binding(granted, AS_CAROL, "default"))
    assert await code(rbac, PODS) == 200
    assert await code(rbac, "/api/v1/pods") == 403
    rbac.server.create(binding(granted, AS_CAROL))
    assert await code(rbac, "/api/v1/pods") == 200


@pytest.mark.parametrize(
    ("subject", "allowed"),
    [
        ({"kind": "Group", "name": "staff"}, True),
        ({"kind": "Group", "name": "system:authenticated"}, True),
        ({"kind": "Group", "name": "carol"}, False),
        ({"kind": "User", "name": "dave"}, False),
        ({"kind": "ServiceAccount", "name": "carol", "namespace": "default"}, False),
        ({"kind": "Robot", "name": "carol"}, False),
    ],
)
async def test_a_binding_is_for_its_subjects(rbac: Api, subject: Any, allowed: bool) -> None:
    grant(rbac, rule("list"), subject=subject)
    assert (await code(rbac, PODS) == 200) is allowed


async def test_a_service_account_is_a_subject_of_its_namespace(rbac: Api) -> None:
    grant(rbac, rule("list"), subject={"kind": "ServiceAccount", "name": "app"})
    assert await code(rbac.evolved(token="app"), PODS) == 200


async def test_rights_end_with_their_binding(rbac: Api) -> None:
    grant(rbac, rule("list"))
    rbac.server.delete("rolebindings", "granted")
    assert await code(rbac, PODS) == 403


async def test_a_binding_to_a_role_that_is_not_there_allows_nothing(rbac: Api) -> None:
    rbac.server.create(binding(role("missing", namespace="default"), AS_CAROL, "default"))
    assert await code(rbac, PODS) == 403


@pytest.mark.parametrize("everything", ["verbs", "resources", "apiGroups"])
async def test_a_star_stands_for_everything(rbac: Api, everything: str) -> None:
    grant(rbac, rule("list", "inferencepools", "inference.networking.k8s.io") | {everything: ["*"]})
    assert await code(rbac, POOLS) == 200


async def test_a_subresource_is_granted_apart(rbac: Api) -> None:
    grant(rbac, rule("update", "pods/status"), rule("patch", "*/status"))
    status = f"{PODS}/a/status"
    assert await code(rbac, status, "PUT", {"metadata": {"name": "a"}}) == 404
    assert await code(rbac.evolved(media=MERGE), status, "PATCH", {}) == 404
    assert await code(rbac, f"{PODS}/a", "PUT", {}) == 403


async def test_names_need_a_field_selector_to_be_listed(rbac: Api) -> None:
    rbac.server.create(pool("mine", selector={"a": "b"}))
    names = {"resourceNames": ["mine"]}
    grant(rbac, rule("get list watch", "inferencepools", "inference.networking.k8s.io", **names))
    assert await code(rbac, POOLS) == 403
    assert await code(rbac, POOLS, watch=1) == 403
    selected = {"fieldSelector": "metadata.name=mine"}
    assert await code(rbac, POOLS, **selected) == 200
    assert await code(rbac, POOLS, watch=1, **selected) == 200
    assert await code(rbac, f"{POOLS}/mine") == 200
    assert await code(rbac, f"{POOLS}/other") == 403
    assert await code(rbac, POOLS, fieldSelector="metadata.name=other") == 403


async def test_paths_are_granted_by_cluster_roles(rbac: Api) -> None:
    granted = role("scraper", {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]})
    rbac.server.create(granted)
    rbac.server.create(binding(granted, AS_CAROL))
    found = [await code(rbac, path) for path in ("/metrics", "/logs/a", "/metrics/a", "/debug")]
    assert found == [404, 404, 403, 403]


POINTSMAN = service_account("default", "pointsman")
NEEDED = [
    ("", "pods"),
    ("inference.networking.k8s.io", "inferencepools"),
    ("llm-d.ai", "inferenceobjectives"),
    ("llm-d.ai", "inferencemodelrewrites"),
    ("inference.networking.x-k8s.io", "inferenceobjectives"),
    ("inference.networking.x-k8s.io", "inferencemodelrewrites"),
]


def shipped() -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()))


@pytest.fixture
def pointsman(make_api: MakeApi) -> Api:
    """A server with the roles that Pointsman ships, asked by Pointsman."""
    api = make_api("RBAC", Authenticator({"pod": POINTSMAN})).evolved(token="pod")
    for obj in shipped():
        api.server.create(obj)
    return api


async def test_pointsman_may_list_and_watch_what_it_needs(pointsman: Api) -> None:
    for group, plural in NEEDED:
        kind = pointsman.server.store.kinds.named(f"{plural}.{group}" if group else plural)
        assert kind is not None
        place = f"/apis/{kind.api_version}" if group else "/api/v1"
        path = f"{place}/namespaces/default/{plural}"
        await pointsman.get(path)
        watcher = await pointsman.watch(path)
        await wait_all_tasks_blocked()
        assert watcher.events == []


def attempts(api: Api) -> Iterator[Attempt]:
    for kind in api.server.store.kinds:
        for verb in ALL_VERBS:
            for namespace in ("default", "other", ""):
                yield Attempt(
                    user=POINTSMAN,
                    verb=verb,
                    group=kind.group,
                    resource=kind.plural,
                    namespace=namespace if kind.namespaced else "",
                )


def allowed(api: Api) -> set[tuple[str, str, str, str]]:
    authorizer = Authorizer(api.server.store, "RBAC")
    return {
        (attempt.namespace, attempt.group, attempt.resource, attempt.verb)
        for attempt in attempts(api)
        if authorizer.reason(attempt) and not attempt.resource.startswith("selfsubject")
    }


async def test_pointsman_may_do_nothing_else(pointsman: Api) -> None:
    assert allowed(pointsman) == {
        ("default", group, plural, verb) for group, plural in NEEDED for verb in ("list", "watch")
    }
