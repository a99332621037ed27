"""Changes are taken in once, when they have come to an end."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.settling import Settling


def taken(start: str | None, looks: list[str | None]) -> list[str | None]:
    settling = Settling(start)
    return [settling.look(value) for value in looks]


def test_a_change_is_taken_in_at_the_second_look() -> None:
    assert taken("a", ["a", "b", "b", "b"]) == [None, None, "b", None]


def test_what_goes_on_changing_is_waited_for() -> None:
    assert taken("a", ["b", "bc", "bcd", "bcd"]) == [None, None, None, "bcd"]


def test_a_gap_is_no_change() -> None:
    assert taken("a", [None, None, "a", "a"]) == [None, None, None, None]


def test_what_is_there_at_last_is_taken_in() -> None:
    assert taken(None, ["a", "a"]) == [None, "a"]


VALUES = st.sampled_from(["a", "b", None])


@given(VALUES, st.lists(VALUES))
def test_whatever_happened_what_stays_is_in_use(start: str | None, looks: list[str | None]) -> None:
    settling = Settling(start)
    for value in looks:
        settling.look(value)
    settling.look("last")
    settling.look("last")
    assert settling.used == "last"


@given(VALUES, st.lists(VALUES))
def test_nothing_is_taken_in_twice_in_a_row(start: str | None, looks: list[str | None]) -> None:
    settling = Settling(start)
    used = [start, *(value for value in map(settling.look, looks) if value is not None)]
    assert all(one != other for one, other in pairwise(used))
