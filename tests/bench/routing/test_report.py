"""The table, and which runs a command line asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from . import trace
from .__main__ import choices, main, parser, runs_of
from .policies import RANDOM, REFERENCE, ROUND_ROBIN, compared, default_policy, with_active
from .report import table
from .runs import Choice, Run, play_all
from .small import TWO, conversations
from .tallies import Result

pytestmark = pytest.mark.long

ONE = Result(
    requests=10,
    hit=0.5,
    captured=0.9,
    tokens_per_second=1000.0,
    ttft_p50=1.0,
    ttft_p90=2.0,
    unevenness=1.5,
)
TWO_SEEDS = [ONE, evolve(ONE, hit=0.7, tokens_per_second=3000.0)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_shows_means_spreads_and_throughput_as_a_multiple_of_the_baseline() -> None:
    results = {"mine": TWO_SEEDS, "base": [ONE, ONE]}
    row = cells(table(results, "base").splitlines()[2])
    assert row == [
        "mine",
        "0.600 ±0.100",
        "0.900 ±0.000",
        "2,000 ±1,000",
        "1.00 ±0.00",
        "2.00 ±0.00",
        "1.50 ±0.00",
        "2.00",
    ]


def test_a_single_seed_has_no_spread() -> None:
    assert "±" not in table({"base": [ONE]}, "base")


def test_all_lines_of_a_table_are_aligned() -> None:
    lines = table({"a": TWO_SEEDS, "a longer name": [ONE]}, "a").splitlines()
    assert len({len(line) for line in lines}) == 1


def test_every_policy_plays_every_seed_of_every_workload() -> None:
    options = parser().parse_args(["--seeds", "2", "--weights", "1", "4"])
    runs = [run for choice in choices(options) for run in runs_of(choice, options)]
    names = [policy.name for policy in compared([1, 4])]
    assert len(runs) == len(set(runs)) == 2 * 2 * len(names)
    assert {run.choice.workload for run in runs} == {"kv73", "mooncake"}
    assert [run.policy.name for run in runs[: len(names)]] == names


def test_quick_plays_less() -> None:
    quick, usual, full = (
        parser().parse_args([*amount, "--workload", "kv73"])
        for amount in (["--quick"], [], ["--full"])
    )
    shares = [choices(options)[0].share for options in (quick, usual, full)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_policies_have_names_of_their_own() -> None:
    names = [policy.name for policy in compared([1, 2.5])]
    assert len(set(names)) == len(names)
    assert with_active(2.5).name in names
    assert names[0] == default_policy().name


def test_results_come_with_their_runs() -> None:
    choice = Choice(workload="kv73", share=0.002)
    runs = [Run(choice=choice, policy=policy, seed=1, sizes=TWO) for policy in (RANDOM, REFERENCE)]
    played = list(play_all(runs, jobs=1))
    assert [run for run, _ in played] == runs
    assert [run.play() for run in runs] == [result for _, result in played]


def test_the_command_plays_a_trace_and_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.gz"
    path.write_bytes(trace.shortened(conversations(10, 4)))
    asked = ["--full", "--workload", "mooncake", "--trace", str(path), "--seeds", "2"]
    assert main([*asked, "--weights", "4", "--jobs", "1"]) == 0
    out, err = capsys.readouterr()
    title, _, *lines = out.splitlines()
    assert title == "mooncake: about 40 requests a run"
    names = [cells(line)[0] for line in lines if line.startswith("|")]
    assert names[2:] == [policy.name for policy in compared([4])]
    assert ROUND_ROBIN.name in names
    assert f"{2 * len(compared([4]))} of {2 * len(compared([4]))} runs" in err


@pytest.mark.parametrize("content", [None, "{"])
def test_a_trace_that_cannot_be_read_is_refused_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None
) -> None:
    path = tmp_path / "trace.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["--workload", "mooncake", "--trace", str(path)])
    assert ended.value.code == 2
    assert "trace.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--jobs", "x"], ["--workload", "kv7"]])
def test_senseless_options_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(arguments)
