"""The whole of Kubernetes discovery, from the API server to the datastore.

Tests named k_... and p_... are the field reports of those numbers.
"""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.kube.discovery import PoolSettings, SelectorSettings
from pointsman.actors.sim.kube.samples import objective, pod, pool, readiness, rewrite
from pointsman.actors.sim.kube.store import Deletion
from pointsman.kernel.model import POD_UPDATED
from pointsman.kernel.pool import Objective, RewriteRule, RewriteTarget

from .clusters import OBJECTIVES, POOLS, REWRITES, X, Y
from .conftest import Start

OLDER = "inference.networking.x-k8s.io"
A = {"a-rank-0": "10.0.0.1:8000"}
B = {"b-rank-0": "10.0.0.2:8000"}


async def test_ready_pods_of_the_pool_become_endpoints(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", "b")
    cluster.server.create(pod("c", ip="10.0.0.3", labels=X, ready=False))
    cluster.server.create(pod("d", ip="10.0.0.4", labels=Y))
    assert await cluster.settled() == A | B


async def test_a_pool_is_known_with_its_selector_and_ports(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start()
    await cluster.settled()
    found = cluster.store.snapshot.pool
    assert found is not None
    assert (found.namespace, found.name, found.selector) == ("default", "p", X)
    assert (found.ports, found.app_protocol) == ((8000,), "http")


async def test_only_the_pool_of_that_name_counts(start: Start, autojump_clock: MockClock) -> None:
    cluster = start("a")
    cluster.server.create(pool("q", selector=Y))
    cluster.server.create(pod("b", ip="10.0.0.2", labels=Y))
    assert await cluster.settled() == A


async def test_a_pool_may_be_of_another_group(start: Start, autojump_clock: MockClock) -> None:
    settings = PoolSettings(namespace="default", name="p", group="example.test")
    cluster = start("a", settings=settings)
    await cluster.settled()
    assert any(r.path.startswith("/apis/example.test/v1/") for r in cluster.server.requests)
    assert not cluster.discovery.synced.value


async def test_k_01_a_pod_deleted_while_the_watch_was_down_is_gone(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", "b")
    await cluster.settled()
    cluster.fail("drop", count=5)
    cluster.server.faults.disconnect()
    cluster.server.delete("pods", "b", Deletion(grace=0))
    cluster.server.compact()
    assert await cluster.settled(60) == A


async def test_k_02_an_expired_version_leads_to_a_list(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    await cluster.settled()
    lists = cluster.asked("list", "pods")
    cluster.fail("expire", resource="pods", count=1)
    cluster.server.create(pod("b", ip="10.0.0.2", labels=X))
    assert await cluster.settled() == A | B
    assert cluster.asked("list", "pods") == lists + 1


async def test_k_03_a_terminating_pod_is_out_at_once(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", "b")
    await cluster.settled()
    cluster.server.delete("pods", "b", Deletion(grace=3600))
    assert await cluster.settled(0.1) == A
    assert cluster.server.get("pods", "b")["metadata"]["deletionTimestamp"]


async def test_k_03_a_pod_that_is_over_is_out(start: Start, autojump_clock: MockClock) -> None:
    cluster = start("a", "b")
    await cluster.settled()
    cluster.server.patch("pods", "b", {"status": {"phase": "Failed"}})
    assert await cluster.settled(0.1) == A


async def test_k_04_readiness_is_followed(start: Start, autojump_clock: MockClock) -> None:
    cluster = start("a", "b")
    await cluster.settled()
    seen: list[bool] = []
    for ready in (False, True):
        cluster.server.patch("pods", "b", readiness(ready))
        seen.append("b-rank-0" in await cluster.settled(0.1))
    assert seen == [False, True]


async def test_k_04_a_pod_whose_label_changes_is_out(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", "b")
    await cluster.settled()
    cluster.server.patch("pods", "b", {"metadata": {"labels": Y}})
    assert await cluster.settled(0.1) == A


async def test_k_04_another_selector_makes_another_set(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.server.create(pod("b", ip="10.0.0.2", labels=Y))
    await cluster.settled()
    cluster.change_pool(Y)
    assert await cluster.settled() == B


async def test_the_old_set_serves_until_the_new_one_is_known(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.server.create(pod("b", ip="10.0.0.2", labels=Y))
    await cluster.settled()
    cluster.fail("status", verb="list", resource="pods", status=503, count=5)
    cluster.change_pool(Y)
    assert await cluster.settled(1) == A
    cluster.server.create(pod("c", ip="10.0.0.3", labels=X))
    assert set(await cluster.settled(0.1)) == {"a-rank-0", "c-rank-0"}
    assert cluster.discovery.synced.value
    assert await cluster.settled(60) == B
    assert len([w for w in cluster.server.watches if w.call.resource == "pods"]) == 1


async def test_a_selector_that_is_changed_back_needs_no_new_list(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    await cluster.settled()
    cluster.fail("status", verb="list", resource="pods", status=503)
    for selector in (Y, X):
        cluster.change_pool(selector)
        await cluster.settled(1)
    cluster.server.create(pod("b", ip="10.0.0.2", labels=X))
    assert await cluster.settled() == A | B


async def test_a_selector_that_changes_twice_ends_with_the_last(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.server.create(pod("b", ip="10.0.0.2", labels=Y))
    cluster.server.create(pod("c", ip="10.0.0.3", labels={"app": "z"}))
    await cluster.settled()
    cluster.fail("delay", verb="list", resource="pods", seconds=3, count=1)
    cluster.change_pool({"app": "z"})
    await cluster.settled(1)
    cluster.change_pool(Y)
    assert await cluster.settled(60) == B


async def test_ports_may_change_while_another_selector_is_on_its_way(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.server.create(pod("b", ip="10.0.0.2", labels=Y))
    await cluster.settled()
    cluster.fail("delay", verb="list", resource="pods", seconds=3, count=1)
    cluster.change_pool(Y)
    await cluster.settled(1)
    cluster.change_pool(Y, ports=(9000,))
    assert await cluster.settled(1) == A
    assert await cluster.settled(60) == {"b-rank-0": "10.0.0.2:9000"}


async def test_k_05_an_event_waits_for_no_pod(start: Start, autojump_clock: MockClock) -> None:
    cluster = start("a")
    await cluster.settled()
    cluster.server.create(pod("c", ip="10.0.0.3", labels=X))
    cluster.server.delete("pods", "c", Deletion(grace=0))
    assert await cluster.settled(0.1) == A


async def test_k_06_fewer_ports_are_fewer_endpoints(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.change_pool(X, ports=(8000, 8001))
    assert set(await cluster.settled()) == {"a-rank-0", "a-rank-1"}
    cluster.change_pool(X, ports=(8000,))
    assert await cluster.settled(0.1) == A


async def test_k_06_m_07_another_port_is_another_identity(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    await cluster.settled()
    (before,) = cluster.store.snapshot.endpoints
    cluster.change_pool(X, ports=(9000,))
    assert await cluster.settled(0.1) == {"a-rank-0": "10.0.0.1:9000"}
    (after,) = cluster.store.snapshot.endpoints
    assert after.identity is not before.identity


async def test_k_07_a_pod_without_an_active_port_is_named(
    start: Start, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = start("a")
    cluster.server.create(
        pod("b", ip="10.0.0.2", labels=X, annotations={"llm-d.ai/active-ports": "9"})
    )
    assert await cluster.settled() == A
    (named,) = cluster.discovery.skipped()["pods"]
    assert named.startswith("b: llm-d.ai/active-ports is '9'")
    assert len([r for r in caplog.records if "active-ports" in r.message]) == 1


async def test_k_08_k_13_a_pod_recreated_at_once_is_a_new_one(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start()
    cluster.server.create(pod("s-0", ip="10.0.0.5", labels=X, uid="u1"))
    await cluster.settled()
    (before,) = cluster.store.snapshot.endpoints
    cluster.server.delete("pods", "s-0", Deletion(grace=0))
    cluster.server.create(pod("s-0", ip="10.0.0.9", labels=X, uid="u2"))
    assert await cluster.settled(0.1) == {"s-0-rank-0": "10.0.0.9:8000"}
    (after,) = cluster.store.snapshot.endpoints
    assert after.identity is not before.identity


async def test_k_09_another_address_is_told_once_and_in_place(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    await cluster.settled()
    (before,) = cluster.store.snapshot.endpoints
    updated = cluster.store.topics.topic(POD_UPDATED.name).subscribe("test", capacity=99)
    cluster.server.patch("pods", "a", {"status": {"podIP": "10.0.0.7"}})
    for number in range(50):
        cluster.server.patch("pods", "a", {"metadata": {"annotations": {"n": str(number)}}})
    assert await cluster.settled() == {"a-rank-0": "10.0.0.7:8000"}
    assert cluster.store.snapshot.endpoints[0].identity is before.identity
    assert len(updated.receiver) == 1
    updated.close()


async def test_k_10_a_pool_that_is_deleted_has_no_endpoints(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    await cluster.settled()
    cluster.server.delete(POOLS, "p")
    assert await cluster.settled() == {}
    assert cluster.store.snapshot.pool is None
    assert not cluster.discovery.synced.value
    assert not [w for w in cluster.server.watches if w.call.resource == "pods"]


async def test_k_10_a_pool_that_comes_back_has_everything_at_once(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.server.create(objective("high", priority=5, pool="p"))
    cluster.server.create(rewrite("r", pool="p", targets={"m": None}))
    await cluster.settled()
    cluster.server.delete(POOLS, "p")
    await cluster.settled()
    cluster.server.create(pool("p", selector=X))
    assert await cluster.settled(0.1) == A
    assert cluster.store.snapshot.objectives == {"high": Objective("high", 5)}
    assert cluster.store.snapshot.rewrites
    assert cluster.discovery.synced.value


async def test_k_10_a_terminating_pool_serves_no_more(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    cluster.server.patch(POOLS, "p", {"metadata": {"finalizers": ["example.test/wait"]}})
    await cluster.settled()
    cluster.server.delete(POOLS, "p")
    assert await cluster.settled(0.1) == {}


async def test_k_11_optional_kinds_may_be_absent(
    start: Start, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = start("a", kinds=[POOLS])
    assert await cluster.settled(600) == A
    assert cluster.discovery.synced.value
    said = [r.message for r in caplog.records if "not installed" in r.message]
    assert sorted(said) == [f"{kind}.{OLDER} is not installed" for kind in (REWRITES, OBJECTIVES)]


async def test_k_11_a_kind_that_is_installed_later_is_noticed(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start(kinds=[POOLS])
    await cluster.settled(100)
    cluster.install(OBJECTIVES)
    cluster.server.create(objective("high", priority=5, pool="p"))
    await cluster.settled(70)
    assert cluster.store.snapshot.objectives == {"high": Objective("high", 5)}


async def test_k_11_the_older_group_serves_where_it_is_alone(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start(kinds=[POOLS, f"x-k8s-{OBJECTIVES}"])
    cluster.server.create(objective("high", priority=5, pool="p", group=OLDER))
    await cluster.settled()
    assert cluster.store.snapshot.objectives == {"high": Objective("high", 5)}


async def test_k_11_of_two_groups_the_newer_counts(start: Start, autojump_clock: MockClock) -> None:
    cluster = start()
    cluster.server.create(objective("old", priority=1, pool="p", group=OLDER))
    cluster.server.create(objective("new", priority=2, pool="p"))
    await cluster.settled()
    assert set(cluster.store.snapshot.objectives) == {"new"}


async def test_k_11_the_newer_group_takes_over_when_it_is_installed(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start(kinds=[POOLS, f"x-k8s-{OBJECTIVES}"])
    cluster.server.create(objective("old", priority=1, pool="p", group=OLDER))
    await cluster.settled()
    cluster.install(OBJECTIVES)
    cluster.server.create(objective("new", priority=2, pool="p"))
    await cluster.settled(70)
    assert set(cluster.store.snapshot.objectives) == {"new"}
    cluster.server.create(objective("old-too", priority=1, pool="p", group=OLDER))
    await cluster.settled()
    assert set(cluster.store.snapshot.objectives) == {"new"}


async def test_k_11_without_rights_it_is_not_ready_and_says_why(
    start: Start, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = start("a", follow=False)
    cluster.fail("status", resource="pods", status=403, message="User x cannot list pods")
    cluster.follow()
    await cluster.settled(300)
    assert not cluster.discovery.synced.value
    assert [r.message for r in caplog.records] == [
        "no right to list pods in namespace 'default': HTTP status 403: User x cannot list pods"
    ]
    cluster.server.faults.clear()
    assert await cluster.settled(31) == A
    assert cluster.discovery.synced.value


async def test_k_12_pods_that_were_there_before_the_pool_are_found(
    start: Start, autojump_clock: MockClock
) -> None:
    names = [f"pod-{number}" for number in range(200)]
    cluster = start(*names, pool=False)
    await cluster.settled(2)
    assert not cluster.discovery.synced.value
    cluster.server.create(pool("p", selector=X))
    assert len(await cluster.settled()) == 200


async def test_k_12_a_definition_that_comes_after_the_daemon_is_noticed(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", kinds=[], pool=False)
    await cluster.settled(60)
    cluster.install(POOLS)
    cluster.server.create(pool("p", selector=X))
    assert await cluster.settled(31) == A


async def test_p_17_nothing_is_ready_before_the_first_list_of_pods(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", follow=False)
    cluster.fail("delay", verb="list", resource="pods", seconds=5)
    cluster.follow()
    await trio.sleep(4.9)
    assert cluster.store.snapshot.pool is not None
    assert not cluster.discovery.synced.value
    await trio.sleep(0.2)
    assert cluster.discovery.synced.value


async def test_p_17_an_empty_list_of_pods_is_enough(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start()
    await cluster.settled()
    assert cluster.discovery.synced.value
    assert cluster.addresses == {}


async def test_s_09_m_07_an_ipv6_pod_is_reachable(start: Start, autojump_clock: MockClock) -> None:
    cluster = start()
    cluster.server.create(pod("six", ip="fd00:0:0::7", labels=X))
    assert await cluster.settled() == {"six-rank-0": "[fd00::7]:8000"}


async def test_a_pod_without_an_address_waits_for_it(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start()
    cluster.server.create(pod("a", ip="", labels=X))
    assert await cluster.settled() == {}
    cluster.server.patch("pods", "a", {"status": {"podIP": "10.0.0.1"}})
    assert await cluster.settled(0.1) == A


async def test_objectives_of_other_pools_do_not_count(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start()
    cluster.server.create(objective("other", priority=1, pool="q"))
    foreign = objective("foreign", priority=1, pool="p")
    foreign["spec"]["poolRef"]["group"] = "example.test"
    cluster.server.create(foreign)
    cluster.server.create(objective("unset", priority=None, pool="p"))
    await cluster.settled()
    assert cluster.store.snapshot.objectives == {"unset": Objective("unset", 0)}


async def test_objectives_come_change_and_go(start: Start, autojump_clock: MockClock) -> None:
    cluster = start()
    await cluster.settled()
    cluster.server.create(objective("o", priority=1, pool="p"))
    await cluster.settled(0.1)
    cluster.server.patch(OBJECTIVES, "o", {"spec": {"priority": -2}})
    await cluster.settled(0.1)
    assert cluster.store.snapshot.objectives == {"o": Objective("o", -2)}
    cluster.server.delete(OBJECTIVES, "o")
    await cluster.settled(0.1)
    assert cluster.store.snapshot.objectives == {}


async def test_rewrites_are_read_with_models_and_weights(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start()
    cluster.server.create(rewrite("r", pool="p", models=["a", "b"], targets={"m-1": 9, "m-2": 1}))
    cluster.server.create(rewrite("any", pool="p", targets={"m": None}))
    await cluster.settled()
    rules = cluster.store.snapshot.rewrites.rules
    assert RewriteRule(targets=(RewriteTarget("m"),)) in rules
    two = (RewriteTarget("m-1", 9), RewriteTarget("m-2", 1))
    assert RewriteRule(models=frozenset("ab"), targets=two) in rules


async def test_pods_may_be_selected_without_any_definition(
    start: Start, autojump_clock: MockClock
) -> None:
    settings = SelectorSettings(
        namespace="default", name="epp", selector="app in (x, y),!canary", ports=(8000, 9000)
    )
    cluster = start("a", settings=settings, kinds=[], pool=False)
    cluster.server.create(pod("b", ip="10.0.0.2", labels=Y))
    cluster.server.create(pod("c", ip="10.0.0.3", labels=X | {"canary": "1"}))
    found = await cluster.settled()
    assert sorted(found) == ["a-rank-0", "a-rank-1", "b-rank-0", "b-rank-1"]
    assert cluster.discovery.synced.value
    assert cluster.store.snapshot.pool is not None
    assert {r.resource for r in cluster.server.requests} == {"pods"}


async def test_the_loss_of_the_server_keeps_the_last_state_and_shows_its_age(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    await cluster.settled()
    cluster.fail("drop")
    cluster.server.faults.disconnect()
    assert await cluster.settled(3600) == A
    assert cluster.discovery.synced.value
    assert {kind: round(age, -2) for kind, age in cluster.discovery.ages().items()} == {
        "pods": 3600,
        POOLS: 3600,
        OBJECTIVES: 3600,
        REWRITES: 3600,
    }


async def test_ages_stay_within_the_time_of_a_watch_while_nothing_happens(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a")
    for _ in range(100):
        await trio.sleep(36)
        assert max(cluster.discovery.ages().values()) <= 375


async def test_an_idle_hour_costs_few_requests(start: Start, autojump_clock: MockClock) -> None:
    cluster = start("a")
    await cluster.settled()
    before = len(cluster.server.requests)
    await trio.sleep(3600)
    assert len(cluster.server.requests) - before <= 4 * 15


async def test_k_08_a_second_run_starts_from_a_list(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", "b", follow=False)
    cluster.follow(discovery=False)
    with trio.move_on_after(10):
        await cluster.discovery.run()
    cluster.server.delete("pods", "b", Deletion(grace=0))
    with trio.move_on_after(10):
        await cluster.discovery.run()
    assert cluster.addresses == A


async def test_a_second_run_clears_the_pods_of_a_pool_that_went_meanwhile(
    start: Start, autojump_clock: MockClock
) -> None:
    cluster = start("a", follow=False)
    cluster.follow(discovery=False)
    with trio.move_on_after(10):
        await cluster.discovery.run()
    cluster.server.delete(POOLS, "p")
    with trio.move_on_after(10):
        await cluster.discovery.run()
    assert cluster.addresses == {}
