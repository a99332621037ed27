"""The demonstration in Kubernetes: its story under virtual time, behind a gateway in Python.

The cluster is real but for its sockets; daemon and Envoy are played by a `Town`.
"""

from __future__ import annotations

import argparse
import json
import ssl
from base64 import b64decode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import httpx
import pytest
import trio
import yaml
from trio.testing import MockClock

from pointsman import plugins
from pointsman.actors import demo_kube, demo_kube_cluster, demo_kube_steps
from pointsman.actors.arguments import Parser
from pointsman.actors.demo_kube_account import account, failures, served_by
from pointsman.actors.demo_kube_cluster import CONFIG, Cluster, Settings, world
from pointsman.actors.demo_kube_traffic import AT_ONCE, Sent, Traffic
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, Mode
from pointsman.actors.sim.kube.identity import Authenticator
from pointsman.actors.sim.processes import ProcessError
from pointsman.kernel.testing import wired

from .town import PORT, Stage, stage, started

pytestmark = pytest.mark.long

# -- the story ------------------------------------------------------------------------------------

Make = Callable[..., Stage]


@pytest.fixture
async def make(nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Make]:
    clients: list[httpx.AsyncClient] = []

    def make(**settings: Any) -> Stage:
        made = stage(nursery, monkeypatch, **settings)
        clients.append(made.cluster.gateway)
        return made

    yield make
    for client in clients:
        await client.aclose()


async def test_no_request_is_lost_while_pods_come_and_go(
    make: Make, autojump_clock: MockClock
) -> None:
    on = make()
    await started(on)
    begun = trio.current_time()
    story = await on.play()
    assert trio.current_time() - begun < 25
    assert story.wrong == []
    assert all(one.ok for one in on.traffic.sent)
    steps = list(dict.fromkeys(one.step for one in on.traffic.sent))
    assert len(steps) == 6
    retried = [one for one in on.traffic.sent if one.attempts > 1]
    assert {one.step for one in retried} == {"llama-6 comes and fails"}


async def test_a_pod_that_stays_in_the_pool_is_wrong(make: Make, autojump_clock: MockClock) -> None:
    on = make(forgets=False)
    await started(on)
    story = await on.play()
    assert story.wrong == [
        "llama-1 was in the pool for as long as it was there",
        "llama-2 was in the pool for as long as it was there",
    ]


async def test_requests_to_pods_outside_of_the_pool_are_wrong(
    make: Make, autojump_clock: MockClock
) -> None:
    on = make(strays=True)
    await started(on)
    story = await on.play()
    assert failures(on.traffic) == []
    assert len(story.wrong) == 3  # llama-2, llama-3 and llama-6
    assert all(text.endswith("which is not in the pool") for text in story.wrong)


async def test_requests_that_are_not_tried_again_fail(
    make: Make, autojump_clock: MockClock
) -> None:
    on = make(retries=False)
    await started(on)
    story = await on.play()
    assert story.wrong == []
    (failure,) = failures(on.traffic)
    assert failure.startswith("llama-6 comes and fails: ")
    assert failure.endswith("503 connection refused")


async def test_what_does_not_happen_ends_the_story(
    make: Make, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_kube_steps, "SOON", 4.0)
    on = make(blind=True)
    await started(on)
    story = await on.play()
    assert story.wrong == ["scale up to 5: it was not done within 4 s"]
    assert on.traffic.sent[-1].step == "scale up to 5"


async def test_a_daemon_that_is_gone_ends_the_story(
    make: Make, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    on = make()
    await started(on)

    async def end() -> None:
        await on.traffic.more(5)
        on.town.down = True

    nursery.start_soon(end)
    story = await on.play()
    assert story.wrong == ["scale up to 5: the daemon does not answer: ConnectError"]
    assert any("ConnectError" in failure for failure in failures(on.traffic))


# -- the traffic ----------------------------------------------------------------------------------


async def test_the_same_seed_asks_the_same(make: Make, autojump_clock: MockClock) -> None:
    async def asked() -> list[Any]:
        on = make()
        await started(on)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(on.traffic.run)
            await on.traffic.more(20)
            on.traffic.stop()
        return on.town.asked[:20]

    first, second = await asked(), await asked()
    assert first == second
    assert len({json.dumps(body) for body in first}) > 10
    assert {body["stream"] for body in first} == {True, False}


async def test_overloaded_servers_are_not_asked_for_more(
    make: Make, autojump_clock: MockClock
) -> None:
    on = make()
    await started(on)
    on.traffic.rate = 200.0
    most = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(on.traffic.run)
        for _ in range(50):
            await trio.sleep(0.1)
            most = max(most, sum(one.running for one in on.traffic.sent))
        on.traffic.stop()
    assert most == AT_ONCE
    assert all(one.ok for one in on.traffic.sent)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"data: {}\n\ndata: [DONE]\n\n", ""), (b"data: {}\n\n", "the stream was cut")],
)
async def test_a_stream_that_does_not_come_to_its_end_failed(
    content: bytes, problem: str, autojump_clock: MockClock
) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=content))
    async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        traffic = Traffic(client, Random(0), 1.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.run)
            await traffic.more(1)
            traffic.stop()
    assert traffic.sent[0].problem == problem
    assert traffic.sent[0].ok is not bool(problem)


# -- the account ----------------------------------------------------------------------------------


def sent(step: str, pod: str, address: str, attempts: int = 1, problem: str = "") -> Sent:
    return Sent(step, 0.0, pod, address, attempts, 1.0, problem)


def told() -> Traffic:
    traffic = Traffic(cast("httpx.AsyncClient", None), Random(0), 1.0)
    traffic.sent += [
        sent("first", "a", "1:80"),
        sent("first", "b", "2:80", attempts=2),
        sent("then", "b", "3:80"),
        sent("then", "", "", problem="503 no"),
        sent("then", "", "", problem="503 no"),
    ]
    return traffic


def test_the_account_has_a_line_for_each_step() -> None:
    assert account(told()).splitlines() == [
        "       sent    ok  retried  failed  served by",
        "first     2     2        1       0  a 1, b at 2:80 1",
        "then      3     1        0       2  b at 3:80 1",
    ]


def test_failures_are_counted_by_their_reason() -> None:
    assert failures(told()) == ["then: 2 requests failed: 503 no"]


def test_pods_are_listed_with_what_they_served() -> None:
    assert served_by(told().sent) == "a 1, b 1, b 1"


# -- the whole ------------------------------------------------------------------------------------


def options(*arguments: str) -> argparse.Namespace:
    parser = Parser(prog="pointsman demo kube")
    demo_kube.add_arguments(parser)
    return parser.parse_args(arguments)


def test_the_options_have_defaults() -> None:
    said = options()
    assert (said.once, said.rate, said.seed, said.port) == (False, 20.0, 0, 0)
    assert said.mode == "lean-buffered"


@pytest.mark.parametrize("rate", ["0", "-1", "201", "nan", "many"])
def test_a_rate_that_cannot_be_is_refused(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(f"--rate={rate}")
    assert "is no number of requests from 1 to 200" in capsys.readouterr().err


@pytest.fixture
def staged(make: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Stage]:
    """Let the command find a on in the place of processes."""

    def show_log(running: Cluster) -> None:
        print("(log)")

    def staged(**town: Any) -> Stage:
        on = make(**town)

        @asynccontextmanager
        async def cluster(settings: Settings, folder: Path) -> AsyncGenerator[Cluster]:
            await started(on)
            yield on.cluster

        monkeypatch.setattr(demo_kube, "cluster", cluster)
        monkeypatch.setattr(demo_kube, "envoy_path", lambda: "envoy")
        monkeypatch.setattr(demo_kube, "_show_log", show_log)
        return on

    return staged


async def test_all_is_well_when_every_request_was_served(
    staged: Make, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    staged()
    assert await demo_kube.run(options("--once")) == 0
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    assert "requests served" in printed.splitlines()[-1]
    assert "llama-1 left the pool" in printed


async def test_a_lost_request_is_a_failure_and_the_log_is_shown(
    staged: Make, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    staged(retries=False)
    assert await demo_kube.run(options("--once")) == 1
    printed = capsys.readouterr().out
    assert "WRONG: llama-6 comes and fails: " in printed
    assert printed.splitlines()[-1] == "(log)"


async def test_without_once_the_requests_go_on(
    staged: Make,
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    nursery: trio.Nursery,
) -> None:
    staged()
    with trio.move_on_after(60):
        await demo_kube.run(options())
    printed = capsys.readouterr().out
    assert "kubectl --kubeconfig kubeconfig get pods" in printed
    assert ", 0 failed; served by llama-4" in printed


async def test_a_machine_without_envoy_is_told_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> str:
        raise ProcessError("Envoy is not installed")

    monkeypatch.setattr(demo_kube, "envoy_path", missing)
    assert await demo_kube.run(options("--once")) == 2
    assert capsys.readouterr().err == "pointsman demo kube: Envoy is not installed\n"


def test_without_our_manifests_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo_kube_cluster, "MANIFESTS", tmp_path / "nothing")
    with pytest.raises(ProcessError, match="from a clone"):
        world(PORT, Authenticator(), ())


# -- the parts and their order --------------------------------------------------------------------


async def test_daemon_and_envoy_are_told_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    @asynccontextmanager
    async def child(name: str, argv: list[str], **how: object) -> AsyncGenerator[str]:
        begun.append([name, *argv[3:]])
        yield name

    @asynccontextmanager
    async def envoy(settings: EnvoySettings) -> AsyncGenerator[None]:
        begun.append(settings)
        yield

    monkeypatch.setattr(demo_kube_cluster, "child", child)
    monkeypatch.setattr(demo_kube_cluster, "envoy", envoy)
    settings = Settings(port=12345, mode=Mode.FULL_DUPLEX)
    async with demo_kube_cluster.cluster(settings, tmp_path) as running:
        token = yaml.safe_load((tmp_path / "pointsman.kubeconfig").read_text())
        server = token["clusters"][0]["cluster"]
        authority = b64decode(server["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        async with httpx.AsyncClient(
            base_url=server["server"], trust_env=False, verify=context
        ) as client:
            headers = {"authorization": f"Bearer {token['users'][0]['user']['token']}"}
            pods = await client.get("/api/v1/namespaces/default/pods", headers=headers)
            nodes = await client.get("/api/v1/nodes", headers=headers)
            stranger = await client.get("/api/v1/namespaces/default/pods")
        assert str(running.gateway.base_url) == "http://127.0.0.1:12345"
    assert (pods.status_code, nodes.status_code, stranger.status_code) == (200, 403, 401)
    daemon, at_envoy = begun
    assert daemon[:2] == ["pointsman", "serve"]
    assert f"--kubeconfig={tmp_path / 'pointsman.kubeconfig'}" in daemon
    assert f"--grpc-port={at_envoy.picker.port}" in daemon
    assert "--bind-address=127.0.0.1" in daemon
    assert at_envoy.mode is Mode.FULL_DUPLEX
    assert [where.host for where in at_envoy.fallback] == list(demo_kube_cluster.ADDRESSES)


def test_the_configuration_is_valid() -> None:
    wiring = wired(CONFIG, *plugins.BUILT_IN)
    assert wiring.discovery is None
