"""The ``sim`` command: several servers on loopback addresses."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
import yaml

from pointsman.actors.sim.fleet import add_arguments, plan, run
from pointsman.actors.sim.pods import BadSetting, Pod

FIRST = "127.0.77.1"


def options(*arguments: str) -> Namespace:
    parser = ArgumentParser(prog="pointsman sim")
    add_arguments(parser)
    return parser.parse_args([*arguments, "--port", "0", "--address", FIRST])


def test_pods_are_numbered_and_have_addresses_of_their_own() -> None:
    pods = plan(options("--pods", "3", "--seed", "10"))
    assert [(pod.name, pod.address, pod.settings.seed) for pod in pods] == [
        ("sim-1", "127.0.77.1", 10),
        ("sim-2", "127.0.77.2", 11),
        ("sim-3", "127.0.77.3", 12),
    ]


def test_a_pod_may_differ_from_the_others() -> None:
    first, second = plan(
        options(
            *("--pods", "2", "--max-num-seqs", "4"),
            *("--pod", "sim-2:max-num-seqs=6,background=9", "--pod", "sim-2:kv=1"),
        )
    )
    assert (first.settings.max_num_seqs, first.settings.background) == (4, 0)
    assert (second.settings.max_num_seqs, second.settings.background) == (6, 9)
    assert second.settings.kv == "1"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--pods", "0"], "--pods: expected at least 1, got 0"),
        (["--speed", "-1"], "--speed: expected 0 or more, got -1"),
        (["--max-num-seqs", "many"], "--max-num-seqs: Expected `int`, got `str`"),
        (["--pod", "sim-9:kv=1"], "--pod sim-9: there are only sim-1, sim-2, sim-3"),
        (["--pod", "sim-1:kvv=1"], "--pod sim-1: unknown setting 'kvv', did you mean 'kv'?"),
        (["--pod", "sim-1"], "--pod sim-1: expected NAME:key=value,..."),
    ],
)
def test_an_option_that_cannot_be_used_is_named(arguments: list[str], text: str) -> None:
    with pytest.raises(BadSetting) as bad:
        plan(options(*arguments))
    assert str(bad.value).startswith(text)


def test_an_address_that_is_none_is_named() -> None:
    chosen = options()
    chosen.address = "here"
    with pytest.raises(BadSetting, match="--address here: "):
        plan(chosen)


def test_the_help_shows_every_setting_and_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        options("--help")
    told = capsys.readouterr().out
    for expected in (
        "--max-num-seqs",
        "--metrics-fault",
        "/admin/config",
        "--pod sim-1:background",
    ):
        assert expected in told


@asynccontextmanager
async def fleet(*arguments: str) -> AsyncGenerator[list[Pod]]:
    """A running fleet, with the ports that it got."""
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            pods: list[Pod] = await tasks.start(run, options(*arguments))
            yield pods
            tasks.cancel_scope.cancel()


async def test_every_pod_of_a_fleet_answers() -> None:
    body = {"model": "ad", "messages": [{"role": "user", "content": "Go on."}]}
    chosen = ("--pods", "2", "--speed", "0", "--lora-modules", "ad")
    async with fleet(*chosen) as pods, httpx.AsyncClient() as client:
        for pod in pods:
            where = f"http://{pod.address}:{pod.port}"
            told = await client.post(f"{where}/v1/chat/completions", json=body)
            assert (told.status_code, told.headers["x-inference-pod"]) == (200, pod.name)
            metrics = (await client.get(f"{where}/metrics")).text
            assert 'vllm:request_success_total{engine="0",finished_reason="stop"' in metrics


def read(folder: Path) -> dict[str, object]:
    """The files of *folder*, which are YAML."""
    return {path.name: yaml.safe_load(path.read_text()) for path in folder.iterdir()}


async def test_a_fleet_is_listed_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"
    async with fleet("--pods", "2", "--endpoints-file", str(path)) as pods:
        assert read(tmp_path) == {"endpoints.yaml": {"endpoints": [p.endpoint() for p in pods]}}


async def test_a_fleet_says_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    async with fleet("--pods", "2", "--pod", "sim-2:background=3") as pods:
        first, second = pods
    assert capsys.readouterr().out.splitlines() == [
        f"sim-1 127.0.77.1:{first.port} llama-8b, 8 slots",
        f"sim-2 127.0.77.2:{second.port} llama-8b, 8 slots, background 3",
        "ready: 2 model servers",
    ]


async def test_an_address_in_use_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with fleet("--pods", "1") as (pod,):
        chosen = options()
        chosen.port = pod.port
        assert await run(chosen) == 2
    assert capsys.readouterr().err == (
        f"pointsman sim: sim-1 cannot listen on {FIRST}:{pod.port}: Address already in use\n"
    )


async def test_a_file_that_cannot_be_written_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing" / "endpoints.yaml"
    assert await run(options("--endpoints-file", str(path))) == 2
    assert capsys.readouterr().err == (
        f"pointsman sim: --endpoints-file {path}: No such file or directory\n"
    )


async def test_a_bad_option_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(options("--pods", "0")) == 2
    assert capsys.readouterr().err == "pointsman sim: --pods: expected at least 1, got 0\n"
