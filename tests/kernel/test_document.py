"""Configuration texts as data that knows its lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.document import Document, Table, plain, read_document, spell
from pointsman.kernel.errors import ConfigError, Mistake

TEXT = """\
# a comment
plugins:
- type: a
  parameters: {x: 1, y: [2, 3]}

- type: b
"""


def read(text: str) -> Document:
    return read_document(text, "test.yaml")


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        read(text).refuse_if_mistaken()
    return raised.value


def test_everything_knows_its_line() -> None:
    document = read(TEXT)
    lines = {
        ("plugins",): 2,
        ("plugins", 0): 3,
        ("plugins", 0, "parameters", "y", 1): 4,
        ("plugins", 1): 6,
        ("plugins", 1, "type"): 6,
    }
    assert {path: document.line(path) for path in lines} == lines


def test_what_is_not_there_has_the_line_of_what_is_around_it() -> None:
    assert read(TEXT).line(("plugins", 1, "parameters", "z")) == 6
    assert read("").line(("anything",)) is None


def test_tables_know_their_place() -> None:
    document = read(TEXT)
    assert document.data["plugins"][1].path == ("plugins", 1)


def test_a_path_is_spelled_as_people_write_it() -> None:
    assert spell(("plugins", 2, "parameters", "a")) == "plugins[2].parameters.a"
    assert spell(()) == ""


def test_an_empty_text_is_no_data() -> None:
    assert read("# nothing\n").data is None


def test_a_key_that_stands_twice_is_a_mistake() -> None:
    document = read("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n")
    assert plain(document.data) == {"a": 1, "b": {"c": 1}}
    assert [(m.path, m.line) for m in document.mistakes] == [("b.c", 4), ("a", 5)]


def test_mistakes_are_told_in_the_order_of_their_lines() -> None:
    document = read(TEXT)
    document.blame(("plugins", 1), "second")
    document.blame(("plugins", 0, "type"), "first", "a hint")
    with pytest.raises(ConfigError) as raised:
        document.refuse_if_mistaken()
    assert str(raised.value).splitlines() == [
        "test.yaml: line 3: plugins[0].type: first (a hint)",
        "test.yaml: line 6: plugins[1]: second",
    ]


def test_a_document_without_mistakes_is_not_refused() -> None:
    read(TEXT).refuse_if_mistaken()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1,\nb: 2", 2),
        ("a: 1\n\tb: 2", 2),
        ('{"a": 1', 1),
        ("a: &x\n- *y\n", 2),
        ("--- a\n--- b\n", 2),
        ("a: \0", None),
        ("[" * 600, 1),
        ("[" * 900 + "]" * 900, None),
        ("- " * 9000, 1),
    ],
    ids=[
        "open list",
        "tab",
        "open JSON",
        "no such anchor",
        "two documents",
        "NUL",
        "deep",
        "deep in reading",
        "deep block",
    ],
)
def test_what_is_neither_yaml_nor_json_is_refused_with_its_line(
    text: str, line: int | None
) -> None:
    (mistake,) = refusal(text).mistakes
    assert mistake.message.startswith("not valid YAML or JSON: ")
    assert mistake.line == line


def test_json_is_read_with_lines() -> None:
    document = read('{\n\t"a": [1.5, true, null],\n\t"b": "x\\ty"\n}')
    assert plain(document.data) == {"a": [1.5, True, None], "b": "x\ty"}
    assert document.line(("b",)) == 3


def test_anchors_are_followed() -> None:
    assert plain(read("a: &x {b: 1}\nc: *x\n").data) == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_circle_of_anchors_is_a_mistake() -> None:
    (mistake,) = refusal("a: &x\n  b: *x\n").mistakes
    assert mistake.message == "this alias refers to something that contains it"
    assert mistake.path == "a.b"


def test_merge_keys_are_a_mistake() -> None:
    (mistake,) = refusal("a: &x {b: 1}\nc:\n  <<: *x\n").mistakes
    assert (mistake.message, mistake.line) == ("merge keys (<<) are not supported", 3)


@pytest.mark.parametrize(
    "value",
    [
        "!!python/object:os.system x",
        "!!int abc",
        '!!int ""',
        "!!bool maybe",
        "!!float x",
        "!!timestamp soon",
        "2001-99-99",
        "=",
        "!!binary €",
    ],
)
def test_a_value_that_cannot_be_read_is_a_mistake(value: str) -> None:
    (mistake,) = refusal(f"fine: 1\na: {value}\n").mistakes
    assert mistake.message.startswith("unreadable value: ")
    assert (mistake.path, mistake.line) == ("a", 2)


def test_keys_are_texts() -> None:
    assert plain(read("1: a\n[x]: b\n").data)["1"] == "a"  # type: ignore[index]


# What YAML cannot have in a text, JSON has to escape: controls and other line ends.
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 2, "\t"]))
def test_json_means_what_it_means_elsewhere(value: Any, indent: int | str | None) -> None:
    text = json.dumps({"value": value}, indent=indent, ensure_ascii=False)
    assert plain(read(text).data) == {"value": value}


@given(JSON)
def test_yaml_means_what_it_means_elsewhere(value: Any) -> None:
    text = str(yaml.safe_dump({"value": value}))  # pyright: ignore[reportUnknownMemberType]
    assert plain(read(text).data) == {"value": value}


@given(st.text(alphabet="ab:-[]{}&*!<>|'\"#%@ \n\t,?~0.5"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        document = read(text)
    except ConfigError:
        return
    plain(document.data)


def test_a_mistake_says_what_it_knows() -> None:
    assert str(Mistake("bad")) == "bad"
    assert str(Mistake("bad", "a.b", 3, "try c")) == "line 3: a.b: bad (try c)"


def test_plain_data_is_a_copy() -> None:
    table = Table(("a",))
    table["b"] = [Table(("a", "b", 0))]
    copy = plain(table)
    assert type(copy) is dict
    assert copy == {"b": [{}]}
