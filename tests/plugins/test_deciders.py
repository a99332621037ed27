"""Deciders, asked by a handler as in the daemon."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import always, producer, refused

from pointsman.kernel.keys import DataView, keys
from pointsman.kernel.model import Endpoint
from pointsman.kernel.plugin import Results
from pointsman.kernel.testing import Bench, decide, endpoints, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.deciders import (
    AlwaysDisaggMultimodalDecider,
    AlwaysDisaggPdDecider,
    PrefixBasedPdDecider,
    PrefixBasedPdParameters,
)
from pointsman.plugins.keys import (
    PREFIX_HIT,
    TOKENIZED_PROMPT,
    Feature,
    PrefixHit,
    TokenizedPrompt,
    Tokens,
)

from .stand_ins import publishing

AB: Final = endpoints("a", "b")
BLOCK: Final = 16


def prompt(*lengths: int, features: tuple[Feature, ...] = ()) -> TokenizedPrompt:
    return TokenizedPrompt(tuple(Tokens(b"tokn" * length, features) for length in lengths))


class Asking:
    """Asks the prefix-based decider about the endpoint that was chosen, the second of two."""

    type_name: ClassVar = "asking"
    deciders: ClassVar = ("prefix-based-pd-decider",)

    def __init__(self) -> None:
        self.answer: bool | None = None

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        if not results:
            return available
        found = results[available[0]]
        assert found is not None
        self.answer = data.ask("prefix-based-pd-decider", found.targets[0])
        return ()

    def primary(self, data: DataView, results: Results) -> str:
        return next(iter(results))


class Second:
    type_name: ClassVar = "second"

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        return endpoints[1:]


def answer(wiring: Wiring) -> bool | None:
    decide(wiring, pool(AB))
    found: bool | None = wiring.installed["asking"].plugin.answer
    return found


def decides(
    parameters: str,
    *,
    tokens: type[Any] | int = 100,
    hit: PrefixHit | None = None,
) -> bool | None:
    """What the decider says of a prompt, when b holds *hit* of it and a all."""
    hits = publishing("index", {PREFIX_HIT: [PrefixHit(99, 99, BLOCK), hit]})
    made = tokens
    if isinstance(made, int):
        made = publishing("tokens", {TOKENIZED_PROMPT: prompt(made)})
    text = (
        "plugins: [{type: asking}, {type: second}, {type: tokens}, {type: index},"
        f" {{type: prefix-based-pd-decider, parameters: {parameters}}}]"
    )
    return answer(wired(text, Asking, Second, PrefixBasedPdDecider, hits, made))


@pytest.mark.parametrize(
    ("blocks", "least", "expected"),
    [(0, 100, True), (0, 101, False), (1, 84, True), (1, 85, False), (6, 4, True), (7, 1, False)],
)
def test_what_the_endpoint_lacks_decides(blocks: int, least: int, expected: bool) -> None:
    """100 tokens, of which blocks of 16 are held."""
    hit = PrefixHit(blocks, 7, BLOCK)
    assert decides(f"{{nonCachedTokens: {least}}}", hit=hit) is expected


def test_a_threshold_of_0_never_disaggregates() -> None:
    assert decides("{}", hit=PrefixHit(0, 7, BLOCK)) is False


def test_a_threshold_of_0_asks_for_no_data() -> None:
    assert not PrefixBasedPdDecider(PrefixBasedPdParameters()).consumes.all
    asked = PrefixBasedPdDecider(PrefixBasedPdParameters(non_cached_tokens=1)).consumes
    assert asked.required == keys(TOKENIZED_PROMPT, PREFIX_HIT)


@pytest.mark.parametrize(("least", "expected"), [(100, True), (101, False)])
def test_short_prompts_are_not_worth_it(least: int, expected: bool) -> None:
    parameters = f"{{nonCachedTokens: 1, promptTokens: {least}}}"
    assert decides(parameters, hit=PrefixHit(0, 7, BLOCK)) is expected


def test_an_endpoint_of_which_nothing_is_known_decides_for_no() -> None:
    assert decides("{nonCachedTokens: 1}") is False


def test_a_prompt_that_is_not_known_decides_for_no() -> None:
    silent = producer("tokens", always(None), keys(TOKENIZED_PROMPT))
    hit = PrefixHit(0, 7, BLOCK)
    assert decides("{nonCachedTokens: 1}", tokens=silent, hit=hit) is False


def test_without_an_endpoint_there_is_nothing_to_compare() -> None:
    bench = Bench(PrefixBasedPdDecider(PrefixBasedPdParameters(non_cached_tokens=1)))
    assert bench.call("disaggregate", {TOKENIZED_PROMPT: prompt(100)}, None) is False


def test_any_producer_of_prefixes_can_be_followed() -> None:
    """The reference always reads the approximate one."""
    cold = publishing("index", {PREFIX_HIT: [None, PrefixHit(0, 7, BLOCK)]})
    warm = publishing("other-index", {PREFIX_HIT: [None, PrefixHit(6, 7, BLOCK)]})
    tokens = publishing("tokens", {TOKENIZED_PROMPT: prompt(100)})
    text = (
        "plugins: [{type: asking}, {type: second}, {type: tokens}, {type: index},"
        " {type: other-index, name: precise, produces: {prefix-hit: precise-hit}},"
        " {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 16%s}}]"
    )
    classes = (Asking, Second, PrefixBasedPdDecider, cold, warm, tokens)
    assert answer(wired(text % "", *classes)) is True
    followed = ", prefixMatchInfoProducerName: precise"
    assert answer(wired(text % followed, *classes)) is False


@given(st.integers(0, 500), st.integers(0, 40), st.integers(0, 600), st.integers(0, 600))
def test_more_of_the_prompt_held_never_turns_a_no_into_a_yes(
    tokens: int, blocks: int, least: int, size: int
) -> None:
    parameters = f"{{nonCachedTokens: {least}, promptTokens: {size}}}"
    fewer = decides(parameters, tokens=tokens, hit=PrefixHit(blocks, 50, BLOCK))
    more = decides(parameters, tokens=tokens, hit=PrefixHit(blocks + 1, 50, BLOCK))
    assert fewer or not more


def test_the_constant_decider_is_always_for_it() -> None:
    bench = Bench(AlwaysDisaggPdDecider(), AB)
    assert bench.call("disaggregate", None, AB[0]) is True
    assert bench.call("disaggregate", None, None) is True


@pytest.mark.parametrize("modality", ["image", "audio", "video"])
def test_every_medium_is_worth_an_encoder(modality: str) -> None:
    bench = Bench(AlwaysDisaggMultimodalDecider(), AB)
    media = prompt(9, features=(Feature(modality, "hash", 2, 4),))
    both = TokenizedPrompt((*prompt(3).prompts, *media.prompts))
    for tokenized in (media, both):
        assert bench.call("disaggregate", {TOKENIZED_PROMPT: tokenized}, AB[0]) is True
        assert bench.call("disaggregate", {TOKENIZED_PROMPT: tokenized}, None) is True


def test_text_is_not_worth_an_encoder() -> None:
    bench = Bench(AlwaysDisaggMultimodalDecider(), AB)
    for tokenized in (prompt(9), TokenizedPrompt(())):
        assert bench.call("disaggregate", {TOKENIZED_PROMPT: tokenized}, AB[0]) is False


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{nonCachedTokens: -1}", "parameters.nonCachedTokens: must be at least 0, not -1"),
        ("{promptTokens: -1}", "parameters.promptTokens: must be at least 0, not -1"),
        ("{nonCachedToken: 1}", "unknown field (did you mean 'nonCachedTokens'?)"),
        (
            "{nonCachedTokens: 1, prefixMatchInfoProducerName: nobody}",
            "no plugin is named 'nobody'",
        ),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    known = publishing("known", {TOKENIZED_PROMPT: prompt(1), PREFIX_HIT: []})
    text = (
        f"plugins: [{{type: known}}, {{type: prefix-based-pd-decider, parameters: {parameters}}}]"
    )
    (mistake,) = refused(text, PrefixBasedPdDecider, known)
    assert complaint in mistake
