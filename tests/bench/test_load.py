"""Load on a real grpc.aio server in this process."""

from __future__ import annotations

import socket

import pytest

from . import load
from .checks import check
from .conftest import ENDPOINTS
from .load import Ending, LoadError, client, script
from .rows import Row, exchanges
from .scenarios import KB, buffered, chat, chat_body, duplex
from .wire import Step

pytestmark = pytest.mark.long

SMALL = script(buffered("small", chat_body(2 * KB)).steps)


@pytest.mark.parametrize("row", exchanges(), ids=lambda row: row.name)
def test_every_exchange_gets_the_replies_it_calls_for(baseline_port: int, row: Row) -> None:
    with client(baseline_port) as c:
        check(row.exchange, c.capture(script(row.exchange.steps)), ENDPOINTS)


def test_a_run_plays_the_exchange_as_often_as_it_is_told(baseline_port: int) -> None:
    with client(baseline_port) as c:
        outcome = c.play(SMALL, 50)
    assert outcome.exchanges == 50
    assert len(outcome.decisions) == 50


def test_large_bodies_pass_both_ways_under_flow_control(baseline_port: int) -> None:
    with client(baseline_port) as c:
        outcome = c.play(script(chat(400 * KB, "large").steps), 8, streams=4)
    assert outcome.exchanges == 8


def test_streams_are_spread_over_the_connections(baseline_port: int) -> None:
    with client(baseline_port, connections=2) as c:
        c.hold(SMALL, 6)
        assert [len(each.streams) for each in c.connections] == [3, 3]


def test_a_rate_starts_every_stream(baseline_port: int) -> None:
    with client(baseline_port) as c:
        outcome = c.play(SMALL, 20, rate=2000.0)
    assert len(outcome.decisions) == 20


@pytest.mark.parametrize("ending", [Ending.RESET, Ending.HALF_CLOSE], ids=lambda e: e.name)
def test_no_stream_is_left_after_a_run(baseline_port: int, ending: Ending) -> None:
    with client(baseline_port) as c:
        c.play(SMALL.ending_by(ending), 10)
        assert c.connections[0].streams == {}


def test_held_streams_take_more_connections_than_one_server_s_limit(baseline_port: int) -> None:
    with client(baseline_port) as c:
        c.connections[0].limit = 2
        c.hold(script(duplex("held", chat_body(2 * KB)).steps), 7)
        assert [len(each.streams) for each in c.connections] == [2, 5]


def test_a_limit_of_streams_is_kept_and_all_are_played(baseline_port: int) -> None:
    with client(baseline_port) as c:
        c.connections[0].limit = 1
        assert c.play(SMALL, 5, streams=4).exchanges == 5


def test_an_unexpected_reply_ends_the_run(baseline_port: int) -> None:
    steps = buffered("short", chat_body(2 * KB)).steps
    meagre = script((Step(steps[0].messages + steps[1].messages, replies=1),))
    with client(baseline_port) as c, pytest.raises(LoadError, match="got"):
        c.play(meagre.ending_by(Ending.HALF_CLOSE), 1)


def test_a_port_without_a_server_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
    with (
        pytest.raises(LoadError, match=f"nothing accepts connections on port {port}"),
        client(port),
    ):
        pass


def test_a_server_that_says_nothing_is_a_stall(
    baseline_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "PATIENCE", 0.01)
    silent = script((Step((), replies=1),))
    with client(baseline_port) as c, pytest.raises(LoadError, match=r"nothing came .* stream 1"):
        c.play(silent, 1)


def test_latency_is_told_by_quantile() -> None:
    outcome = load.Outcome(4, 1.0, 0.0, (0.4, 0.1, 0.3, 0.2))
    assert (outcome.decision(0.5), outcome.decision(0.99)) == (0.3, 0.4)
