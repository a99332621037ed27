"""The Anthropic API. B-xx and X-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pointsman.kernel.keys import Keys
from pointsman.kernel.model import Parsed
from pointsman.plugins.keys import Media
from pointsman.plugins.parsers import AnthropicParser

from .reading import ALL, EVERY_DEPTH, MODEL, Api, json_of

messages = Api("messages", AnthropicParser)
counting = Api("messages/count_tokens", AnthropicParser)
USER = [{"role": "user", "content": "hi"}]


def said(*blocks: Any) -> str:
    return messages.text(messages=[{"role": "u", "content": list(blocks)}]).removeprefix("u")


@EVERY_DEPTH
@pytest.mark.parametrize("odd", [{}, {"messages": []}, {"messages": "x"}, {"messages": [None]}])
def test_b_01_messages_that_are_no_messages_are_refused(odd: dict[str, Any], wanted: Keys) -> None:
    refused = messages.refusal(json_of({"model": "m", **odd}), wanted)
    assert re.search(r"`(\$\.)?messages", refused.message)


def test_tools_come_first_and_the_system_text_next() -> None:
    tools: list[Any] = [{"name": "f", "input_schema": {}}]
    text = messages.text(tools=tools, system="be brief", messages=USER)
    assert text == '[{"name":"f","input_schema":{}}]be briefuserhi'


def test_the_system_text_may_be_blocks() -> None:
    blocks = [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]
    assert messages.text(system=blocks, messages=USER) == "be briefuserhi"


def test_what_is_billed_is_no_part_of_the_system_text() -> None:
    billing = {"type": "text", "text": "x-anthropic-billing-header: v=1; hash=abc"}
    assert messages.text(system=[billing, "s", {"type": "text"}], messages=USER) == "suserhi"


def test_system_messages_among_the_others_are_taken_as_they_come() -> None:
    turns = [*USER, {"role": "system", "content": "now"}]
    assert messages.text(messages=turns) == "userhisystemnow"


def test_thinking_is_part_of_the_prompt_unless_nobody_can_read_it() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert said(thinking, {"type": "redacted_thinking", "data": "x"}) == "hm"


def test_the_use_of_a_tool_is_part_of_the_prompt() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "f", "input": {"b": 1, "a": "ü"}}
    assert said(use, {"type": "tool_use", "name": "g"}) == 'c1f{"b":1,"a":"ü"}g'


def test_the_result_of_a_tool_is_part_of_the_prompt() -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "72 F"}
    blocks = {"type": "tool_result", "content": [{"type": "text", "text": "warm"}]}
    assert said(result, blocks, {"type": "tool_result"}) == "72 Fwarm"


def test_x_03_images_are_told_by_their_data_or_url() -> None:
    sources: list[dict[str, Any]] = [
        {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        {"type": "base64", "data": "BBBB"},
        {"type": "url", "url": "https://e/x.png"},
        {"type": "file", "file_id": "f1"},
    ]
    blocks: list[Any] = [{"type": "image", "source": source} for source in sources]
    result = {"type": "tool_result", "content": blocks[:1]}
    found = messages.prompt(messages=[{"role": "u", "content": [*blocks, result]}])
    assert found.prompts[0][1:] == (
        Media("image", b"data:image/png;base64,AAAA"),
        Media("image", b"data:image/jpeg;base64,BBBB"),
        Media("image", b"https://e/x.png"),
        Media("image", b"f1"),
        Media("image", b"data:image/png;base64,AAAA"),
    )


def test_x_06_the_cache_salt_is_part_of_the_prompt() -> None:
    assert messages.prompt(messages=USER, cache_salt="s").salt == "s"


def test_the_limit_is_called_max_tokens() -> None:
    assert messages.limit(messages=USER, max_tokens=5) == 5


# -- counting tokens ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b"[" * 100_000, b'{"model":5}', b"{}"])
def test_bodies_to_count_may_be_anything(body: bytes) -> None:
    assert counting.read(body, ALL) == Parsed()


def test_bodies_to_count_that_name_a_model_are_for_that_model() -> None:
    assert counting.read(b'{"model":"m","messages":[]}', ALL) == Parsed("m")


def test_messages_without_a_model_are_left_to_whoever_may_rewrite_it() -> None:
    assert messages.read(json_of({"messages": USER}), MODEL).model == ""
