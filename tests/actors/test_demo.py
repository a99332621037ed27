"""The demonstration: its traffic and its table. Processes are the affair of the e2e tests."""

from __future__ import annotations

import argparse
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from attrs import define, field

from pointsman import plugins
from pointsman.actors import demo
from pointsman.actors.arguments import Parser
from pointsman.actors.demo import AT_ONCE, CONFIG, Served, Stack, Traffic, table
from pointsman.actors.http import HangUp, Request, Response, json_response
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, Mode
from pointsman.actors.sim.processes import ProcessError
from pointsman.kernel.testing import wired

from .raw_http import served

ROWS: list[dict[str, Any]] = [
    {
        "id": "default/sim-2",
        "values": {"waiting-queue-size": 3.0, "kv-cache-usage": 0.125},
        "scores": {"default": 2.75},
    },
    {
        "id": "default/sim-1",
        "values": {"waiting-queue-size": 12.0, "kv-cache-usage": 1.0},
        "scores": {"default": 0.0},
    },
]


def traffic(count: int = 6, url: str = "http://127.0.0.1", seed: int = 0) -> Traffic:
    return Traffic(url, Random(seed), count)


# -- the table ------------------------------------------------------------------------------------


def test_the_table_shows_where_requests_went_beside_what_was_known() -> None:
    done = traffic()
    done.rows = ROWS
    done.served += [Served("sim-2", 0.1), Served("sim-2", 0.3), Served("sim-2", None)]
    assert table(done).splitlines() == [
        "endpoint    queue  kv use  score  served  TTFT p50",
        "sim-1          12  100.0%   0.00       0         -",
        "sim-2           3   12.5%   2.75       3    200 ms",
    ]


def test_what_is_not_known_is_a_dash() -> None:
    done = traffic()
    done.rows = [{"id": "default/sim-1", "values": {}, "scores": {"default": None}}]
    assert table(done).splitlines()[1].split() == ["sim-1", "-", "-", "-", "0", "-"]


def test_a_profile_without_scores_is_a_dash() -> None:
    done = traffic()
    done.rows = [{"id": "default/sim-1", "values": {}, "scores": {}}]
    assert table(done).splitlines()[1].split()[3] == "-"


# -- the traffic ----------------------------------------------------------------------------------


@define(eq=False)
class Servers:
    """Model servers and daemon in one: answers chats as *pod*, and says what is known."""

    status: int = 200
    hangs_up: bool = False
    chats: list[dict[str, Any]] = field(factory=list[dict[str, Any]])
    asked_after: list[int] = field(factory=list[int])
    """How many chats had come when the daemon was asked."""
    at_once: int = 0
    most_at_once: int = 0

    async def __call__(self, request: Request) -> Response:
        if request.path == "/debug/endpoints":
            self.asked_after.append(len(self.chats))
            return json_response(ROWS)
        self.chats.append(json.loads(request.body))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        if self.hangs_up:
            raise HangUp
        headers = (("x-inference-pod", "sim-1"), ("content-type", "text/event-stream"))
        return Response(self.status, self._events(), headers)

    async def _events(self) -> AsyncIterator[bytes]:
        yield b"data: {}\n\n"
        yield b"data: [DONE]\n\n"


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PAUSE", 1e-9)


async def sent(servers: Servers, *, count: int = 6, seed: int = 0) -> Traffic:
    async with served(servers) as server:
        url = f"http://127.0.0.1:{server.port}"
        done = traffic(count, url, seed)
        await done.run(Stack(url, url))
        return done


async def test_every_request_is_a_chat_and_every_other_one_streams() -> None:
    servers = Servers()
    done = await sent(servers)
    assert [one.pod for one in done.served] == ["sim-1"] * 6
    assert done.failed == []
    assert sorted(chat["stream"] for chat in servers.chats) == [False] * 3 + [True] * 3
    for chat in servers.chats:
        assert chat["model"] == demo.MODEL
        assert 8 <= chat["max_tokens"] <= 32
        assert chat["messages"][0]["role"] == "user"


async def test_only_streams_have_a_first_token() -> None:
    done = await sent(Servers())
    assert sorted(one.first_token is None for one in done.served) == [False] * 3 + [True] * 3


async def test_the_daemon_is_asked_when_half_of_the_requests_are_under_way() -> None:
    servers = Servers()
    done = await sent(servers, count=40)
    (after,) = servers.asked_after
    assert 20 - AT_ONCE <= after <= 20
    assert done.rows == ROWS


async def test_only_so_many_requests_are_under_way_at_once() -> None:
    servers = Servers()
    await sent(servers, count=40)
    assert 1 < servers.most_at_once <= AT_ONCE


async def test_the_same_seed_asks_the_same() -> None:
    async def asked() -> list[str]:
        servers = Servers()
        await sent(servers, count=1, seed=5)
        return [json.dumps(chat) for chat in servers.chats]

    assert await asked() == await asked()


@pytest.mark.parametrize(
    ("servers", "reason"),
    [(Servers(status=503), "HTTPStatusError"), (Servers(hangs_up=True), "RemoteProtocolError")],
)
async def test_a_request_that_fails_is_named_and_hinders_no_other(
    servers: Servers, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = await sent(servers)
    assert done.served == []
    assert len(done.failed) == len(servers.chats) == 6
    assert all(reason in failure for failure in done.failed)
    assert capsys.readouterr().out.count("* failed: request ") == 6


# -- the whole ------------------------------------------------------------------------------------


def options(*arguments: str) -> argparse.Namespace:
    parser = Parser(prog="pointsman demo")
    demo.add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("status", "expected", "last"),
    [(200, 0, "4 of 4 requests served"), (503, 1, "0 of 4 requests served")],
)
async def test_the_demo_ends_with_what_was_served(
    status: int,
    expected: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @asynccontextmanager
    async def stack(options: argparse.Namespace, folder: Path) -> AsyncGenerator[Stack]:
        async with served(Servers(status=status)) as server:
            url = f"http://127.0.0.1:{server.port}"
            yield Stack(url, url)

    monkeypatch.setattr(demo, "_stack", stack)
    monkeypatch.setattr(demo, "envoy_path", lambda: Path("envoy"))
    assert await demo.run(options("--once", "--requests=4")) == expected
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == last
    assert "endpoint    queue  kv use  score  served  TTFT p50" in printed


async def test_a_machine_without_envoy_is_told_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Path:
        raise ProcessError("Envoy is not installed")

    monkeypatch.setattr(demo, "envoy_path", missing)
    assert await demo.run(options()) == 2
    assert capsys.readouterr().err == "pointsman demo: Envoy is not installed\n"


def test_the_demo_is_tried_with_the_address_of_its_own_envoy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    demo._invite(Stack("http://127.0.0.1:10000", "http://127.0.0.1:9090"))
    printed = capsys.readouterr().out
    (curl,) = (line for line in printed.splitlines() if "chat/completions" in line)
    address, _, body = curl.strip().removeprefix("curl -N ").partition(" -d ")
    assert address == "http://127.0.0.1:10000/v1/chat/completions"
    assert json.loads(body.strip("'"))["model"] == demo.MODEL


def test_the_demo_s_configuration_is_valid() -> None:
    wiring = wired(CONFIG.format(path="/tmp/endpoints.yaml"), *plugins.BUILT_IN)
    assert wiring.discovery is not None


def test_the_demo_s_commands_stay_on_loopback() -> None:
    assert "--bind-address=127.0.0.1" in demo.flags(grpc_port=1)
    assert "--grpc-port=1" in demo.flags(grpc_port=1)
    models = demo._models(Path("endpoints.yaml"))
    assert "--endpoints-file=endpoints.yaml" in models
    assert "--pod=sim-1:background=14" in models


def test_the_demo_s_options_have_defaults() -> None:
    said = options()
    assert (said.once, said.requests, said.seed, said.port) == (False, 60, 0, 0)
    assert said.mode == "lean-buffered"
    assert said.config is None


# -- the parts and their order --------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be started: the command lines of children, and Envoy's settings."""
    started: list[Any] = []

    @asynccontextmanager
    async def child(name: str, argv: Sequence[str], **how: object) -> AsyncGenerator[None]:
        started.append([name, *argv[3:]])
        yield

    @asynccontextmanager
    async def envoy(settings: EnvoySettings) -> AsyncGenerator[None]:
        started.append(settings)
        yield

    monkeypatch.setattr(demo, "child", child)
    monkeypatch.setattr(demo, "envoy", envoy)
    return started


async def test_each_part_is_started_when_the_one_before_it_is_ready(
    tmp_path: Path, started: list[Any]
) -> None:
    async with demo._stack(options("--port=12345"), tmp_path) as stack:
        models, daemon, settings = started
    endpoints = tmp_path / "endpoints.yaml"
    assert models[:2] == ["model servers", "sim"]
    assert f"--endpoints-file={endpoints}" in models
    assert daemon[:2] == ["pointsman", "serve"]
    assert f"--grpc-port={settings.picker.port}" in daemon
    assert settings.mode is Mode.LEAN_BUFFERED
    assert stack.url == "http://127.0.0.1:12345"
    assert f"--metrics-port={stack.admin.rpartition(':')[2]}" in daemon
    assert str(endpoints) in (tmp_path / "config.yaml").read_text()


async def test_another_configuration_is_told_where_the_endpoints_are(
    tmp_path: Path, started: list[Any]
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("path: {endpoints}")
    async with demo._stack(options(f"--config={mine}", "--mode=full-duplex"), tmp_path):
        assert started[2].mode is Mode.FULL_DUPLEX
    text = (tmp_path / "config.yaml").read_text()
    assert text == f"path: {tmp_path / 'endpoints.yaml'}"
