"""Who is let in, and who they are."""

from __future__ import annotations

import pytest

from pointsman.actors.sim.kube.identity import (
    ADMIN,
    Authenticator,
    User,
    certified,
    read_user,
    service_account,
)

from .kit import PODS, Api, MakeApi

TOKEN = Authenticator({"secret": ADMIN}, anonymous=False)


async def test_nobody_in_particular_is_let_in_where_no_token_is_asked_for(api: Api) -> None:
    await api.get(PODS)
    assert api.server.requests[-1].user == "system:anonymous"


async def test_without_a_token_nobody_is_let_in_where_one_is_asked_for(make_api: MakeApi) -> None:
    api = make_api(authenticator=TOKEN)
    status = await api.refused("GET", PODS)
    assert (status["code"], status["reason"], status["message"]) == (
        401,
        "Unauthorized",
        "Unauthorized",
    )
    await api.evolved(token="secret").get(PODS)
    assert api.server.requests[-1].user == "kubernetes-admin"


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer", "Basic c2VjcmV0", "secret"])
async def test_a_wrong_token_is_worse_than_none(api: Api, header: str) -> None:
    asking = api.evolved(headers={"authorization": header})
    assert (await asking.refused("GET", PODS))["code"] == 401


async def test_tokens_can_be_exchanged_while_the_server_runs(make_api: MakeApi) -> None:
    api = make_api(authenticator=Authenticator({"old": ADMIN}, anonymous=False))
    old, new = api.evolved(token="old"), api.evolved(token="new")
    await old.get(PODS)
    api.server.authenticator.tokens.clear()
    api.server.authenticator.tokens["new"] = ADMIN
    assert (await old.refused("GET", PODS))["code"] == 401
    await new.get(PODS)


async def test_a_certificate_says_who_it_is(make_api: MakeApi) -> None:
    api = make_api(authenticator=TOKEN).evolved(peer=User.known("carol"))
    await api.get(PODS)
    assert api.server.requests[-1].user == "carol"


def test_the_subject_of_a_certificate_is_a_user_and_its_groups() -> None:
    subject = (
        (("organizationName", "one"),),
        (("organizationName", "two"),),
        (("commonName", "carol"),),
    )
    assert certified({"subject": subject}) == User.known("carol", "one", "two")
    assert certified({}) is None


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("carol", User.known("carol")),
        ("carol,one,two", User.known("carol", "one", "two")),
        ("system:serviceaccount:ns:app", service_account("ns", "app")),
    ],
)
def test_a_user_can_be_written_in_a_line(text: str, user: User) -> None:
    assert read_user(text) == user


def test_a_service_account_is_in_the_groups_of_its_namespace() -> None:
    assert service_account("ns", "app").groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:ns",
        "system:authenticated",
    )
