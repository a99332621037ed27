"""Stages on endpoints of their own. S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

from typing import Final

import pytest
from tests.kernel import zoo

from pointsman.kernel.testing import Bench, decide, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.deciders import (
    AlwaysDisaggMultimodalDecider,
    AlwaysDisaggPdDecider,
    PrefixBasedPdDecider,
)
from pointsman.plugins.disagg import DisaggParameters, DisaggProfileHandler
from pointsman.plugins.keys import TOKENIZED_PROMPT, Feature, TokenizedPrompt, Tokens
from pointsman.plugins.prefix_cache import ApproxPrefixCacheProducer

from .stages_kit import D1, D2, E1, E2, P1, decision, handling, saying, staged
from .stand_ins import publishing

PREFILLER: Final = "x-prefiller-host-port"
ENCODERS: Final = "x-encoder-hosts-ports"
TEXT: Final = TokenizedPrompt((Tokens(b"tokn" * 100),))
PICTURE: Final = TokenizedPrompt((Tokens(b"tokn" * 100, (Feature("image", "hash", 0, 9),)),))


# -- decode first ----------------------------------------------------------------------------


def test_the_request_goes_to_whom_decodes_and_says_who_does_the_rest() -> None:
    wiring, _ = saying(prefill=True, encode=True)
    made = decision(wiring)
    assert made.destination == f"{D1.host_port},{D2.host_port}"
    assert made.upstream_headers == {
        PREFILLER: "[fd00::3]:8000",
        ENCODERS: "127.0.1.4:8000,127.0.1.5:8000",
    }


def test_deciders_are_asked_once_about_whom_decodes() -> None:
    wiring, seen = saying(prefill=True, encode=True)
    decision(wiring)
    assert [entry for entry in seen if entry[0].startswith("d-")] == [
        ("d-encode", D1),
        ("d-prefill", D1),
    ]


def test_prefill_alone_is_told_who_decodes() -> None:
    wiring, seen = saying(prefill=True, encode=True)
    decision(wiring)
    assert [entry for entry in seen if entry[0].startswith("peek-")] == [
        ("peek-decode", None),
        ("peek-encode", None),
        ("peek-prefill", D1),
    ]


@pytest.mark.parametrize(
    ("prefill", "encode", "headers"),
    [
        (False, False, set[str]()),
        (None, None, set[str]()),
        (True, None, {PREFILLER}),
        (False, True, {ENCODERS}),
        (None, True, {ENCODERS}),
        (True, False, {PREFILLER}),
    ],
)
def test_a_stage_runs_only_when_its_decider_says_so(
    prefill: bool | None, encode: bool | None, headers: set[str]
) -> None:
    wiring, _ = saying(prefill=prefill, encode=encode)
    assert decision(wiring).upstream_headers.keys() == headers


def test_a_stage_without_a_profile_does_not_exist() -> None:
    handler = "{deciders: {prefill: always-disagg-pd-decider, encode: always-disagg-pd-decider}}"
    wiring = handling(handler, AlwaysDisaggPdDecider, stages="decode")
    made = decision(wiring)
    assert (dict(made.upstream_headers), list(made.result.profiles)) == ({}, ["decode"])


def test_an_encoding_that_finds_nobody_does_not_stop_the_prefill() -> None:
    wiring, _ = saying(prefill=True, encode=True)
    made = decision(wiring, [P1, D1])
    assert made.upstream_headers == {PREFILLER: P1.host_port}
    assert made.result.profiles["encode"] is None


def test_a_prefill_that_finds_nobody_is_done_where_the_request_is_decoded() -> None:
    wiring, _ = saying(prefill=True)
    made = decision(wiring, [D1, E1])
    assert (made.destination, dict(made.upstream_headers)) == (D1.host_port, {})


def test_when_nobody_decodes_nothing_else_is_tried() -> None:
    wiring, seen = saying(prefill=True, encode=True)
    assert zoo.refusal(lambda: decision(wiring, [P1, E1])).status == 503
    assert seen == []


def test_s_05_a_role_that_nobody_has_is_no_question_of_load() -> None:
    wiring, _ = saying(prefill=True)
    found = zoo.refusal(lambda: decision(wiring, [P1, E1]))
    assert (found.status, found.reason) == (503, "rejected-no-endpoints")


def test_s_05_whom_load_filters_out_may_be_asked_again_later() -> None:
    busy = zoo.keeper("busy", zoo.always([False, False]))
    text = (
        "plugins: [{type: disagg-profile-handler}, {type: busy}]\n"
        "schedulingProfiles: [{name: decode, plugins: [{pluginRef: busy}]}]\n"
    )
    wiring = wired(text, DisaggProfileHandler, busy)
    found = zoo.refusal(lambda: decide(wiring, pool([D1, D2])))
    assert (found.status, found.reason, found.retry_after) == (429, "rejected-saturated", 1)


def test_results_without_decoding_are_no_result() -> None:
    bench = Bench(DisaggProfileHandler(DisaggParameters()))
    found = zoo.refusal(lambda: bench.call("primary", None, {"prefill": None}))
    assert (found.status, found.message) == (503, "failed to find available decode workers")


# -- prefill first ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["prefill-first", "Prefill_First", "PREFILLFIRST", "prefill"])
def test_prefill_first_runs_prefill_in_any_case(order: str) -> None:
    wiring, seen = saying(order=order)
    made = decision(wiring)
    assert made.destination.startswith(D1.host_port)
    assert made.upstream_headers == {PREFILLER: P1.host_port}
    assert seen == [("peek-prefill", None), ("peek-decode", P1)]


def test_prefill_first_encodes_where_its_decider_says_so_of_nobody() -> None:
    wiring, seen = saying(order="prefill-first", encode=True)
    assert decision(wiring).upstream_headers.keys() == {PREFILLER, ENCODERS}
    assert seen == [
        ("peek-prefill", None),
        ("d-encode", None),
        ("peek-encode", None),
        ("peek-decode", P1),
    ]


def test_prefill_first_does_without_those_who_find_nobody() -> None:
    wiring, seen = saying(order="prefill-first", encode=True)
    made = decision(wiring, [D2])
    assert (made.destination, dict(made.upstream_headers)) == (D2.host_port, {})
    assert seen[-1] == ("peek-decode", None)


def test_prefill_first_without_a_prefill_profile_just_decodes() -> None:
    made = decision(handling("{stageOrder: prefill-first}", stages="decode"))
    assert list(made.result.profiles) == ["decode"]


def test_prefill_first_fails_where_nobody_decodes() -> None:
    wiring, _ = saying(order="prefill-first")
    assert zoo.refusal(lambda: decision(wiring, [P1])).status == 503


@pytest.mark.parametrize("order", ["decode-first", "DecodeFirst", "decode_first", "decode"])
def test_decode_first_has_several_spellings(order: str) -> None:
    wiring, seen = saying(order=order, prefill=False)
    decision(wiring)
    assert seen == [("peek-decode", None), ("d-prefill", D1)]


# -- with real deciders ----------------------------------------------------------------------


def prefilled(wiring: Wiring, prompt: str) -> bool:
    """Whether a prompt, of which each letter makes a block of its own, has a prefill."""
    blocks = b"".join(letter.encode() * 256 for letter in prompt)
    wiring.installed["tokens"].plugin.values[TOKENIZED_PROMPT] = TokenizedPrompt((Tokens(blocks),))
    return PREFILLER in decision(wiring, [D1, P1]).upstream_headers


@pytest.fixture
def by_prefix() -> Wiring:
    values = {TOKENIZED_PROMPT: TEXT}
    tokens = publishing("tokens", values)
    tokens.values = values
    handler = "{deciders: {prefill: prefix-based-pd-decider}}"
    return staged(
        DisaggProfileHandler,
        PrefixBasedPdDecider,
        ApproxPrefixCacheProducer,
        tokens,
        parameters={
            "disagg-profile-handler": handler,
            "prefix-based-pd-decider": "{nonCachedTokens: 128}",
        },
        stages=("prefill", "decode"),
    )


def test_the_same_prompt_again_needs_no_prefill(by_prefix: Wiring) -> None:
    assert [prefilled(by_prefix, "abc"), prefilled(by_prefix, "abc")] == [True, False]


def test_a_long_prompt_after_a_short_one_needs_a_prefill(by_prefix: Wiring) -> None:
    assert [prefilled(by_prefix, "a"), prefilled(by_prefix, "abc")] == [False, True]


def test_a_little_more_of_a_known_prompt_needs_no_prefill(by_prefix: Wiring) -> None:
    assert [prefilled(by_prefix, "abc"), prefilled(by_prefix, "abcd")] == [True, False]


@pytest.mark.parametrize(("prompt", "encoded"), [(PICTURE, True), (TEXT, False)])
def test_only_what_is_more_than_text_is_encoded(prompt: TokenizedPrompt, encoded: bool) -> None:
    tokens = publishing("tokens", {TOKENIZED_PROMPT: prompt})
    handler = "{deciders: {encode: always-disagg-multimodal-decider}}"
    wiring = handling(handler, AlwaysDisaggMultimodalDecider, tokens, stages="encode decode")
    made = decision(wiring)
    expected = {ENCODERS: f"{E1.host_port},{E2.host_port}"} if encoded else {}
    assert made.upstream_headers == expected
