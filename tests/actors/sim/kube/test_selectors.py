"""Label and field selectors."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.kube.failures import ApiError
from pointsman.actors.sim.kube.kinds import PODS
from pointsman.actors.sim.kube.selectors import (
    Requirement,
    Selection,
    name_selected,
    parse_fields,
    parse_labels,
)

LABELS = {"app": "llama", "tier": "gpu", "empty": ""}
KEYS = st.from_regex(r"[a-z0-9]([a-z0-9._-]{0,20}[a-z0-9])?", fullmatch=True)
VALUES = st.from_regex(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?)?", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=llama", True),
        ("app==llama", True),
        ("app = llama , tier = gpu", True),
        ("app=llama,tier=cpu", False),
        ("app!=llama", False),
        ("missing!=llama", True),
        ("app in (llama, mistral)", True),
        ("app in(llama)", True),
        ("app in (mistral)", False),
        ("app notin (mistral,qwen)", True),
        ("missing notin (a)", True),
        ("app", True),
        ("missing", False),
        ("!missing", True),
        ("! missing", True),
        ("!app", False),
        ("empty=", True),
        ("empty in ()", True),
        ("app=", False),
        ("app in (llama),tier notin (cpu),!missing,empty", True),
    ],
)
def test_a_label_selector_matches(text: str, matches: bool) -> None:
    assert all(term.matches(LABELS) for term in parse_labels(text)) is matches


@pytest.mark.parametrize(
    "text", ["=a", "a b", "a=b=c", "a in b", "a in (b", "a/b/c=d", "-a", ",", "a=-b", "!", "a>1"]
)
def test_what_is_no_label_selector_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(text)
    assert refused.value.code == 400


@given(KEYS, st.frozensets(VALUES, min_size=1, max_size=4), st.sampled_from(["in", "notin"]))
def test_a_set_requirement_is_read_as_it_was_written(
    key: str, values: frozenset[str], operator: str
) -> None:
    (read,) = parse_labels(f"{key} {operator} ({','.join(sorted(values))})")
    assert (read.key, read.operator, read.values) == (key, operator, values)


@given(st.text(max_size=40))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    with suppress(ApiError):
        assert all(isinstance(term, Requirement) for term in parse_labels(text))


POD = {
    "metadata": {"name": "a", "namespace": "default", "labels": LABELS},
    "spec": {"nodeName": "node-1"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==b", False),
        ("metadata.namespace=default,spec.nodeName=node-1", True),
        ("status.phase!=Running", False),
        ("status.phase=Running,metadata.name!=b", True),
        ("status.podIP=", True),
    ],
)
def test_a_field_selector_matches(text: str, matches: bool) -> None:
    assert Selection(fields=parse_fields(text, PODS)).matches(POD) is matches


@pytest.mark.parametrize("text", ["spec.containers=a", "metadata.uid=1", "status.phase"])
def test_a_field_by_which_pods_cannot_be_selected_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_fields(text, PODS)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("metadata.name=a", "a"),
        ("status.phase=Running,metadata.name==a", "a"),
        ("metadata.name!=a", ""),
        ("status.phase=a", ""),
        ("nonsense", ""),
    ],
)
def test_the_one_name_that_a_field_selector_leaves_over_is_known(text: str, name: str) -> None:
    assert name_selected(text) == name


def test_a_selection_is_about_one_namespace_or_all() -> None:
    assert Selection("default").matches(POD)
    assert Selection("").matches(POD)
    assert not Selection("other").matches(POD)
