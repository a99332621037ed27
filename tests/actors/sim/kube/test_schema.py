"""Schemas of custom kinds."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from pointsman.actors.sim.kube.schema import Schema


def schema(**spec: Any) -> Schema:
    return Schema.of({"type": "object", "properties": {"spec": {"type": "object", **spec}}})


def wrong(part: Any, value: Any) -> list[tuple[str, str]]:
    """Where and how a field of that schema may not have that value."""
    complaints = schema(properties={"f": part}).complaints({"spec": {"f": value}})
    return [(complaint.field, complaint.reason) for complaint in complaints]


@pytest.mark.parametrize(
    ("part", "good", "bad"),
    [
        ({"type": "string"}, "a", 1),
        ({"type": "integer"}, 1, 1.5),
        ({"type": "integer"}, 2.0, True),
        ({"type": "number"}, 1.5, "1.5"),
        ({"type": "boolean"}, False, 0),
        ({"type": "array"}, [], {}),
        ({"type": "object"}, {}, []),
        ({"type": "string", "nullable": True}, None, 1),
        ({"type": "string"}, "", None),
        ({"x-kubernetes-int-or-string": True}, "10%", 1.5),
        ({"enum": ["a", "b"]}, "a", "c"),
        ({"type": "string", "pattern": "^a+$"}, "aa", "aa\n"),
        ({"type": "string", "minLength": 2}, "ab", "a"),
        ({"type": "string", "maxLength": 2}, "ab", "abc"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, 3, 4),
        ({"type": "integer", "minimum": 1}, 1, 0),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": True}, 0, 1),
        ({"type": "integer", "multipleOf": 4}, 8, 6),
        ({"type": "integer", "format": "int32"}, 2**31 - 1, 2**31),
        ({"type": "array", "minItems": 1}, [1], []),
        ({"type": "array", "maxItems": 1}, [1], [1, 2]),
        ({"type": "array", "x-kubernetes-list-type": "set"}, [1, 2], [1, 1]),
        ({"type": "array", "items": {"type": "string"}}, ["a"], ["a", 1]),
        ({"type": "object", "minProperties": 1}, {"a": 1}, {}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"a": "b"}, {"a": 1}),
        ({"type": "object", "required": ["a"], "properties": {"a": {}}}, {"a": 1}, {}),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"c": 1}),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "b": 1}),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, 4),
        ({"not": {"enum": ["a"]}}, "b", "a"),
    ],
)
def test_a_value_fits_its_schema_or_not(part: Any, good: Any, bad: Any) -> None:
    assert wrong(part, good) == []
    assert wrong(part, bad) != []


def test_a_complaint_names_the_place() -> None:
    ports = {"type": "array", "items": {"type": "object", "required": ["n"]}}
    assert wrong(ports, [{"n": 1}, {}]) == [("spec.f[1].n", "FieldValueRequired")]


def test_items_of_a_map_list_have_keys_of_their_own() -> None:
    part: dict[str, Any] = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {"type": "object"},
    }
    assert wrong(part, [{"type": "A"}, {"type": "B"}]) == []
    assert wrong(part, [{"type": "A"}, {"type": "A"}]) == [("spec.f[1]", "FieldValueDuplicate")]


def test_all_complaints_come_at_once() -> None:
    checked = schema(properties={"a": {"type": "string"}, "b": {"minimum": 1}}, required=["c"])
    fields = {complaint.field for complaint in checked.complaints({"spec": {"a": 1, "b": 0}})}
    assert fields == {"spec.a", "spec.b", "spec.c"}


def test_defaults_are_filled_in_where_there_is_something_around_them() -> None:
    inner: Any = {"type": "object", "properties": {"x": {"default": 1}, "y": {"default": [2]}}}
    obj: dict[str, Any] = {"spec": {"inner": {"x": 5}, "list": [{}]}}
    schema(
        properties={
            "inner": inner,
            "missing": inner,
            "list": {"type": "array", "items": inner},
            "given": {"default": {"x": 3}},
        }
    ).fill_in(obj)
    assert obj["spec"] == {
        "inner": {"x": 5, "y": [2]},
        "list": [{"x": 1, "y": [2]}],
        "given": {"x": 3},
    }


def test_a_default_is_not_shared_between_objects() -> None:
    filled = schema(properties={"list": {"default": []}})
    first: Any = {"spec": {}}
    second: Any = {"spec": {}}
    filled.fill_in(first)
    filled.fill_in(second)
    first["spec"]["list"].append(1)
    assert second == {"spec": {"list": []}}


def test_unknown_fields_are_dropped_and_named() -> None:
    obj: Any = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "a", "odd": 1},
        "odd": 1,
        "spec": {"known": {"odd": 1}, "list": [{"odd": 1}], "free": {"odd": 1}, "map": {"odd": 1}},
    }
    part: dict[str, Any] = {"type": "object", "properties": {}}
    dropped = schema(
        properties={
            "known": part,
            "list": {"type": "array", "items": part},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }
    ).prune(obj)
    assert dropped == ["odd", "spec.known.odd", "spec.list[0].odd"]
    assert obj == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"name": "a", "odd": 1},
        "spec": {"known": {}, "list": [{}], "free": {"odd": 1}, "map": {"odd": 1}},
    }


def test_a_rule_speaks_with_its_own_words() -> None:
    rules = [{"rule": "self.a < self.b", "message": "a must be below b"}]
    checked = schema(**{"x-kubernetes-validations": rules})
    assert checked.complaints({"spec": {"a": 1, "b": 2}}) == []
    (complaint,) = checked.complaints({"spec": {"a": 2, "b": 2}})
    assert complaint.field == "spec"
    assert complaint.message.endswith(": a must be below b")


def test_a_rule_that_cannot_be_evaluated_is_not_met() -> None:
    checked = schema(**{"x-kubernetes-validations": [{"rule": "self.missing"}]})
    (complaint,) = checked.complaints({"spec": {}})
    assert "no such key: missing" in complaint.message


def test_a_rule_about_changes_is_silent_about_new_objects() -> None:
    part = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    checked = schema(properties={"f": part})
    assert checked.complaints({"spec": {"f": "b"}}) == []
    assert checked.complaints({"spec": {"f": "b"}}, {"spec": {"f": "b"}}) == []
    (complaint,) = checked.complaints({"spec": {"f": "b"}}, {"spec": {"f": "a"}})
    assert complaint.message == 'Invalid value: "b": failed rule: self == oldSelf'


def test_a_rule_in_an_unknown_dialect_is_left_out_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        checked = schema(**{"x-kubernetes-validations": [{"rule": "quantity(self.a) > 1"}]})
    assert checked.complaints({"spec": {}}) == []
    assert "a validation rule is not applied: quantity(self.a) > 1" in caplog.text
