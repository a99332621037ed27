"""Structs as plain values, and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import share

from pointsman.proto import Json, Struct, Value, decode, encode, struct_of, values_of

from . import oracle

json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=share(0.4))
@given(values=st.dictionaries(st.text(max_size=5), json))
def test_values_survive_the_way_through_the_wire(values: dict[str, Json]) -> None:
    assert values_of(decode(Struct, encode(struct_of(values)))) == values


@settings(max_examples=share(0.4))
@given(values=st.dictionaries(st.text(max_size=5), json, max_size=3))
def test_a_struct_is_what_the_official_runtime_makes_of_the_values(values: dict[str, Json]) -> None:
    theirs = oracle.new(Struct)
    theirs.update(values)
    assert oracle.parse(Struct, encode(struct_of(values))) == theirs


@pytest.mark.parametrize("value", [True, False, 0.0, "", None])
def test_what_counts_as_false_is_still_a_value(value: Json) -> None:
    assert values_of(struct_of({"key": value})) == {"key": value}


def test_whole_numbers_are_numbers() -> None:
    assert values_of(struct_of({"port": 8000})) == {"port": 8000.0}


def test_a_field_that_was_sent_without_a_value_is_none() -> None:
    assert values_of(Struct(fields={"key": Value()})) == {"key": None}
