"""What `pointsman plugins` prints, and that the README prints the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.actors.main import run
from pointsman.plugins import BUILT_IN

README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- pointsman plugins --format=markdown -->\n", "<!-- end -->\n"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["plugins", *arguments]) == 0
    return capsys.readouterr().out


def test_the_readme_lists_the_plugins_that_there_are(
    capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """``--golden`` writes the table anew."""
    table = printed(capsys, "--format=markdown")
    before, _, rest = README.read_text().partition(BEGIN)
    shown, _, after = rest.partition(END)
    if request.config.getoption("--golden"):
        README.write_text(before + BEGIN + table + END + after)
        shown = table
    assert shown == table


def test_every_type_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert {line.split()[0] for line in lines} >= {each.type_name for each in BUILT_IN}
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines)


def test_a_named_type_is_told_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "tokenizer", "queue-scorer").splitlines()
    assert lines[0] == "token-producer: producer"
    assert "  deprecated names: tokenizer" in lines
    assert "  produces: tokenized-prompt" in lines
    assert "queue-scorer: scorer" in lines
    assert "  consumes: waiting-queue-size" in lines
    assert "  consumes where it is produced: metrics-freshness" in lines


def test_defaults_and_required_parameters_are_told_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (found,) = json.loads(printed(capsys, "file-discovery", "--format=json"))
    assert found["parameters"] == {"path": "", "watchFile": "false"}
    assert "  parameter path (required)" in printed(capsys, "file-discovery")


def test_an_unknown_type_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "queue-scorerr"]) == 2
    assert "did you mean 'queue-scorer'?" in capsys.readouterr().err
