"""What `check` and `graph` print, word for word; ``--golden`` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.actors.main import run

HERE = Path(__file__).parent / "configurations"
GOLDEN = HERE / "golden"
CONF = Path(__file__).parents[2] / "conf"
BROKEN = sorted(path.stem for path in (HERE / "broken").glob("*.yaml"))
SOUND = sorted(path.stem for path in CONF.glob("*.yaml"))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = run(arguments)
    return status, capsys.readouterr().out


def golden(name: str, text: str, request: pytest.FixtureRequest) -> str:
    path = GOLDEN / name
    if request.config.getoption("--golden"):
        path.write_text(text)
    return path.read_text()


@pytest.mark.parametrize("name", BROKEN)
def test_every_mistake_is_named_with_its_place(
    name: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(HERE / "broken")
    status, text = printed(capsys, "check", f"{name}.yaml")
    assert (status, text) == (2, golden(f"{name}.txt", text, request))
    assert printed(capsys, "graph", f"{name}.yaml") == (2, text)
    status, as_json = printed(capsys, "check", "--format=json", f"{name}.yaml")
    report = json.loads(as_json)
    assert (status, report["valid"]) == (2, False)
    assert len(report["mistakes"]) == len(text.splitlines())


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize(
    ("command", "form"),
    [("check", "text"), ("check", "json"), *(("graph", f) for f in ("text", "mermaid", "dot"))],
)
def test_a_sound_configuration_is_explained(
    name: str,
    command: str,
    form: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(CONF)
    status, text = printed(capsys, command, f"--format={form}", f"{name}.yaml")
    assert (status, text) == (0, golden(f"{name}.{command}.{form}", text, request))


def test_there_are_as_many_kinds_of_mistakes_as_promised() -> None:
    assert len(BROKEN) >= 10
