"""How a simulated server is made to fail, and to tell what is not."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.http import HangUp

from .clients import CHAT, Start


async def test_a_hanging_metrics_page_hangs(start: Start, autojump_clock: MockClock) -> None:
    client = start(metrics_fault="hang")
    with trio.move_on_after(1000) as scope:
        await client.response("/metrics")
    assert scope.cancelled_caught


async def test_a_closing_metrics_page_hangs_up(start: Start, autojump_clock: MockClock) -> None:
    client = start(metrics_fault="close")
    with pytest.raises(HangUp):
        await client.response("/metrics")


async def test_a_metrics_page_can_be_garbage_an_error_or_slow(
    start: Start, autojump_clock: MockClock
) -> None:
    garbage = await start(metrics_fault="garbage").response("/metrics")
    error = await start(metrics_fault="error").response("/metrics")
    before = trio.current_time()
    slow = await start(metrics_fault="slow", metrics_delay="3").response("/metrics")
    assert (garbage.status, error.status, slow.status) == (200, 500, 200)
    assert isinstance(garbage.body, bytes)
    assert b"\xff" in garbage.body
    assert trio.current_time() - before == pytest.approx(3)


async def test_metrics_can_be_made_up(start: Start, autojump_clock: MockClock) -> None:
    client = start(waiting="squarewave:3:7:10s", kv="0.5", metrics_missing="vllm:no_such")
    told: list[float] = []
    for _ in range(3):
        told.append(await client.metric("vllm:num_requests_waiting"))
        await trio.sleep(6)
    assert told == [3, 7, 3]
    assert await client.metric("vllm:kv_cache_usage_perc") == 0.5
    assert await client.metric("vllm:num_requests_running") == 0


async def test_faults_are_changed_while_a_server_runs(
    start: Start, autojump_clock: MockClock
) -> None:
    client = start()
    status, told = await client.ask("/admin/config", {"waiting": 9, "background": 2})
    assert (status, told["waiting"], told["background"]) == (200, 9, 2)
    assert (await client.ask("/admin/config"))[1] == told
    assert await client.metric("vllm:num_requests_waiting") == 9
    await trio.sleep(1)
    assert await client.metric("vllm:num_requests_running") == 2


async def test_a_wrong_change_changes_nothing(start: Start, autojump_clock: MockClock) -> None:
    client = start()
    before = await client.ask("/admin/config")
    status, answer = await client.ask("/admin/config", {"waiting": 9, "failure_rate": 200})
    assert status == 400
    assert "failure_rate" in answer["error"]["message"]
    assert await client.ask("/admin/config") == before


@pytest.mark.parametrize(
    ("wanted", "status", "kind"),
    [
        ("429", 429, "RateLimitError"),
        ("rate_limit", 429, "RateLimitError"),
        ("401", 401, "AuthenticationError"),
        ("model_not_found", 404, "NotFoundError"),
        ("418", 418, "InternalServerError"),
        ("nonsense", 500, "InternalServerError"),
    ],
)
async def test_a_client_gets_the_error_it_asks_for(
    start: Start, autojump_clock: MockClock, wanted: str, status: int, kind: str
) -> None:
    got, answer = await start().ask("/v1/chat/completions", CHAT, x_return_error=wanted)
    assert (got, answer["error"]["code"], answer["error"]["type"]) == (status, status, kind)


async def test_a_part_of_the_requests_fails(start: Start, autojump_clock: MockClock) -> None:
    client = start(speed=0.0, failure_rate="25", failure_types="rate_limit+server_error", seed="3")
    body = {"prompt": "hi", "max_tokens": 1}
    statuses = [(await client.ask("/v1/completions", body))[0] for _ in range(200)]
    assert set(statuses) == {200, 429, 503}
    assert 30 <= 200 - statuses.count(200) <= 70
