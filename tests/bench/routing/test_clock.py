"""Virtual time."""

from __future__ import annotations

from functools import partial

import pytest

from .clock import Clock

pytestmark = pytest.mark.long


def test_actions_run_at_their_times_and_in_the_order_of_asking() -> None:
    clock = Clock()
    ran: list[tuple[float, str]] = []

    def note(name: str) -> None:
        ran.append((clock.now, name))

    for at, name in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.5, "b")]:
        clock.at(at, partial(note, name))
    clock.run()
    assert ran == [(1.0, "a"), (1.5, "b"), (2.0, "c"), (2.0, "d")]


def test_what_is_asked_for_the_past_happens_now() -> None:
    clock = Clock()
    ran: list[float] = []
    clock.at(3.0, lambda: clock.at(1.0, lambda: ran.append(clock.now)))
    clock.run()
    assert ran == [3.0]


def test_time_stands_still_as_soon_as_it_is_told_to() -> None:
    clock = Clock()
    clock.at(1.0, lambda: None)
    clock.after(5.0, lambda: None)
    clock.run(until=lambda: clock.now >= 1.0)
    assert clock.now == 1.0
