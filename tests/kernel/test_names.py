"""Names as labels. Z-01 is a field report whose fault a test keeps away."""

from __future__ import annotations

from pointsman.kernel.names import LONGEST_NAME, Names


def test_the_first_so_many_names_are_told_apart() -> None:
    names = Names(most=2)
    assert [names.label(name) for name in ("a", "b", "a", "c", "a")] == [
        "a",
        "b",
        "a",
        "other",
        "a",
    ]


def test_no_name_stays_no_name() -> None:
    names = Names(most=0)
    assert names.label("") == ""


def test_z_01_a_name_of_a_megabyte_is_other() -> None:
    names = Names()
    assert names.label("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    assert names.label("x" * 1_000_000) == "other"


def test_a_name_that_cannot_be_written_down_is_other() -> None:
    assert Names().label(b"caf\xe9".decode("utf-8", "surrogateescape")) == "other"


def test_pinned_names_take_no_place_and_keep_their_own() -> None:
    names = Names(most=1)
    names.pin(["p", "q"])
    assert [names.label(name) for name in ("p", "a", "q", "b")] == ["p", "a", "q", "other"]
