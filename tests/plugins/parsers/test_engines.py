"""The engines' own APIs over HTTP."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.keys import Keys
from pointsman.kernel.model import Parsed
from pointsman.plugins.keys import Feature, RequestPrompt
from pointsman.plugins.parsers import SglangHttpParser, VllmHttpParser
from pointsman.plugins.parsers.inputs import packed

from .reading import EVERY_DEPTH, Api, json_of, le32

vllm = Api("inference/v1/generate", VllmHttpParser)
sglang = Api("generate", SglangHttpParser)
ENGINES = {"token_ids": vllm, "input_ids": sglang}
EVERY_ENGINE = pytest.mark.parametrize(("name", "api"), ENGINES.items(), ids=["vllm", "sglang"])


@EVERY_ENGINE
def test_the_prompt_is_tokens(name: str, api: Api) -> None:
    found = api.prompt(**{"model": "m", name: [1, 2, 2**32 - 1]})
    assert found == RequestPrompt(token_ids=(le32(1, 2, 2**32 - 1),))


ODD: list[Any] = [None, [], "x", [[1, 2]], ["a"], [-1], [1.5], [True], [2**32], {}]


@EVERY_ENGINE
@EVERY_DEPTH
@pytest.mark.parametrize("tokens", ODD)
def test_tokens_that_are_none_are_refused(name: str, api: Api, tokens: Any, wanted: Keys) -> None:
    assert f"$.{name}" in api.refusal(json_of({"model": "m", name: tokens}), wanted).message


@EVERY_ENGINE
@pytest.mark.parametrize("instead", ["text", "prompt", "input_embeds"])
def test_there_is_no_other_input_than_tokens(name: str, api: Api, instead: str) -> None:
    assert f"`{name}`" in api.refusal(json_of({"model": "m", instead: "x"})).message


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_any_tokens_are_read(tokens: list[int]) -> None:
    assert vllm.prompt(token_ids=tokens).token_ids == (le32(*tokens),)


def test_tokens_are_little_endian_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"little": "big", "big": "little"}[sys.byteorder]
    turned = packed([1])[::-1]
    monkeypatch.setattr(sys, "byteorder", other)
    assert packed([1]) == turned


# -- vLLM -----------------------------------------------------------------------------------------


def test_vllm_says_where_media_stand() -> None:
    features = {
        "mm_hashes": {"image": ["h1", "h2", "h3"], "audio": ["h4"], "video": ["h5"]},
        "mm_placeholders": {
            "image": [{"offset": 9, "length": 4}, {"offset": 1, "length": 3}],
            "audio": [{"offset": 5, "length": 2}],
        },
        "kwargs_data": None,
    }
    found = vllm.prompt(token_ids=[1] * 20, features=features)
    assert found.features == (
        (Feature("image", "h2", 1, 3), Feature("audio", "h4", 5, 2), Feature("image", "h1", 9, 4)),
    )


@pytest.mark.parametrize("odd", [None, 5, {}, {"mm_hashes": 5}, {"mm_hashes": {"image": ["h"]}}])
def test_features_that_are_unclear_are_none(odd: Any) -> None:
    assert vllm.prompt(token_ids=[1], features=odd).features == ()


def test_vllm_limits_and_salts_like_the_others() -> None:
    assert vllm.limit(token_ids=[1], sampling_params={"max_tokens": 5}) == 5
    assert vllm.prompt(token_ids=[1], cache_salt="s").salt == "s"


def test_vllm_needs_a_model() -> None:
    assert vllm.read(b'{"token_ids":[1]}') == Parsed("")


# -- SGLang ---------------------------------------------------------------------------------------


def test_sglang_calls_limit_and_salt_otherwise() -> None:
    assert sglang.limit(input_ids=[1], sampling_params={"max_new_tokens": 5}) == 5
    assert sglang.prompt(input_ids=[1], extra_key="s").salt == "s"


@EVERY_DEPTH
def test_sglang_has_one_extra_key(wanted: Keys) -> None:
    body = json_of({"input_ids": [1], "extra_key": ["a", "b"]})
    assert "$.extra_key" in sglang.refusal(body, wanted).message


@EVERY_DEPTH
@pytest.mark.parametrize("model", ["", ',"model":"m"', ',"model":5'])
def test_what_sglang_is_asked_is_never_rewritten(model: str, wanted: Keys) -> None:
    assert sglang.read(f'{{"input_ids":[1]{model}}}'.encode(), wanted).model is None


@EVERY_ENGINE
@pytest.mark.parametrize("odd", [None, [], "x", {}, {"max_tokens": "5", "max_new_tokens": -1}])
def test_b_12_odd_sampling_parameters_limit_nothing(name: str, api: Api, odd: Any) -> None:
    assert api.limit(**{name: [1], "sampling_params": odd}) is None
