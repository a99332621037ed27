"""Faults: as tests set them, and over /sim/faults."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.actors.http import HangUp
from pointsman.actors.sim.kube.faults import Fault
from pointsman.actors.sim.kube.samples import pod

from .kit import PODS, POOLS, Api, Watcher


def add(api: Api, *names: str) -> None:
    for name in names:
        api.server.create(pod(name, ip="10.0.0.1"))


async def opened(api: Api, *faults: Fault, **query: Any) -> Watcher:
    """A watch of the pods under these faults."""
    for fault in faults:
        api.server.faults.add(fault)
    watcher = await api.watch(PODS, resourceVersion=api.server.store.revision, **query)
    await wait_all_tasks_blocked()
    return watcher


async def statuses(api: Api, path: str, count: int) -> list[int]:
    return [(await api.response("GET", path)).status for _ in range(count)]


async def test_a_status_strikes_as_often_as_it_is_told(api: Api) -> None:
    api.server.faults.add(Fault(action="status", status=503, count=2, skip=1))
    assert await statuses(api, PODS, 5) == [200, 503, 503, 200, 200]


async def test_a_fault_strikes_only_what_it_fits(api: Api) -> None:
    fault = Fault(action="status", status=403, verb="list", resource="pods", namespace="default")
    api.server.faults.add(fault)
    add(api, "a")
    assert await statuses(api, PODS, 1) == [403]
    assert await statuses(api, f"{PODS}/a", 1) == [200]
    assert await statuses(api, POOLS, 1) == [200]
    assert await statuses(api, "/api/v1/pods", 1) == [200]


async def test_a_refusal_says_when_to_come_back(api: Api) -> None:
    api.server.faults.add(Fault(action="status", status=429, seconds=7, message="busy"))
    response = await api.response("GET", PODS)
    assert isinstance(response.body, bytes)
    status = json.loads(response.body)
    assert dict(response.headers)["retry-after"] == "7"
    assert (status["reason"], status["message"]) == ("TooManyRequests", "busy")
    assert status["details"]["retryAfterSeconds"] == 7


async def test_a_refusal_can_be_plain_text(api: Api) -> None:
    api.server.faults.add(Fault(action="status", status=404, plain=True, message="no page"))
    response = await api.response("GET", PODS)
    assert (response.status, response.body) == (404, b"no page")


async def test_a_connection_can_be_dropped(api: Api) -> None:
    api.server.faults.add(Fault(action="drop", count=1))
    with pytest.raises(HangUp):
        await api.response("GET", PODS)
    assert await statuses(api, PODS, 1) == [200]


async def test_an_answer_can_be_slow_and_then_fail(api: Api, autojump_clock: MockClock) -> None:
    api.server.faults.add(Fault(action="delay", seconds=4))
    api.server.faults.add(Fault(action="status", status=500, count=1))
    start = trio.current_time()
    assert await statuses(api, PODS, 2) == [500, 200]
    assert trio.current_time() - start == 8


async def test_a_server_can_accept_and_never_answer(api: Api, autojump_clock: MockClock) -> None:
    api.server.faults.add(Fault(action="hang"))
    with trio.move_on_after(3600) as patience:
        await api.response("GET", PODS)
    assert patience.cancelled_caught
    assert api.server.requests[-1].status is None


async def test_a_list_can_break_off_in_the_middle(api: Api) -> None:
    add(api, "a")
    whole = (await api.response("GET", PODS)).body
    assert isinstance(whole, bytes)
    api.server.faults.add(Fault(action="truncate", count=1))
    broken = Watcher(await api.response("GET", PODS))
    await broken.run()
    assert broken.broken
    assert broken.lines == [whole[: len(whole) // 2]]


async def test_a_line_of_a_watch_can_break_off_in_the_middle(api: Api) -> None:
    watcher = await opened(api, Fault(action="truncate", skip=1, count=1))
    add(api, "a", "b", "c")
    await wait_all_tasks_blocked()
    good, half = watcher.lines
    assert json.loads(good)["object"]["metadata"]["name"] == "a"
    assert b"\n" not in half
    assert half.startswith(b'{"type":"ADDED"')
    assert watcher.broken


async def test_a_line_of_a_watch_can_be_garbage(api: Api) -> None:
    watcher = await opened(api, Fault(action="garbage", count=1))
    add(api, "a", "b")
    await wait_all_tasks_blocked()
    garbage, good = watcher.lines
    with pytest.raises(ValueError, match="'utf-8' codec can't decode"):
        json.loads(garbage)
    assert json.loads(good)["object"]["metadata"]["name"] == "b"


async def test_a_watch_can_end_before_its_time(api: Api) -> None:
    watcher = await opened(api, Fault(action="end", skip=2, count=1))
    add(api, "a", "b", "c")
    await wait_all_tasks_blocked()
    assert watcher.told == [("ADDED", "a"), ("ADDED", "b")]
    assert watcher.ended


async def test_a_watch_can_break(api: Api) -> None:
    watcher = await opened(api, Fault(action="break", skip=1))
    assert not watcher.broken
    add(api, "a", "b")
    await wait_all_tasks_blocked()
    assert (watcher.told, watcher.broken) == ([("ADDED", "a")], True)


async def test_a_watch_can_fall_silent_and_stay_open(api: Api, autojump_clock: MockClock) -> None:
    watcher = await opened(api, Fault(action="silence", skip=1, count=1), timeoutSeconds=60)
    add(api, "a", "b")
    await trio.sleep(600)
    assert watcher.told == [("ADDED", "a")]
    assert not watcher.ended
    assert not watcher.broken
    other = await opened(api)
    add(api, "c")
    await wait_all_tasks_blocked()
    assert other.told == [("ADDED", "c")]


async def test_a_watch_can_find_its_version_too_old(api: Api) -> None:
    watcher = await opened(api, Fault(action="expire", skip=1, count=1))
    add(api, "a", "b")
    await wait_all_tasks_blocked()
    assert [event["type"] for event in watcher.events] == ["ADDED", "ERROR"]
    assert watcher.events[1]["object"]["code"] == 410
    assert watcher.ended


async def test_a_fault_strikes_watches_that_are_open_already(api: Api) -> None:
    watcher = await opened(api)
    api.server.faults.add(Fault(action="break", resource="pods"))
    await wait_all_tasks_blocked()
    assert watcher.broken


async def test_a_disconnection_breaks_what_is_open_and_nothing_later(api: Api) -> None:
    silent = await opened(api, Fault(action="silence", count=1))
    watcher = await opened(api)
    api.server.faults.disconnect()
    await wait_all_tasks_blocked()
    assert (silent.broken, watcher.broken) == (True, True)
    later = await opened(api)
    add(api, "a")
    await wait_all_tasks_blocked()
    assert later.told == [("ADDED", "a")]


async def test_faults_can_be_cleared(api: Api) -> None:
    api.server.faults.add(Fault(action="status"))
    api.server.faults.clear()
    assert await statuses(api, PODS, 1) == [200]
    assert api.server.faults.armed == ()


async def test_faults_can_be_set_over_http(api: Api) -> None:
    fault = {"action": "status", "status": 500, "verb": "list", "count": 2}
    code, shown = await api.ask("POST", "/sim/faults", fault)
    assert (code, len(shown)) == (201, 1)
    assert await statuses(api, PODS, 1) == [500]
    _, shown = await api.ask("GET", "/sim/faults")
    assert shown[0]["struck"] == 1
    assert shown[0]["verb"] == "list"
    assert (await api.ask("DELETE", "/sim/faults"))[1] == []
    assert await statuses(api, PODS, 1) == [200]


async def test_what_is_done_at_once_stays_nowhere(api: Api) -> None:
    version = api.server.store.revision
    add(api, "a")
    watcher = await opened(api)
    for action in ("compact", "disconnect"):
        assert await api.ask("POST", "/sim/faults", {"action": action}) == (201, [])
    await wait_all_tasks_blocked()
    assert watcher.broken
    old = await api.watch(PODS, resourceVersion=version)
    await wait_all_tasks_blocked()
    assert old.events[0]["object"]["code"] == 410


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        {"action": "explode"},
        {"action": "drop", "count": 0},
        {"action": "drop", "howoften": 1},
        {"action": "status", "status": 200},
        {"action": "compact", "count": 1},
    ],
)
async def test_what_is_no_fault_is_refused_with_a_reason(api: Api, body: Any) -> None:
    code, answer = await api.ask("POST", "/sim/faults", body)
    assert code == 400
    assert answer["error"]
    assert api.server.faults.armed == ()


async def test_every_request_is_on_record(api: Api) -> None:
    await api.ask("GET", PODS, labelSelector="app=x")
    await api.ask("GET", f"{PODS}/a")
    await api.ask("POST", PODS, {"metadata": {"name": "a"}})
    await api.watch(PODS, timeoutSeconds=1)
    await api.ask("GET", "/version")
    _, rows = await api.ask("GET", "/sim/requests")
    assert [(row["verb"], row["resource"], row["name"], row["status"]) for row in rows] == [
        ("list", "pods", "", 200),
        ("get", "pods", "a", 404),
        ("create", "pods", "", 201),
        ("watch", "pods", "", 200),
        ("get", "", "", 200),
    ]
    assert rows[0]["query"] == {"labelSelector": "app=x"}
    assert rows[0]["user"] == "system:anonymous"
    await api.ask("DELETE", "/sim/requests")
    assert await api.ask("GET", "/sim/requests") == (200, [])


async def test_other_pages_of_the_simulation_there_are_none(api: Api) -> None:
    assert (await api.ask("GET", "/sim/weather"))[0] == 404
    assert (await api.ask("PUT", "/sim/faults"))[0] == 404
