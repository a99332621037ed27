"""One record a request, for those who debug, and never a prompt."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from attrs import define

from pointsman.actors import decision_log
from pointsman.actors.decision_log import DecisionLog
from pointsman.actors.log_lines import JsonLines
from pointsman.actors.session import Session
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint

from .scripts import BASE, Desk, body, opening, pieces, say, wired

SECRETS = ("SECRETPROMPT", "SECRETTOKEN", "SECRETCOOKIE")
OPENING = opening(
    x_request_id="abc", authorization="Bearer SECRETTOKEN", cookie="session=SECRETCOOKIE"
)
PROMPT = body(prompt="SECRETPROMPT")


@define(eq=False)
class Crashing:
    """A scorer that quotes the request when it fails."""

    type_name: ClassVar[str] = "crashing-scorer"

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        raise ValueError("cannot score SECRETPROMPT for Bearer SECRETTOKEN")


def logged(desk: Desk) -> Session:
    session = desk.session()
    session.observer = DecisionLog(session.observer)
    return session


def fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = vars(record)["fields"]
    return found


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == decision_log.__name__]


def test_a_decision_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk()
    desk.queue(9, 0)
    session = logged(desk)
    say(session, OPENING, *pieces(PROMPT, 100))
    session.close()
    (record,) = ours(caplog)
    said = fields(record)
    assert record.getMessage() == "picked"
    assert said.pop("duration_ms") > 0
    assert said == {
        "request_id": "abc",
        "model": "m",
        "priority": 0,
        "path": "/v1/completions",
        "endpoint": "default/pod-1",
        "destination": "10.0.0.2:8000",
        "score": 1.0,
        "candidates": 2,
    }


def test_a_refusal_is_one_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    desk = Desk()
    desk.pool()
    session = logged(desk)
    say(session, OPENING, *pieces(PROMPT, 100))
    session.close()
    session.close()
    (record,) = ours(caplog)
    assert record.getMessage() == "refused"
    assert fields(record) == {
        "request_id": "abc",
        "model": "m",
        "priority": 0,
        "path": "/v1/completions",
        "status": 503,
        "reason": "rejected-no-endpoints",
    }


def test_what_the_observer_behind_wants_to_know_goes_on() -> None:
    desk = Desk()
    session = logged(desk)
    say(session, OPENING, *pieces(PROMPT, 100))
    assert len(desk.decisions) == 1


def test_nobody_asks_for_it_below_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert not decision_log.wanted()
    caplog.set_level(logging.DEBUG)
    assert decision_log.wanted()


@pytest.mark.parametrize(
    ("config", "data"),
    [
        ("plugins: [{type: queue-scorer}]", PROMPT),
        ("plugins: [{type: queue-scorer}]", b'{"prompt": "SECRETPROMPT", "model":'),
        ("plugins: [{type: queue-scorer}]", b'{"prompt": "SECRETPROMPT"}'),
        ("plugins: [{type: crashing-scorer}]", PROMPT),
    ],
    ids=["fine", "broken", "modelless", "plugin crash"],
)
def test_z_03_neither_prompt_nor_secrets_are_told(
    caplog: pytest.LogCaptureFixture, config: str, data: bytes
) -> None:
    """Not at the usual level, in no answer, and not in the decision's record either."""
    caplog.set_level(logging.DEBUG)
    desk = Desk(wired(config, Crashing))
    session = logged(desk)
    answers = say(session, OPENING, *pieces(data, 1000))
    session.close()
    lines = JsonLines(texts=False)
    usual = [lines.format(r) for r in caplog.records if r.levelno >= logging.INFO]
    told = "\n".join([*usual, *map(lines.format, ours(caplog))])
    refusals = repr([a for a in answers if type(a).__name__ == "Refuse"])
    assert ours(caplog)
    assert not [secret for secret in SECRETS if secret in told + refusals]


def test_r_04_a_hundred_cold_endpoints_make_no_line_at_the_usual_level(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    desk = Desk(wired("plugins: [{type: queue-scorer}, {type: prefix-cache-scorer}]"))
    desk.pool(*(f"10.0.1.{number}" for number in range(100)))
    caplog.clear()
    for _ in range(100):
        desk.talk(opening(BASE), *pieces(PROMPT, 1000))
    assert caplog.records == []
