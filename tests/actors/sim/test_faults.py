"""Faults as a value: made-up figures, and changes that are whole or not at all."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.faults import Faults, Figure


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("oscillate:0:10:4s", [0, 5, 10, 5, 0, 5]),
        ("ramp:10:0:4", [10, 7.5, 5, 2.5, 0, 0]),
        ("rampreset:0:8:4", [0, 2, 4, 6, 0, 2]),
        ("squarewave:1:3:4000ms", [1, 1, 3, 3, 1, 1]),
        ("7", [7, 7, 7, 7, 7, 7]),
        (0.5, [0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_a_figure_follows_its_shape(text: str | float, values: list[float]) -> None:
    figure = Figure.parse(text)
    assert [figure.at(second) for second in range(6)] == pytest.approx(values)


@pytest.mark.parametrize(
    "text", ["sine:0:1:2", "ramp:0:1", "ramp:0:1:0", "ramp:0:1:2y", "ramp:a:1:2", "1.2.3", ""]
)
def test_what_is_no_figure_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Figure.parse(text)


@given(st.text() | st.from_regex(r"[a-z]{4,10}(:[0-9.]{1,4}){3}[ms]?", fullmatch=True))
def test_parsing_a_figure_fails_in_one_way_only(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(Figure.parse(text).at(1.0), float)


def test_a_change_leaves_alone_what_it_does_not_name() -> None:
    before = Faults(failure_rate=5, waiting=3)
    assert before.patched(b'{"failure_rate": 7.5}') == Faults(failure_rate=7.5, waiting=3)
    assert before.patched(b'{"waiting": null}') == Faults(failure_rate=5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"failure_rate": 7, "metrics_fault": "explode"}', "metrics_fault"),
        (b'{"failure_rate": 101}', "failure_rate"),
        (b'{"failure_types": []}', "failure_types"),
        (b'{"fail": 1}', "unknown field `fail`"),
        (b'{"kv": "wave:1:2:3"}', "kv"),
        (b"[]", "object"),
        (b"{", "truncated"),
    ],
)
def test_a_wrong_change_says_what_is_wrong(body: bytes, reason: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=reason):
        Faults().patched(body)
