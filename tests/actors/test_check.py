"""``pointsman check`` and ``pointsman graph``.

C-xx are field reports whose fault a test keeps away.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.actors.main import run

CONFIG = """\
plugins:
- {type: queue-scorer}
- {name: again, type: queue-scorer}
- {type: max-score-picker}
- {name: endpoints, type: file-discovery, parameters: {path: endpoints.yaml}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: again, weight: 0}
  - {pluginRef: max-score-picker, weight: 3}
dataLayer: {discovery: {pluginRef: endpoints}}
"""

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command on a configuration's text: the status, and what was printed."""

    def command(text: str, *arguments: str) -> tuple[int, str]:
        path = tmp_path / "config.yaml"
        path.write_text(text)
        status = run([*arguments, str(path)])
        printed = capsys.readouterr()
        assert printed.err == ""
        return status, printed.out.replace(f"{tmp_path}/", "")

    return command


def test_a_valid_configuration_is_shown_as_it_works(on: Command) -> None:
    status, printed = on(CONFIG, "check")
    assert status == 0
    lines = printed.splitlines()
    assert lines[0] == "config.yaml is valid"
    assert "  scorer queue-scorer, weight 2" in lines
    assert "  scorer again (queue-scorer), weight 0" in lines
    assert "  picker max-score-picker" in lines
    assert "added single-profile-handler: the only profile needs a handler" in lines
    assert "endpoints from: endpoints (file-discovery)" in lines
    assert "asked of endpoints: metrics-freshness, waiting-queue-size" in lines
    assert "request bodies: read for the model's name" in lines
    assert "responses: left alone" in lines


def test_a_setting_without_effect_is_a_warning(on: Command) -> None:
    _, printed = on(CONFIG, "check")
    assert "warning: 'max-score-picker' is no scorer: its weight has no effect" in printed


def test_a_valid_configuration_is_shown_as_json(on: Command) -> None:
    status, printed = on(CONFIG, "check", "--format=json")
    report: Any = json.loads(printed)
    assert (status, report["valid"]) == (0, True)
    assert report["profiles"][0]["scorers"][0] == {"name": "queue-scorer", "weight": 2}
    assert report["processing"]["endpoint_values"] == ["metrics-freshness", "waiting-queue-size"]


def test_c_01_every_mistake_is_shown_with_its_place(on: Command) -> None:
    text = (
        CONFIG.replace("weight: 2", "weigth: 2")
        .replace("{path: endpoints.yaml}", "{pth: endpoints.yaml}")
        .replace("{type: max-score-picker}", "{type: max-score-pickr}")
    )
    status, printed = on(text, "check")
    assert status == 2
    assert [line.split(": ")[1:3] for line in printed.splitlines()] == [
        ["line 4", "plugins[2].type"],
        ["line 5", "plugins[3].parameters.path"],
        ["line 5", "plugins[3].parameters.pth"],
        ["line 9", "schedulingProfiles[0].plugins[0].weigth"],
        ["line 11", "schedulingProfiles[0].plugins[2].pluginRef"],
    ]
    assert "did you mean 'weight'?" in printed


def test_mistakes_are_shown_as_json(on: Command) -> None:
    status, printed = on("plugins: [{type: queue-scorr}]", "check", "--format=json")
    assert status == 2
    assert json.loads(printed) == {
        "valid": False,
        "mistakes": [
            {
                "line": 1,
                "path": "plugins[0].type",
                "message": "unknown plugin type 'queue-scorr'",
                "hint": "did you mean 'queue-scorer'?",
            }
        ],
    }


@pytest.mark.parametrize("command", ["check", "graph"])
def test_a_missing_file_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "missing.yaml"]) == 2
    assert capsys.readouterr().out == "missing.yaml: No such file or directory\n"


@pytest.mark.parametrize("command", ["check", "graph"])
def test_c_07_a_key_that_stands_twice_is_a_mistake(command: str, on: Command) -> None:
    status, printed = on("plugins: []\nplugins: []\n", command)
    assert status == 2
    assert printed == "config.yaml: line 2: plugins: this key stands twice in one mapping\n"


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("text", "core-metrics-extractor -> again: waiting-queue-size"),
        ("text", "kernel -> again: metrics-freshness (optional)"),
        ("mermaid", "flowchart LR"),
        ("dot", '  "core-metrics-extractor" -> "again" [label="waiting-queue-size", style=solid];'),
    ],
)
def test_the_graph_is_drawn_in_each_form(form: str, line: str, on: Command) -> None:
    status, printed = on(CONFIG, "graph", f"--format={form}")
    assert status == 0
    assert line in printed.splitlines()


def test_a_configuration_is_checked_without_the_files_it_names(on: Command) -> None:
    assert on(CONFIG.replace("endpoints.yaml", "/nowhere/at/all"), "check")[0] == 0
