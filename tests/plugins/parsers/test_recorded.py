"""What clients asked a real vLLM, and what it answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from tests.plugins.recorded import Exchange, exchanges

from pointsman.actors.usage import UsageReader
from pointsman.kernel.model import Headers, Usage
from pointsman.kernel.parsing import make_routes, path_of
from pointsman.kernel.rewriting import ModelRestorer
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT
from pointsman.plugins.parsers import OpenAIParser, VllmHttpParser

from .reading import ALL, Api, le32

ROUTES: Final = make_routes([("openai", OpenAIParser())], ALL)
RECORDED: Final[Mapping[str, Exchange]] = {one.name: one for one in exchanges()}
READ: Final = {
    "completions": (b"the quick brown fox", 5),
    "completions-stream": (b"the quick brown fox", 3),
    "unknown-model-404": (b"userx", None),
    "bad-param-400": (b"userx", None),
    "too-long-400": (b"userx", 4000),
    "render": (b"userthe quick brown fox", None),
}
"""By the exchange's name: the prompt of its request, and how much it is to generate."""


@pytest.mark.parametrize("name", READ)
def test_what_clients_asked_is_read(name: str) -> None:
    asked = RECORDED[name]
    read = ROUTES.find(path_of(Headers({":path": asked.path.encode()}))).read
    assert read is not None
    parsed = read(asked.request)
    assert parsed.model == ("nope" if name == "unknown-model-404" else "tiny-llama")
    prompt = parsed.values[REQUEST_PROMPT].prompts
    assert (prompt, parsed.values.get(MAX_OUTPUT_TOKENS)) == (((READ[name][0],),), READ[name][1])


@pytest.mark.parametrize("name", ["bad-json-400", "missing-messages-400"])
def test_what_vllm_refused_as_malformed_is_refused(name: str) -> None:
    assert RECORDED[name].status == 400
    assert Api().refusals(RECORDED[name].request)


def test_what_vllm_renders_is_a_request_to_generate() -> None:
    rendered = RECORDED["with --enable-scale-out"].response
    values = Api("inference/v1/generate", VllmHttpParser).values(rendered)
    assert values[MAX_OUTPUT_TOKENS] == 2036
    assert values[REQUEST_PROMPT].token_ids == (
        le32(1, 352, 201, 396, 356, 329, 376, 2, 201, 1, 410, 201),
    )


USAGES: Final[Mapping[str, Usage]] = {
    "completions": Usage(4, 5, None),
    "completions-stream": Usage(4, 3, None),
    "prefix-hit-usage-1": Usage(56, 2, 0),
    "prefix-hit-usage-2": Usage(56, 2, 32),
}


@pytest.mark.parametrize("name", RECORDED)
def test_usage_is_found_wherever_there_is_one(name: str) -> None:
    reader = UsageReader()
    reader.feed(RECORDED[name].response)
    assert reader.usage == USAGES.get(name)


@pytest.mark.parametrize("name", RECORDED)
def test_b_13_nothing_but_the_name_of_the_model_changes(name: str) -> None:
    """Errors have it in a sentence, which is left alone."""
    answer = RECORDED[name].response
    restorer = ModelRestorer(answer.startswith(b"data: "), "public", "tiny-llama")
    named = answer.replace(b'"model":"tiny-llama"', b'"model":"public"')
    assert restorer.feed(answer, end=True) == named
