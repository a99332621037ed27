"""Questions about tokens and rights."""

from __future__ import annotations

from typing import Any

import pytest

from pointsman.actors.sim.kube.identity import ADMIN, Authenticator, User, service_account

from .kit import Api, MakeApi

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SELF_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LOCAL_ACCESS = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
LIST_PODS = {"verb": "list", "resource": "pods", "namespace": "default"}


@pytest.fixture
def admin(make_api: MakeApi) -> Api:
    tokens = {"admin": ADMIN, "carol": User.known("carol"), "app": service_account("ns", "app")}
    return make_api("RBAC", Authenticator(tokens)).evolved(token="admin")


async def review(api: Api, path: str, spec: Any) -> Any:
    code, answer = await api.ask("POST", path, {"spec": spec})
    assert code == 201, answer
    return answer["status"]


async def test_a_token_is_somebody_or_not(admin: Api) -> None:
    status = await review(admin, TOKENS, {"token": "app", "audiences": ["api"]})
    assert status["authenticated"]
    assert status["user"]["username"] == "system:serviceaccount:ns:app"
    assert "system:serviceaccounts" in status["user"]["groups"]
    assert status["audiences"] == ["api"]
    for spec in ({"token": "wrong"}, {"token": ""}, {}):
        status = await review(admin, TOKENS, spec)
        assert not status["authenticated"]
        assert status["error"]


async def test_a_review_is_not_kept(admin: Api) -> None:
    before = admin.server.store.revision
    await review(admin, TOKENS, {"token": "app"})
    assert admin.server.store.revision == before


async def test_rights_can_be_asked_for(admin: Api) -> None:
    asked = {"user": "carol", "resourceAttributes": LIST_PODS}
    assert await review(admin, ACCESS, asked) == {"allowed": False}
    mighty = {"user": "carol", "groups": ["system:masters"], "resourceAttributes": LIST_PODS}
    assert (await review(admin, ACCESS, mighty))["allowed"]
    local = {"user": "carol", "resourceAttributes": {"verb": "list", "resource": "pods"}}
    assert await review(admin, LOCAL_ACCESS, local) == {"allowed": False}


async def test_rights_on_paths_can_be_asked_for(admin: Api) -> None:
    path = {"path": "/metrics", "verb": "get"}
    assert not (await review(admin, ACCESS, {"user": "carol", "nonResourceAttributes": path}))[
        "allowed"
    ]
    path = {"path": "/version", "verb": "get"}
    spec = {"user": "carol", "groups": ["system:authenticated"], "nonResourceAttributes": path}
    assert "system:discovery" in (await review(admin, ACCESS, spec))["reason"]


async def test_everybody_may_ask_about_themselves(admin: Api) -> None:
    carol = admin.evolved(token="carol")
    asked = {"resourceAttributes": LIST_PODS}
    assert await review(carol, SELF_ACCESS, asked) == {"allowed": False}
    assert (await review(admin, SELF_ACCESS, asked))["allowed"]
    who = await review(carol, SELF, {})
    assert who["userInfo"] == {"username": "carol", "groups": ["system:authenticated"]}
    assert (await carol.refused("POST", ACCESS, {"spec": {"user": "x"}}))["code"] == 403


@pytest.mark.parametrize(
    "spec", [{}, {"user": "carol"}, {"resourceAttributes": LIST_PODS}, "carol"]
)
async def test_a_review_that_asks_nothing_is_a_bad_request(admin: Api, spec: Any) -> None:
    assert (await admin.refused("POST", ACCESS, {"spec": spec}))["code"] == 400
