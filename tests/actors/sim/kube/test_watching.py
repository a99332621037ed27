"""Watches over the API, on virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.actors.sim.kube.samples import pod, pool

from .kit import PODS, POOLS, Api, MakeApi, Watcher


def add(api: Api, name: str, app: str = "x", **settings: Any) -> None:
    api.server.create(pod(name, ip="10.0.0.1", labels={"app": app}, **settings))


def newest(api: Api) -> int:
    return api.server.store.revision


def versions(watcher: Watcher) -> list[int]:
    return [int(event["object"]["metadata"]["resourceVersion"]) for event in watcher.events]


async def test_a_watch_without_a_version_begins_with_what_is_there(api: Api) -> None:
    add(api, "a")
    for query in ({}, {"resourceVersion": "0"}):
        watcher = await api.watch(PODS, **query)
        await wait_all_tasks_blocked()
        assert watcher.told == [("ADDED", "a")]


async def test_a_watch_from_a_version_misses_nothing_after_it(api: Api) -> None:
    add(api, "a")
    version = newest(api)
    add(api, "b")
    watcher = await api.watch(PODS, resourceVersion=version)
    add(api, "c")
    await wait_all_tasks_blocked()
    add(api, "d")
    await wait_all_tasks_blocked()
    assert watcher.told == [("ADDED", "b"), ("ADDED", "c"), ("ADDED", "d")]
    assert versions(watcher) == [version + 1, version + 2, version + 3]


async def test_events_say_what_their_objects_are_and_end_with_a_line(api: Api) -> None:
    watcher = await api.watch(PODS)
    add(api, "a")
    await wait_all_tasks_blocked()
    assert [line[-1:] for line in watcher.lines] == [b"\n"]
    assert watcher.events[0]["object"]["kind"] == "Pod"


async def test_a_watch_sees_what_it_selects(api: Api) -> None:
    version = newest(api)
    selected = await api.watch(PODS, labelSelector="app=x", resourceVersion=version)
    named = await api.watch(PODS, fieldSelector="metadata.name=b", resourceVersion=version)
    single = await api.watch(f"{PODS}/b", resourceVersion=version)
    everywhere = await api.watch("/api/v1/pods", resourceVersion=version)
    add(api, "a")
    add(api, "b", "y")
    add(api, "c", namespace="other")
    api.server.patch("pods", "a", {"metadata": {"labels": {"app": "y"}}})
    api.server.patch("pods", "b", {"metadata": {"labels": {"app": "x"}}})
    await wait_all_tasks_blocked()
    assert selected.told == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    assert named.told == single.told == [("ADDED", "b"), ("MODIFIED", "b")]
    assert everywhere.told[:3] == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


async def test_a_watch_ends_when_its_time_is_over(api: Api, autojump_clock: MockClock) -> None:
    watcher = await api.watch(PODS, timeoutSeconds=10)
    await trio.sleep(9)
    add(api, "a")
    await wait_all_tasks_blocked()
    assert not watcher.ended
    await trio.sleep(2)
    assert watcher.ended
    assert watcher.told == [("ADDED", "a")]
    assert api.server.watches == frozenset()


async def test_a_watch_that_names_no_end_has_one(api: Api, autojump_clock: MockClock) -> None:
    watcher = await api.watch(PODS)
    await trio.sleep(1799)
    assert not watcher.ended
    await trio.sleep(1802)
    assert watcher.ended


async def test_bookmarks_come_every_minute_and_before_the_end_if_there_is_news(
    api: Api, autojump_clock: MockClock
) -> None:
    query = {"resourceVersion": newest(api), "timeoutSeconds": 150, "labelSelector": "app=x"}
    watcher = await api.watch(PODS, allowWatchBookmarks="true", **query)
    plain = await api.watch(PODS, **query)
    await trio.sleep(61)
    assert watcher.told == []
    add(api, "a", "y")
    unseen = newest(api)
    await trio.sleep(60)
    assert watcher.told == [("BOOKMARK", None)]
    add(api, "b")
    await trio.sleep(60)
    assert watcher.told == [("BOOKMARK", None), ("ADDED", "b"), ("BOOKMARK", None)]
    assert versions(watcher) == [unseen, unseen + 1, unseen + 1]
    assert watcher.events[0]["object"]["kind"] == "Pod"
    assert watcher.ended
    assert plain.told == [("ADDED", "b")]


async def test_a_bookmark_never_runs_ahead_of_what_was_told(
    api: Api, autojump_clock: MockClock
) -> None:
    start = newest(api)
    watcher = await api.watch(
        PODS, allowWatchBookmarks="true", resourceVersion=start, timeoutSeconds=300
    )
    for number in range(5):
        await trio.sleep(47)
        add(api, f"p-{number}")
    await trio.sleep(100)
    told = versions(watcher)
    assert told == sorted(told)
    assert watcher.told.count(("BOOKMARK", None)) == 5


async def test_a_version_that_was_compacted_away_is_an_event(api: Api) -> None:
    old = newest(api)
    add(api, "a")
    api.server.compact()
    watcher = await api.watch(PODS, resourceVersion=old)
    await wait_all_tasks_blocked()
    (event,) = watcher.events
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"] == f"too old resource version: {old} ({old + 1})"
    assert watcher.ended


async def test_a_watch_that_is_up_to_date_survives_a_compaction(api: Api) -> None:
    watcher = await api.watch(PODS)
    add(api, "a")
    await wait_all_tasks_blocked()
    api.server.compact()
    add(api, "b")
    await wait_all_tasks_blocked()
    assert watcher.told == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_selecting_watch_ages_while_others_change(api: Api) -> None:
    old = newest(api)
    add(api, "a", "y")
    api.server.compact()
    status = await api.refused("GET", PODS, watch=1, resourceVersion=old + 100)
    assert status["code"] == 504
    watcher = await api.watch(PODS, labelSelector="app=x", resourceVersion=old)
    await wait_all_tasks_blocked()
    assert watcher.events[0]["object"]["code"] == 410


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersion": "x"}, 400),
        ({"timeoutSeconds": "x"}, 400),
        ({"labelSelector": "a b"}, 400),
        ({"sendInitialEvents": "true"}, 422),
    ],
)
async def test_a_watch_that_cannot_be_is_refused_before_it_begins(
    api: Api, query: dict[str, str], code: int
) -> None:
    assert (await api.refused("GET", PODS, watch=1, **query))["code"] == code


async def test_a_watch_ends_with_its_kind(api: Api) -> None:
    watcher = await api.watch(POOLS)
    api.server.create(pool("p", selector={"a": "b"}))
    name = "inferencepools.inference.networking.k8s.io"
    api.server.delete("customresourcedefinitions", name)
    await wait_all_tasks_blocked()
    assert watcher.told == [("ADDED", "p"), ("DELETED", "p")]
    assert watcher.ended


async def test_open_watches_are_counted(api: Api, autojump_clock: MockClock) -> None:
    for _ in range(3):
        await api.watch(PODS, timeoutSeconds=5)
    assert len(api.server.watches) == 3
    await trio.sleep(6)
    assert len(api.server.watches) == 0


async def test_servers_know_nothing_of_each_other(make_api: MakeApi) -> None:
    one, other = make_api(), make_api()
    add(one, "a")
    assert await other.names(PODS) == []
