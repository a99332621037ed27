"""Endpoints by the length of the prompt. S-xx is a field report whose fault a test keeps away."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import always, in_profile, producer, refused

from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import Endpoint
from pointsman.kernel.plugin import Role
from pointsman.kernel.testing import Bench, decide, endpoint, pool, wired
from pointsman.plugins.context_length import (
    ContextLengthAware,
    ContextLengthParameters,
    LengthRange,
)
from pointsman.plugins.keys import TOKENIZED_PROMPT, TokenizedPrompt, Tokens

from .stand_ins import publishing

LABEL: Final = "llm-d.ai/context-length-range"
LENGTHS: Final = st.integers(0, 10**18 - 1)
RANGES: Final = st.tuples(LENGTHS, LENGTHS).map(sorted)


def prompt(length: int) -> TokenizedPrompt:
    return TokenizedPrompt((Tokens(b"tokn" * length),))


def labelled(*texts: str | None) -> list[Endpoint]:
    return [
        endpoint(text or "none", labels={} if text is None else {LABEL: text}) for text in texts
    ]


def bench(*texts: str | None, **parameters: Any) -> Bench:
    return Bench(ContextLengthAware(ContextLengthParameters(**parameters)), labelled(*texts))


def scores(length: int, *texts: str | None) -> list[float | None]:
    return bench(*texts).score({TOKENIZED_PROMPT: prompt(length)})


def kept(length: int, *texts: str | None) -> list[str]:
    filtering = bench(*texts, enable_filtering=True)
    return [one.name for one in filtering.keep({TOKENIZED_PROMPT: prompt(length)})]


def test_inside_the_range_narrow_and_roomy_is_better() -> None:
    # raw = 0.7 / (1 + width / 10000) + 0.3 * (max - length) / width
    assert scores(500, "0-1000", "0-10000", "400-500") == pytest.approx(
        [
            0.3 + 0.7 * (0.7 / 1.1 + 0.3 * 0.5),
            0.3 + 0.7 * (0.35 + 0.3 * 0.95),
            0.3 + 0.7 * (0.7 / 1.01),
        ]
    )


def test_a_range_of_one_length_fits_that_length_perfectly() -> None:
    assert scores(7, "7-7") == [1.0]


def test_outside_the_range_the_nearer_edge_is_better() -> None:
    assert scores(3000, "0-1000", "0-2000", "5000-9000") == pytest.approx([0.1, 0.15, 0.1])


def test_a_prompt_too_long_for_all_goes_to_the_largest() -> None:
    found = scores(9000, "0-1000", "0-8000", "0-4000")
    assert found.index(max(one for one in found if one is not None)) == 1


def test_without_a_label_an_endpoint_gets_a_half() -> None:
    assert scores(10, None) == [0.5]


@pytest.mark.parametrize(
    "text",
    ["", "10", "1-2-3", "a-b", "5-1", "1.5-3", " 1-2", "-1-2", "\u0661-\u0662", "9" * 40 + "-1"],
)
def test_a_label_that_is_no_range_gets_0_and_goes(text: str) -> None:
    assert scores(1, text) == [0.0]
    assert kept(1, text) == []


def test_the_filter_keeps_what_fits_and_what_says_nothing() -> None:
    assert kept(1000, "0-1000", None, "1000-2000", "0-999", "1001-1001") == [
        "0-1000",
        "none",
        "1000-2000",
    ]


def test_the_label_can_be_another() -> None:
    other = [endpoint("a", labels={"range": "0-5"}), endpoint("b", labels={LABEL: "0-5"})]
    one = Bench(ContextLengthAware(ContextLengthParameters(label="range")), other)
    assert one.score({TOKENIZED_PROMPT: prompt(5)})[1] == 0.5


def chosen(filtering: str, length: int | None) -> str:
    """Where a request goes when the score counts for nothing, and two endpoints fit or do not."""
    plain = in_profile(ContextLengthAware, weights={"context-length-aware": 0})
    parameters = f"{{type: context-length-aware, parameters: {{enableFiltering: {filtering}}}}}"
    text = plain.replace("{type: context-length-aware}", parameters)
    silent = producer("tokens", always(None), frozenset({TOKENIZED_PROMPT}))
    tokens = silent if length is None else publishing("tokens", {TOKENIZED_PROMPT: prompt(length)})
    text = text.replace("plugins: [", "plugins: [{type: tokens}, ", 1)
    snapshot = pool(labelled("0-10", "11-20"))
    return decide(wired(text, ContextLengthAware, tokens), snapshot).decision.result.target.name


def test_without_filtering_every_endpoint_stays() -> None:
    assert chosen("false", 15) == "0-10"
    assert chosen("true", 15) == "11-20"


def test_a_prompt_of_unknown_length_goes_anywhere() -> None:
    assert chosen("true", None) == "0-10"


def test_s_05_a_length_that_no_range_holds_is_no_question_of_load() -> None:
    with pytest.raises(Refusal) as raised:
        chosen("true", 21)
    assert (raised.value.status, raised.value.reason) == (503, "rejected-no-endpoints")


def test_the_filter_is_idle_unless_it_is_wanted() -> None:
    assert bench().plugin.idle_roles == {Role.FILTER}
    assert bench(enable_filtering=True).plugin.idle_roles == frozenset()


@given(LENGTHS, RANGES, RANGES)
def test_a_range_that_fits_beats_one_that_does_not(
    length: int, one: list[int], other: list[int]
) -> None:
    fits, misfits = LengthRange(*one), LengthRange(*other)
    if length in fits and length not in misfits:
        assert 0 < misfits.fit(length) < 0.3 <= fits.fit(length) <= 1.0


@given(RANGES)
def test_a_range_is_read_as_it_is_written(ends: list[int]) -> None:
    assert LengthRange.parse(f"{ends[0]}-{ends[1]}") == LengthRange(*ends)


@given(st.text() | st.from_regex(r"\d*-\d*"))
def test_any_text_is_a_range_or_none(text: str) -> None:
    found = LengthRange.parse(text)
    assert found is None or found.least <= found.most


@given(st.lists(RANGES.map(lambda ends: f"{ends[0]}-{ends[1]}"), max_size=6), st.integers(0, 99))
def test_the_order_of_the_candidates_does_not_matter(texts: list[str], length: int) -> None:
    assert scores(length, *texts[::-1])[::-1] == scores(length, *texts)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ('{label: ""}', "parameters.label: must not be empty"),
        ("{enableFiltering: maybe}", "parameters.enableFiltering: must be true or false"),
        ("{enableFilter: true}", "unknown field (did you mean 'enableFiltering'?)"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    tokens = publishing("tokens", {TOKENIZED_PROMPT: prompt(1)})
    text = f"plugins: [{{type: tokens}}, {{type: context-length-aware, parameters: {parameters}}}]"
    (mistake,) = refused(text, ContextLengthAware, tokens)
    assert complaint in mistake
