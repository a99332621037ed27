"""Filters on labels. S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import in_profile, refusal, refused

from pointsman.kernel.document import read_document
from pointsman.kernel.model import Endpoint
from pointsman.kernel.structure import structure
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, pool, wired
from pointsman.plugins.labels import (
    ROLE,
    ByLabel,
    ByLabelParameters,
    DecodeFilter,
    EncodeFilter,
    LabelSelector,
    LabelSelectorFilter,
    MaskByLabels,
    PrefillFilter,
    Requirement,
)

Labels = Mapping[str, str]
ROLE_FILTERS: Final = (DecodeFilter, PrefillFilter, EncodeFilter)
KEYS: Final = st.sampled_from(["app", "tier", "a.b/c"])
VALUES: Final = st.sampled_from(["", "x", "y"])
LABELS: Final = st.dictionaries(KEYS, VALUES)


def labelled(*labels: Labels) -> list[Endpoint]:
    return [endpoint(str(number), labels=one) for number, one in enumerate(labels)]


def kept(plugin: object, *labels: Labels) -> str:
    """The numbers of those that stay, in one text."""
    return "".join(one.name for one in Bench(plugin, labelled(*labels)).keep())


def selector(yaml: str) -> LabelSelector:
    document = read_document(yaml, "test")
    made = structure(document, document.data, LabelSelector)
    document.refuse_if_mistaken()
    assert made is not None
    return made


def selected(yaml: str, *labels: Labels) -> str:
    return kept(LabelSelectorFilter(selector(yaml)), *labels)


# -- label selectors -------------------------------------------------------------------------


def test_all_labels_of_a_selector_must_match() -> None:
    text = "matchLabels: {app: llm, tier: gold}"
    gold, tin = {"app": "llm", "tier": "gold", "more": "x"}, {"app": "llm", "tier": "tin"}
    assert selected(text, gold, tin, {"app": "llm"}, {}) == "0"


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{key: tier, operator: In, values: [gold, tin]}", "01"),
        ("{key: tier, operator: In, values: ['']}", "2"),
        ("{key: tier, operator: NotIn, values: [gold]}", "123"),
        ("{key: tier, operator: Exists}", "012"),
        ("{key: tier, operator: Exists, values: []}", "012"),
        ("{key: tier, operator: DoesNotExist}", "3"),
    ],
)
def test_expressions_mean_what_they_mean_to_kubernetes(expression: str, expected: str) -> None:
    labels = ({"tier": "gold"}, {"tier": "tin"}, {"tier": ""}, {"other": "gold"})
    assert selected(f"matchExpressions: [{expression}]", *labels) == expected


def test_labels_and_expressions_must_all_hold() -> None:
    text = (
        "{matchLabels: {app: llm}, matchExpressions:"
        " [{key: tier, operator: Exists}, {key: tier, operator: NotIn, values: [tin]}]}"
    )
    labels = ({"app": "llm", "tier": "gold"}, {"app": "llm", "tier": "tin"}, {"app": "llm"})
    assert selected(text, *labels, {"tier": "gold"}) == "0"


@pytest.mark.parametrize("text", ["{}", "{matchLabels: {}, matchExpressions: []}"])
def test_an_empty_selector_fits_everybody(text: str) -> None:
    assert selected(text, {}, {"app": "llm"}) == "01"


@given(LABELS, KEYS, st.lists(VALUES, min_size=1))
def test_an_operator_and_its_opposite_share_the_endpoints_among_them(
    labels: Labels, key: str, values: list[str]
) -> None:
    for one, other in (("In", "NotIn"), ("Exists", "DoesNotExist")):
        listed = tuple(values) if one == "In" else ()
        fits = Requirement(key=key, operator=one, values=listed).fits(labels)
        assert fits is not Requirement(key=key, operator=other, values=listed).fits(labels)


@given(LABELS, LABELS)
def test_a_selector_of_labels_fits_just_what_has_them(wanted: Labels, labels: Labels) -> None:
    fits = LabelSelector(match_labels=wanted).fits(labels)
    assert fits == (wanted.items() <= labels.items())


@pytest.mark.parametrize("key", ["a", "a.b-c_d", "example.com/a", "x" * 63, "a.b/" + "x" * 63])
def test_keys_and_values_are_those_of_kubernetes(key: str) -> None:
    assert selected(f"matchLabels: {{{key}: v_1.x-Y}}", {key: "v_1.x-Y"}) == "0"


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{matchLabels: {'a b': x}}", "'a b' is no label key"),
        ("{matchLabels: {'': x}}", "'' is no label key"),
        ("{matchLabels: {-a: x}}", "'-a' is no label key"),
        ("{matchLabels: {/a: x}}", "'/a' is no label key"),
        ("{matchLabels: {A.b/a: x}}", "'A.b/a' is no label key"),
        (f"{{matchLabels: {{{'a' * 64}: x}}}}", "is no label key"),
        (f"{{matchLabels: {{{'a' * 254}/a: x}}}}", "is no label key"),
        ("{matchLabels: {a: x y}}", "'x y' is no label value"),
        ("{matchLabels: {a: 7}}", "must be a text, not 7"),
        ("{matchLabels: {a: '7', b: -x}}", "'-x' is no label value"),
        ("{matchExpressions: [{key: a, operator: in, values: [x]}]}", "must be one of In, NotIn,"),
        ("{matchExpressions: [{operator: Exists}]}", "matchExpressions[0].key: is required"),
        ("{matchExpressions: [{key: a, operator: In}]}", "the operator In needs values"),
        ("{matchExpressions: [{key: a, operator: NotIn, values: []}]}", "NotIn needs values"),
        ("{matchExpressions: [{key: a, operator: Exists, values: [x]}]}", "takes no values"),
        ("{matchExpressions: [{key: a, operator: In, values: [-x]}]}", "'-x' is no label value"),
        ("{matchLabel: {a: x}}", "did you mean 'matchLabels'"),
    ],
)
def test_mistaken_selectors_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: label-selector-filter, parameters: {parameters}}}]"
    mistake, *_ = refused(text, LabelSelectorFilter)
    assert complaint in mistake


# -- one label -------------------------------------------------------------------------------


def by_label(*valid: str, unlabelled: bool = False) -> ByLabel:
    return ByLabel(ByLabelParameters(label="tier", valid_values=valid, allows_no_label=unlabelled))


TIERS: Final = ({"tier": "gold"}, {"tier": "tin"}, {"tier": ""}, {"other": "gold"})


def test_endpoints_with_a_valid_value_stay() -> None:
    assert kept(by_label("gold", "silver"), *TIERS) == "0"


def test_endpoints_without_the_label_stay_if_they_may() -> None:
    assert kept(by_label("gold", unlabelled=True), *TIERS) == "03"
    assert kept(by_label(unlabelled=True), *TIERS) == "3"


def test_an_empty_label_is_not_a_missing_one() -> None:
    """In the reference it is, when the empty value is a valid one."""
    assert kept(by_label(""), *TIERS) == "2"


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{validValues: [x]}", "label: is required"),
        ("{label: '', validValues: [x]}", "label: must not be empty"),
        ("{label: tier}", "nothing could stay"),
        ("{label: tier, validValues: [], allowsNoLabel: false}", "nothing could stay"),
        ("{label: tier, validValues: gold}", "must be a list"),
        ("{label: tier, allowNoLabel: true}", "did you mean 'allowsNoLabel'"),
    ],
)
def test_mistaken_parameters_of_one_label_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: by-label, parameters: {parameters}}}]"
    (mistake,) = refused(text, ByLabel)
    assert complaint in mistake


# -- roles -----------------------------------------------------------------------------------

ROLES: Final = (
    "encode",
    "prefill",
    "decode",
    "encode-prefill",
    "prefill-decode",
    "both",
    "encode-prefill-decode",
    "",
    "Decode",
    None,
)


@pytest.mark.parametrize(
    ("role_filter", "expected"),
    [
        (
            DecodeFilter,
            ["decode", "prefill-decode", "both", "encode-prefill-decode", None],
        ),
        (
            PrefillFilter,
            ["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"],
        ),
        (EncodeFilter, ["encode", "encode-prefill", "encode-prefill-decode"]),
    ],
)
def test_each_stage_has_the_roles_that_do_its_work(
    role_filter: type[Any], expected: Sequence[str | None]
) -> None:
    every = labelled(*({} if role is None else {ROLE: role} for role in ROLES))
    found = Bench(role_filter(), every).keep()
    assert [one.labels.get(ROLE) for one in found] == expected


# -- all of them -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plugin"),
    [
        ("{type: label-selector-filter, parameters: {matchLabels: {a: b}}}", LabelSelectorFilter),
        ("{type: by-label, parameters: {label: a, validValues: [b]}}", ByLabel),
        ("{type: prefill-filter}", PrefillFilter),
        ("{type: encode-filter}", EncodeFilter),
    ],
)
def test_s_05_when_no_endpoint_has_the_label_it_is_503(text: str, plugin: type[Any]) -> None:
    wiring = wired(f"plugins: [{text}]", plugin)
    found = refusal(lambda: decide(wiring, pool(endpoints("a", "b"))))
    assert (found.status, found.reason) == (503, "rejected-no-endpoints")


@pytest.mark.parametrize(
    ("text", "plugin", "deprecated"),
    [
        ("{type: by-label-selector, parameters: {matchLabels: {a: b}}}", LabelSelectorFilter, True),
        ("{type: by-label, parameters: {label: a, validValues: [b]}}", ByLabel, True),
        ("{type: label-selector-filter}", LabelSelectorFilter, False),
        *((f"{{type: {one.type_name}}}", one, False) for one in ROLE_FILTERS),
    ],
)
def test_deprecated_names_work_and_say_so_and_role_filters_are_none(
    text: str, plugin: type[Any], deprecated: bool
) -> None:
    """The reference takes role filters for the deprecated type that they are made of."""
    warnings = wired(f"plugins: [{text}]", plugin).warnings
    assert any("deprecated: write label-selector-filter" in one for one in warnings) == deprecated


def test_labels_that_changed_are_looked_at_again() -> None:
    wiring = wired(in_profile(PrefillFilter), PrefillFilter)
    before, other = endpoint("a"), endpoint("b", labels={ROLE: "prefill"})
    after = endpoint("a", labels={ROLE: "prefill"})
    assert decide(wiring, pool([before, other])).decision.result.target.name == "b"
    assert decide(wiring, pool([before, other])).decision.result.target.name == "b"
    assert decide(wiring, pool([after, other])).decision.result.target.name == "a"


def test_the_same_endpoints_are_looked_at_once() -> None:
    seen: list[Labels] = []

    def fits(labels: Labels) -> bool:
        seen.append(labels)
        return True

    mask, both = MaskByLabels(fits), endpoints("a", "b")
    assert [*mask(both), *mask(both)] == [True] * 4
    assert len(seen) == 2
    assert list(mask(both[:1])) == [True]
    assert len(seen) == 3


def test_a_list_of_endpoints_may_change_between_two_looks() -> None:
    mask = MaskByLabels(lambda labels: ROLE in labels)
    candidates = labelled({ROLE: "decode"}, {})
    assert list(mask(candidates)) == [True, False]
    candidates.reverse()
    assert list(mask(candidates)) == [False, True]


def test_s_11_a_filter_cannot_change_labels() -> None:
    (one,) = labelled({ROLE: "decode"})
    with pytest.raises(TypeError):
        one.labels[ROLE] = "x"  # type: ignore[index]
