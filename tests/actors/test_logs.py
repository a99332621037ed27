"""Where records go, and from which level on."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pointsman.actors import logs, main
from pointsman.actors.cli import make_parser
from pointsman.actors.logs import Form, everything_logged, level_of, set_up

WARNING, INFO, DEBUG = logging.WARNING, logging.INFO, logging.DEBUG


@pytest.mark.parametrize(
    ("verbosity", "level"),
    [(0, WARNING), (1, WARNING), (2, INFO), (3, INFO), (4, DEBUG), (9, DEBUG), (-1, INFO)],
)
def test_verbosity_is_the_reference_s(verbosity: int, level: int) -> None:
    assert level_of(verbosity) == level


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the daemon would have set up; it does not run."""
    chosen: dict[str, Any] = {}

    def note(level: int, form: Form | None) -> None:
        chosen.update(level=level, form=form)

    def run(*_: object) -> int:
        return 0

    monkeypatch.setattr(logs, "set_up", note)
    monkeypatch.setattr(main, "_run", run)
    return chosen


@pytest.mark.parametrize(
    ("flags", "level", "form"),
    [
        ([], INFO, None),
        (["-v=4"], DEBUG, None),
        (["--zap-log-level=error"], logging.ERROR, None),
        (["--zap-log-level=info", "-v=9"], INFO, None),
        (["--zap-log-level", "5", "-v=1"], DEBUG, None),
        (["--zap-log-level=1"], WARNING, None),
        (["--zap-log-level=panic"], logging.CRITICAL, None),
        (["--log-format=json"], INFO, Form.JSON),
        (["--log-format", "text"], INFO, Form.TEXT),
        (["--zap-encoder=console"], INFO, Form.TEXT),
        (["--zap-encoder=console", "--log-format=json"], INFO, Form.JSON),
        (
            ["--zap-devel", "--zap-stacktrace-level=error", "--zap-time-encoding=iso8601"],
            INFO,
            None,
        ),
    ],
)
def test_flags_choose_level_and_form(
    chosen: dict[str, Any], flags: list[str], level: int, form: Form | None
) -> None:
    assert main.run(["serve", *flags]) == 0
    assert chosen == {"level": level, "form": form}


@pytest.mark.parametrize("flag", ["--zap-log-level=loud", "--log-format=xml", "--zap-log-level=-1"])
def test_what_is_no_level_or_form_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser()[0].parse_args(["serve", flag])
    assert ended.value.code == 2
    assert "is neither" in capsys.readouterr().err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Generator[logging.Logger]:
    """A root logger with nothing set up yet."""
    root = logging.getLogger()
    before, level, root.handlers = root.handlers, root.level, []
    noisy = {name: logging.getLogger(name).level for name in logs.QUIET}
    yield root
    root.handlers = before
    root.setLevel(level)
    for name, quiet in noisy.items():
        logging.getLogger(name).setLevel(quiet)


@pytest.fixture
def said(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a daemon at the usual level writes to stderr."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    set_up(INFO)
    return stderr


def records(said: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_records_are_json_lines_unless_people_read_them(
    said: io.StringIO, root: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger("a").info("one")
    assert [record["msg"] for record in records(said)] == ["one"]
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    root.handlers = []
    set_up(INFO)
    logging.getLogger("a").info("two")
    assert terminal.getvalue().endswith("INFO  a: two\n")


def test_libraries_have_nothing_to_say_about_each_request(said: io.StringIO) -> None:
    logging.getLogger("httpx").info("GET /metrics")
    logging.getLogger("hpack").debug("decoded")
    assert records(said) == []


def test_what_ends_a_thread_is_a_record(said: io.StringIO) -> None:
    def crash() -> None:
        raise ValueError("SECRETPROMPT")

    with everything_logged():
        thread = threading.Thread(target=crash)
        thread.start()
        thread.join()
    (record,) = records(said)
    assert (record["msg"], record["error"]) == ("a thread ended by an exception", "ValueError")


class Unraisable:
    def __del__(self) -> None:
        raise ValueError("SECRETPROMPT")


def test_what_cannot_be_raised_is_a_record(said: io.StringIO) -> None:
    with everything_logged():
        Unraisable()
    (record,) = records(said)
    assert (record["level"], record["error"]) == ("error", "ValueError")


def test_a_warning_is_a_record(said: io.StringIO) -> None:
    with everything_logged(), warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)  # catch_warnings put the usual way back in its place
        logging.captureWarnings(True)
        warnings.warn("old\nways", stacklevel=1)
    (record,) = records(said)
    assert record["logger"] == "py.warnings"
    assert "old\nways" in record["msg"]


def test_afterwards_python_prints_by_itself_again(said: io.StringIO) -> None:
    before = sys.unraisablehook, threading.excepthook, warnings.showwarning
    with everything_logged():
        assert sys.unraisablehook is not before[0]
    assert (sys.unraisablehook, threading.excepthook, warnings.showwarning) == before


def test_a_bug_that_ends_the_daemon_is_a_record(
    said: io.StringIO, root: logging.Logger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*_: object) -> int:
        raise ExceptionGroup("SECRETPROMPT", [ZeroDivisionError()])

    monkeypatch.setattr(main, "_run", run)
    assert main.run(["serve"]) == 1
    (record,) = records(said)
    assert (record["level"], record["error"]) == ("fatal", "ExceptionGroup")
    assert "ZeroDivisionError" in record["stacktrace"]
