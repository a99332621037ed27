"""The role in our manifests: enough for everything that is followed, and no right too many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.kube.access import Access
from pointsman.actors.sim.kube.identity import service_account
from pointsman.actors.sim.kube.manifests import load_manifests

from .clusters import EVERY_KIND, POOLS, Cluster
from .conftest import Start

RBAC: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "rbac.yaml"
TOKEN: Final = Access("http://api", {"authorization": "Bearer t"})


def with_rights(
    start: Start, rules: list[dict[str, Any]] | None = None, **settings: Any
) -> Cluster:
    """A cluster in which we have the rights of our manifests, or these."""
    cluster = start("a", access=TOKEN, mode="RBAC", follow=False, **settings)
    cluster.server.authenticator.tokens["t"] = service_account("default", "pointsman")
    for manifest in load_manifests([RBAC]):
        if rules is not None and manifest.object["kind"] == "Role":
            cluster.server.create({**manifest.object, "rules": rules})
        else:
            cluster.server.create(manifest.object)
    cluster.follow()
    return cluster


def our_rules() -> list[dict[str, Any]]:
    (role,) = [m.object for m in load_manifests([RBAC]) if m.object["kind"] == "Role"]
    rules: list[dict[str, Any]] = role["rules"]
    return rules


def watched(cluster: Cluster) -> set[str]:
    return {watch.call.resource for watch in cluster.server.watches}


OLDER_KINDS: Final = [kind for kind in EVERY_KIND if kind == POOLS or kind.startswith("x-k8s")]
EVERYTHING: Final = {"pods", POOLS, "inferenceobjectives", "inferencemodelrewrites"}


async def test_our_role_is_enough(start: Start, autojump_clock: MockClock) -> None:
    cluster = with_rights(start)
    await trio.sleep(10)
    assert watched(cluster) == EVERYTHING
    assert {record.status for record in cluster.server.requests} == {200}


def fewer() -> Iterator[Any]:
    """Our rules, each time without one right."""
    rules = our_rules()
    for index, rule in enumerate(rules):
        for part in ("apiGroups", "resources", "verbs"):
            for item in rule[part]:
                less = {**rule, part: [one for one in rule[part] if one != item]}
                others = rules[:index] + rules[index + 1 :]
                yield pytest.param([*others, less], id=f"{part}-{index}-{item}")


@pytest.mark.parametrize("rules", [*fewer()])
async def test_no_right_is_too_many(
    start: Start, autojump_clock: MockClock, rules: list[dict[str, Any]]
) -> None:
    for kinds in (EVERY_KIND, OLDER_KINDS):
        cluster = with_rights(start, rules, kinds=kinds)
        await trio.sleep(10)
        if watched(cluster) != EVERYTHING:
            return
    raise AssertionError("nobody misses it")


async def test_the_role_may_be_narrowed_to_one_pool(
    start: Start, autojump_clock: MockClock
) -> None:
    rules = [
        {**rule, "resourceNames": ["p"]} if rule["resources"] == [POOLS] else rule
        for rule in our_rules()
    ]
    cluster = with_rights(start, rules)
    await trio.sleep(10)
    assert watched(cluster) == EVERYTHING
