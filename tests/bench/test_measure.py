from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import process_time

import pytest

from . import micro, process
from .__main__ import effort, main, parser
from .measure import Bench, Effort
from .rows import names
from .server import Baseline, ServerError, model_servers

pytestmark = pytest.mark.long


def test_a_row_is_measured_of_target_and_baseline() -> None:
    said: list[str] = []
    least = Effort(repeat=1, share=0.005)
    wanted = re.compile("lean buffered 2 KB")
    (figure,) = Bench(Baseline(), least, wanted, lambda row, _: said.append(row)).run()
    assert figure.error == ""
    assert figure.ratio is not None
    assert figure.client is not None
    assert "lean buffered 2 KB" in said


def test_a_server_that_does_not_start_is_named_with_what_it_said() -> None:
    with (
        pytest.raises(ServerError, match=r"(?s)model_servers ended with status 1: .*IndexError"),
        model_servers("127.0.1", -1),
    ):
        pass


def test_figures_go_to_a_file_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "figures.json"
    assert main(["--rows", "no such row", "--json", str(target)]) == 0
    assert json.loads(target.read_text()) == {"rows": [], "micro": {}}


def test_help_names_every_row() -> None:
    shown = parser().format_help()
    assert all(name in shown for name in names())


def test_options_override_what_quick_means() -> None:
    quick = effort(parser().parse_args(["--quick", "--repeat", "7"]))
    assert quick.repeat == 7
    assert quick.share < 1.0


def test_a_pattern_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--rows", "("])
    assert "no regular expression" in capsys.readouterr().err


def test_only_micro_benchmarks_that_exist_are_run() -> None:
    assert micro.present(["micro", "no_such_module"]) == ["micro"]


def test_cpu_time_counts_what_the_process_computes() -> None:
    before, until = process.cpu_time(os.getpid()), process_time() + 0.02
    while process_time() < until:
        pass
    assert process.cpu_time(os.getpid()).since(before) >= 0.01


def test_a_thread_that_has_ended_takes_nothing_back() -> None:
    before, after = process.CpuTime({1: 500, 2: 10**9}), process.CpuTime({1: 2500, 3: 1000})
    assert after.since(before) == pytest.approx(3e-6)


def test_resident_memory_is_told_in_megabytes() -> None:
    assert 5.0 < process.resident(os.getpid()) < 5000.0
