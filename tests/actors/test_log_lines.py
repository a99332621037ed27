"""A record is a line, whatever is in it."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.log_lines import FIELD_LIMIT, MESSAGE_LIMIT, JsonLines, TextLines
from pointsman.kernel.errors import KernelError

MOMENT = 1_790_000_000.25
FORGED = 'm\n{"level":"error","msg":"forged"}'


def record(message: str, *args: object, **more: Any) -> logging.LogRecord:
    """As a logger makes them."""
    made = logging.getLogger("pointsman.test").makeRecord(
        "pointsman.test",
        more.pop("level", logging.INFO),
        "/somewhere/session.py",
        12,
        message,
        args,
        more.pop("exc_info", None),
        extra=more,
    )
    made.created = MOMENT
    return made


def as_json(*args: Any, texts: bool = False, **more: Any) -> dict[str, Any]:
    line = JsonLines(texts=texts).format(record(*args, **more))
    assert line.isascii()
    assert line.isprintable()
    read: dict[str, Any] = json.loads(line)
    return read


def as_text(*args: Any, texts: bool = False, **more: Any) -> str:
    return TextLines(texts=texts).format(record(*args, **more))


def raised(work: Callable[[], object]) -> Any:
    try:
        work()
    except BaseException:
        return sys.exc_info()
    raise AssertionError("nothing was raised")


def test_json_has_the_reference_s_names() -> None:
    assert as_json("ready: %d endpoints", 3, fields={"model": "llama", "score": 0.5}) == {
        "ts": "2026-09-21T14:13:20.250Z",
        "level": "info",
        "logger": "pointsman.test",
        "caller": "session.py:12",
        "msg": "ready: 3 endpoints",
        "model": "llama",
        "score": 0.5,
    }


def test_text_is_for_people() -> None:
    assert as_text("ready", level=logging.WARNING, fields={"model": "a b", "score": 0.5}) == (
        '2026-09-21T14:13:20.250Z WARN  pointsman.test: ready model="a b" score=0.5'
    )


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (logging.DEBUG, "debug"),
        (logging.WARNING, "warn"),
        (logging.ERROR, "error"),
        (logging.CRITICAL, "fatal"),
    ],
)
def test_levels_have_the_reference_s_names(level: int, name: str) -> None:
    assert as_json("x", level=level)["level"] == name


def test_z_04_a_forged_record_stays_in_its_line() -> None:
    asked = "id" + "\r\n\u2028" * 5000
    said = as_json("picked for %s", FORGED, fields={"request_id": asked})
    assert said["msg"] == f"picked for {FORGED}"
    assert len(said["request_id"]) < FIELD_LIMIT + 30
    text = as_text("picked for %s", FORGED, fields={"request_id": asked})
    assert len(text.splitlines()) == 1
    assert len(text) < 2000


@given(st.text(), st.text())
def test_z_04_nothing_in_a_value_makes_another_line_or_moves_a_cursor(a: str, b: str) -> None:
    as_json("said %s", a, fields={"name": b})
    assert as_text("said %s", a, fields={"name": b}).isprintable()


@given(st.text())
def test_a_field_in_text_is_one_word_or_quoted(value: str) -> None:
    text = as_text("x", fields={"name": value}).partition(" name=")[2]
    assert (
        re.fullmatch(r'[^\s="]+', text)
        or json.loads(text) == value[:FIELD_LIMIT]
        or (len(value) > FIELD_LIMIT)
    )


def test_long_values_are_cut() -> None:
    said = as_json("m" * 100_000, fields={"model": "x" * 100_000})
    assert said["msg"] == "m" * MESSAGE_LIMIT + f"... ({100_000 - MESSAGE_LIMIT} more)"
    assert said["model"] == "x" * FIELD_LIMIT + f"... ({100_000 - FIELD_LIMIT} more)"


def test_fields_keep_what_json_can_say() -> None:
    fields = {"a": None, "b": True, "c": 7, "d": 0.5, "e": float("nan"), "f": b"\xff", "g": [1]}
    said = as_json("x", fields=fields)
    assert [said[name] for name in fields] == [None, True, 7, 0.5, "nan", r"b'\xff'", "[1]"]


def test_a_field_does_not_take_the_place_of_what_every_record_has() -> None:
    assert as_json("true", fields={"msg": "false", "level": "error"})["msg"] == "true"


def test_a_mistake_in_a_logging_call_costs_no_record() -> None:
    assert as_json("%d endpoints", "many")["msg"] == "%d endpoints"


# -- exceptions --------------------------------------------------------------------------------


def crash() -> None:
    raise ValueError("SECRETPROMPT")


def crash_later() -> None:
    try:
        crash()
    except ValueError as exc:
        raise RuntimeError("SECRETPROMPT again") from exc


def crash_in_a_group() -> None:
    parts: list[Exception] = [raised(crash_later)[1], KernelError("ours\nis harmless")]
    raise ExceptionGroup("SECRETPROMPT group", parts)


def test_an_exception_is_in_the_record_of_its_own() -> None:
    said = as_json("failed", exc_info=raised(crash))
    assert said["error"] == "ValueError"
    assert re.search(r"test_log_lines\.py:\d+ in crash\nValueError$", said["stacktrace"])


@pytest.mark.parametrize("work", [crash, crash_later, crash_in_a_group])
def test_z_03_texts_of_exceptions_are_for_debugging_only(work: Callable[[], None]) -> None:
    info = raised(work)
    assert "SECRETPROMPT" not in json.dumps(as_json("failed", exc_info=info))
    assert "SECRETPROMPT" not in as_text("failed", exc_info=info)
    assert "SECRETPROMPT" in as_json("failed", exc_info=info, texts=True)["stacktrace"]


def test_errors_of_our_own_and_of_the_system_keep_their_texts() -> None:
    said = as_json("failed", exc_info=raised(crash_in_a_group))
    assert "KernelError: ours\nis harmless" in said["stacktrace"]
    assert as_json("x", exc_info=(OSError, OSError(98, "in use"), None))["error"] == (
        "OSError: [Errno 98] in use"
    )


def test_what_led_to_an_exception_comes_first() -> None:
    lines = as_json("x", exc_info=raised(crash_later))["stacktrace"].splitlines()
    told = [line for line in lines if not line.startswith("  ")]
    assert told == ["ValueError", "which led to:", "RuntimeError"]


def test_a_traceback_in_text_is_indented_and_escaped() -> None:
    first, *rest = as_text("failed", exc_info=raised(crash_in_a_group)).split("\n")
    assert first.endswith("pointsman.test: failed")
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    assert "      | KernelError: ours\\nis harmless" in rest


def test_exceptions_that_go_on_and_on_are_cut() -> None:
    def deep(left: int) -> None:
        try:
            if left:
                deep(left - 1)
        finally:
            raise RuntimeError(str(left))

    stack = as_json("x", exc_info=raised(lambda: deep(300)))["stacktrace"]
    assert len(stack) < 17_000
