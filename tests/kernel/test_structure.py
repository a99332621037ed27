"""Document data into settings: strict, and with all mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.document import Path, read_document
from pointsman.kernel.structure import (
    Duration,
    FieldError,
    Quantity,
    above,
    at_least,
    not_blank,
    one_of,
    parse_duration,
    parse_quantity,
    structure,
    unknown_name,
    within,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("1m30s", 90),
        ("1h0.5m", 3630),
        ("0s", 0),
        ("0", 0),
        ("-5s", -5),
        ("+1.5s", 1.5),
        (".5s", 0.5),
        ("3us", 3e-6),
        ("3µs", 3e-6),
        ("7ns", 7e-9),
    ],
)
def test_durations_are_written_as_go_does(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "abc", "5", "5 s", "5s ", "1m 30s", "s", "-", "--5s", "1d", "٣s", "5s\n", "1e3s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration such as '200ms'"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9" * 400 + "h", "2562048h", "-2562048h"])
def test_a_duration_is_as_long_as_go_can_count(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is less than 292 years"):
        parse_duration(text)


@given(st.floats(0, 10**8), st.sampled_from(["ns", "us", "ms", "s", "m"]))
def test_a_duration_is_its_number_of_units(number: float, unit: str) -> None:
    factor = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[unit]
    assert parse_duration(f"{number:f}{unit}") == pytest.approx(float(f"{number:f}") * factor)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5000, 5000),
        ("5000", 5000),
        ("0", 0),
        ("10Mi", 10 * 2**20),
        ("1G", 10**9),
        ("2k", 2000),
        ("1.5Ki", 1536),
        ("1.001k", 1001),
        ("1500m", 2),
        ("1m", 1),
        ("0.1", 1),
        ("7E", 7 * 10**18),
        (2**63 - 1, 2**63 - 1),
    ],
)
def test_quantities_are_written_as_kubernetes_does(value: str | int, number: int) -> None:
    assert parse_quantity(value) == number


@pytest.mark.parametrize("value", ["", "abc", "10MiB", "1 G", "5\n", "٣", "1.G", "Mi", "1e3", "∞"])
def test_what_is_no_quantity_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is no quantity such as '5000'"):
        parse_quantity(value)


@pytest.mark.parametrize("value", ["-1", -1, "-0.1", 2**63, "8Ei", "99999999999999G"])
def test_a_quantity_is_within_64_bits(value: str | int) -> None:
    with pytest.raises(ValueError, match="is out of range"):
        parse_quantity(value)


@given(st.text(alphabet="0123456789.-mkKMGTPEinsuh", max_size=12))
def test_any_text_is_a_number_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_quantity):
        try:
            number = parse(text)
        except ValueError:
            continue
        assert abs(number) < 2**63


def test_an_error_of_a_field_is_told_by_its_message() -> None:
    assert str(FieldError("name", "must not be empty")) == "must not be empty"


@frozen(kw_only=True)
class Inner:
    size: int
    ratio: float = field(default=0.5, validator=within(0, 1))
    at: Path = field(default=(), eq=False)


@frozen(kw_only=True)
class Outer:
    name: str = field(default="x", validator=not_blank)
    some_flag: bool = False
    mode: str = field(default="a", validator=one_of("a", "b"))
    wait: Duration | None = field(default=None, validator=at_least(0))
    pause: Duration = field(default=Duration(1), validator=above(0), metadata={"key": "thePause"})
    room: Quantity = Quantity(7)
    inner: Inner | None = None
    inners: tuple[Inner, ...] = ()
    names: Mapping[str, str] = field(factory=dict[str, str])
    anything: Any = None

    def __attrs_post_init__(self) -> None:
        if self.some_flag and self.mode == "b":
            raise ValueError("someFlag and mode b do not go together")


def read(text: str) -> Outer | None:
    document = read_document(text, "test")
    made = structure(document, document.data, Outer)
    assert document.mistakes == []
    return made


def mistakes(text: str) -> list[tuple[str, str]]:
    """Path and message of what is wrong with *text*."""
    document = read_document(text, "test")
    structure(document, document.data, Outer)
    return [(mistake.path, mistake.message) for mistake in document.mistakes]


def test_names_are_camel_case_unless_said_otherwise() -> None:
    assert read("{someFlag: true, thePause: 2s}") == Outer(some_flag=True, pause=Duration(2))


def test_values_have_their_types() -> None:
    made = read("{wait: 0s, room: 1Ki, inner: {size: 3, ratio: 1}, names: {a: b}, anything: [1]}")
    assert made == Outer(
        wait=Duration(0),
        room=Quantity(1024),
        inner=Inner(size=3, ratio=1),
        names={"a": "b"},
        anything=[1],
    )


def test_null_is_what_is_left_out() -> None:
    assert read("{name: null, inner: null, room: null, inners: }") == Outer()


def test_zero_is_not_what_is_left_out() -> None:
    made = read("{wait: 0s, room: 0, name: '0'}")
    assert made is not None
    assert (made.wait, made.room, made.name) == (Duration(0), Quantity(0), "0")


def test_a_part_knows_where_it_stands() -> None:
    made = read("inners:\n- size: 1\n- size: 2\n")
    assert made is not None
    assert [inner.at for inner in made.inners] == [("inners", 0), ("inners", 1)]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("name: 5", "name", "must be a text, not 5"),
        ("someFlag: 'true'", "someFlag", "must be true or false, not 'true'"),
        ("someFlag: 1", "someFlag", "must be true or false, not 1"),
        ("inner: {size: '3'}", "inner.size", "must be a whole number, not '3'"),
        ("inner: {size: true}", "inner.size", "must be a whole number, not True"),
        ("inner: {size: 1.5}", "inner.size", "must be a whole number, not 1.5"),
        ("inner: {size: 1, ratio: x}", "inner.ratio", "must be a number, not 'x'"),
        ("inner: []", "inner", "must be a mapping, not a list"),
        ("inners: {size: 1}", "inners", "must be a list, not a mapping"),
        ("inners: abc", "inners", "must be a list, not 'abc'"),
        ("inners: [3]", "inners[0]", "must be a mapping, not 3"),
        ("names: {a: 1}", "names.a", "must be a text, not 1"),
        ("wait: 5", "wait", "must be a duration such as '200ms', not 5"),
        ("wait: [5s]", "wait", "must be a duration such as '200ms', not a list"),
        ("wait: soon", "wait", "'soon' is no duration such as '200ms' or '1m30s'"),
        ("room: true", "room", "must be a quantity such as '10Mi', not True"),
        ("room: {}", "room", "must be a quantity such as '10Mi', not a mapping"),
        ("room: 10MiB", "room", "'10MiB' is no quantity such as '5000', '10Mi' or '1G'"),
        ("wait: -5s", "wait", "must be at least 0, not -5"),
        ("thePause: 0s", "thePause", "must be above 0, not 0"),
        ("inner: {size: 1, ratio: .nan}", "inner.ratio", "must be from 0 to 1, not nan"),
        ("inner: {size: 1, ratio: 1e9}", "inner.ratio", "must be a number, not '1e9'"),
        ("mode: c", "mode", "must be one of a, b, not 'c'"),
        ("name: '  '", "name", "must not be empty"),
        ("inner: {}", "inner.size", "is required"),
        ("inner: {size: null}", "inner.size", "is required"),
        ("inner: {size: x}", "inner.size", "must be a whole number, not 'x'"),
        ("nmae: x", "nmae", "unknown field"),
        ("nmae:", "nmae", "unknown field"),
        ("pause: 1s", "pause", "unknown field"),
        ("inners: [{size: 1, at: 3}]", "inners[0].at", "unknown field"),
        ("{someFlag: true, mode: b}", "", "someFlag and mode b do not go together"),
        ("[]", "", "must be a mapping, not a list"),
        ("3", "", "must be a mapping, not 3"),
    ],
)
def test_a_mistake_is_told_once_and_where_it_is(text: str, path: str, message: str) -> None:
    assert mistakes(text) == [(path, message)]


def test_an_unknown_field_comes_with_the_nearest_name() -> None:
    document = read_document("someFlagg: true\n", "test")
    structure(document, document.data, Outer)
    (mistake,) = document.mistakes
    assert (mistake.hint, mistake.line) == ("did you mean 'someFlag'?", 1)


BROKEN = """\
nmae: x
mode: c
wait: -1s
inners:
- {size: a}
- size: 1
  ratio: 7
- {ratio: 0.5}
- {size: 2, ratio: 9}
- 3
- {size: 3, ratio: -1}
"""


def test_all_mistakes_come_at_once_with_their_own_lines() -> None:
    """Also those that only show when others are out of the way."""
    document = read_document(BROKEN, "test")
    made = structure(document, document.data, Outer)
    found = {(mistake.path, mistake.line) for mistake in document.mistakes}
    assert found == {
        ("nmae", 1),
        ("mode", 2),
        ("wait", 3),
        ("inners[0].size", 5),
        ("inners[1].ratio", 7),
        ("inners[2].size", 8),
        ("inners[3].ratio", 9),
        ("inners[4]", 10),
        ("inners[5].ratio", 11),
    }
    assert len(document.mistakes) == len(found)
    assert made is not None
    assert [inner.size for inner in made.inners] == [1, 2, 3]
    assert [inner.at for inner in made.inners] == [("inners", n) for n in (1, 3, 5)]


def test_mistakes_in_a_part_are_placed_in_the_whole() -> None:
    document = read_document("a:\n  b:\n    inners: [{}, {size: 1, ratio: 2}]\n", "test")
    structure(document, dict(document.data["a"]["b"]), Outer, ("a", "b"))
    assert [mistake.path for mistake in document.mistakes] == [
        "a.b.inners[0].size",
        "a.b.inners[1].ratio",
    ]


def test_an_unknown_name_comes_with_what_is_known() -> None:
    assert unknown_name("gate", "opne", ["open"]) == (
        "unknown gate 'opne'",
        "did you mean 'open'?",
    )
    assert unknown_name("gate", "zzz", ["open", "shut"])[1] == "known: open, shut"
    assert unknown_name("gate", "zzz", [])[1] == ""


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "5s", "10Mi", "a", "b", "-1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "mode", "wait", "room", "inner", "inners", "size", "ratio", "no"]
            ),
            inner,
        )
    ),
)


@given(VALUES)
def test_any_data_is_structured_or_every_fault_of_it_told_once(data: Any) -> None:
    document = read_document("", "test")
    made = structure(document, data, Outer)
    places = [mistake.path for mistake in document.mistakes]
    assert len(places) == len(set(places))
    assert made is not None or places
