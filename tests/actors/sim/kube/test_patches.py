"""Merge, JSON and strategic merge patches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.kube.failures import ApiError
from pointsman.actors.sim.kube.objects import clone
from pointsman.actors.sim.kube.patches import json_patch, merge_patch, strategic_patch


def objects(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(st.text("ab~/", min_size=1, max_size=2), values, max_size=3)


SCALARS = st.booleans() | st.integers(-5, 5) | st.text("ab~/", max_size=3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | objects(inner), max_leaves=8
)


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({}, {"a": None}, {}),
    ],
)
def test_a_merge_patch(old: Any, patch: Any, new: Any) -> None:
    before = clone(old)
    assert merge_patch(patch)(old) == new
    assert old == before


@given(objects(VALUES), objects(VALUES))
def test_a_merge_patch_that_names_everything_makes_the_new_object(old: Any, new: Any) -> None:
    removals = dict.fromkeys(old.keys() - new.keys())
    flat = {name: value for name, value in new.items() if not isinstance(value, dict)}
    patched = merge_patch({**removals, **new})(old)
    assert patched.keys() == new.keys()
    assert {name: patched[name] for name in flat} == flat


@pytest.mark.parametrize(
    ("operations", "new"),
    [
        ([{"op": "add", "path": "/b", "value": 1}], {"a": [1, 2], "b": 1}),
        ([{"op": "add", "path": "/a/1", "value": 9}], {"a": [1, 9, 2]}),
        ([{"op": "add", "path": "/a/-", "value": 9}], {"a": [1, 2, 9]}),
        ([{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "move", "from": "/a/0", "path": "/b"}], {"a": [2], "b": 1}),
        ([{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1, 2], "b": [1, 2]}),
        (
            [
                {"op": "test", "path": "/a/1", "value": 2},
                {"op": "add", "path": "/x~1y~0z", "value": True},
            ],
            {"a": [1, 2], "x/y~z": True},
        ),
    ],
)
def test_a_json_patch(operations: list[Any], new: Any) -> None:
    old = {"a": [1, 2]}
    assert json_patch(operations)(old) == new
    assert old == {"a": [1, 2]}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/b"},
        {"op": "replace", "path": "/a/2", "value": 1},
        {"op": "remove", "path": "/a/-1"},
        {"op": "add", "path": "/a/9", "value": 1},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "add", "path": "/b/c", "value": 1},
        {"op": "test", "path": "/a", "value": [1]},
        {"op": "move", "from": "/b", "path": "/c"},
        {"op": "add", "path": "/a/0/x", "value": 1},
    ],
)
def test_an_operation_that_is_impossible_is_unprocessable(operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch([operation])({"a": [1, 2]})
    assert refused.value.code == 422


@pytest.mark.parametrize(
    "operation",
    [
        "remove",
        {"op": "remove"},
        {"op": "add", "path": "/a"},
        {"op": "leap", "path": "/a"},
        {"op": "remove", "path": "a"},
        {"op": "move", "path": "/a", "from": 1},
    ],
)
def test_what_is_no_operation_is_a_bad_request(operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch([operation])
    assert refused.value.code == 400


@given(objects(VALUES), st.text("ab~/", min_size=1, max_size=2), VALUES)
def test_what_a_json_patch_adds_it_can_remove(old: Any, name: str, value: Any) -> None:
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    added = json_patch([{"op": "add", "path": path, "value": value}])(old)
    assert added == {**old, name: value}
    removed = json_patch([{"op": "remove", "path": path}])(added)
    assert removed == {key: item for key, item in old.items() if key != name}


CONTAINERS: Any = {
    "containers": [
        {"name": "server", "image": "a", "env": [{"name": "X", "value": "1"}]},
        {"name": "sidecar", "image": "b"},
    ]
}


def test_a_strategic_patch_joins_lists_by_their_keys() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "server"}, {"name": "sidecar"}],
        "containers": [{"name": "server", "image": "c", "env": [{"name": "Y", "value": "2"}]}],
    }
    first, second = strategic_patch(patch)(CONTAINERS)["containers"]
    assert first["image"] == "c"
    assert [entry["name"] for entry in first["env"]] == ["X", "Y"]
    assert second == {"name": "sidecar", "image": "b"}


def test_a_strategic_patch_removes_what_it_says() -> None:
    patch = {"containers": [{"$patch": "delete", "name": "server"}]}
    assert strategic_patch(patch)(CONTAINERS) == {"containers": [{"name": "sidecar", "image": "b"}]}


def test_a_strategic_patch_can_replace_a_list() -> None:
    patch = {"containers": [{"$patch": "replace"}, {"name": "only"}]}
    assert strategic_patch(patch)(CONTAINERS) == {"containers": [{"name": "only"}]}


def test_a_strategic_patch_can_replace_an_object() -> None:
    old = {"spec": {"a": 1, "b": 2}}
    assert strategic_patch({"spec": {"$patch": "replace", "c": 3}})(old) == {"spec": {"c": 3}}


def test_a_strategic_patch_keeps_only_what_it_lists() -> None:
    old = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}
    patch = {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}
    assert strategic_patch(patch)(old) == {"strategy": {"type": "Recreate"}}


def test_a_strategic_patch_adds_to_finalizers_and_takes_from_them() -> None:
    old = {"finalizers": ["a", "b"]}
    assert strategic_patch({"finalizers": ["c", "a"]})(old) == {"finalizers": ["a", "b", "c"]}
    patch = {"$deleteFromPrimitiveList/finalizers": ["a"]}
    assert strategic_patch(patch)(old) == {"finalizers": ["b"]}


def test_a_strategic_patch_replaces_lists_that_have_no_keys() -> None:
    assert strategic_patch({"args": ["x"], "gone": None})({"args": ["a", "b"], "gone": 1}) == {
        "args": ["x"]
    }
