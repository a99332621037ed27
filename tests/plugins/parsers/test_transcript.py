"""What becomes of conversations. B-xx and X-xx are field reports; images are told by content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.plugins.keys import Media, Part, RequestPrompt
from pointsman.plugins.tokens import EstimateParameters, estimate

from .reading import PROMPT, Api

chats = Api()
DATA_URL = "data:image/png;base64,AAAA"


def parts(*content: Any, **message: Any) -> tuple[Part, ...]:
    """What follows the role of a chat's only message."""
    found = chats.prompt(model="m", messages=[{"role": "u", "content": list(content), **message}])
    (first, *rest) = found.prompts[0]
    assert isinstance(first, bytes)
    assert first.startswith(b"u")
    return (*((first[1:],) if first != b"u" else ()), *rest)


def said(**message: Any) -> str:
    """The text of a chat's only message."""
    return chats.text(model="m", messages=[message])


def test_roles_and_texts_follow_each_other() -> None:
    turns = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert chats.text(messages=turns) == "systembe briefuserhi"


def test_texts_are_decoded_whatever_their_escapes() -> None:
    body = rb'{"messages":[{"role":"u","content":"\u00e9\n\"\ud83d\ude00"}]}'
    prompt = chats.values(body, PROMPT).popitem()[1]
    assert prompt == RequestPrompt((('ué\n"\U0001f600'.encode(),),))


def test_b_01_parts_are_read_and_unknown_ones_left_out() -> None:
    text, mystery = {"type": "text", "text": "hi"}, {"type": "mystery", "x": 1, "text": "no"}
    assert parts(text, mystery, "bare", 5, None, [], {"type": ["text"]}) == (b"hibare",)


def test_b_01_a_message_may_have_no_content_at_all() -> None:
    assert said(role="u", content=None) == said(role="u") == said(role="u", content={}) == "u"


def test_b_01_fields_of_the_wrong_type_are_left_out() -> None:
    odd: list[Any] = [5, True, {"x": 1}, [[]], [{"type": 5}]]
    names = ("role", "name", "content", "tool_calls", "function_call", "reasoning", "output")
    turns = [{"role": "u", **dict.fromkeys(names[1:], value)} for value in odd]
    assert chats.text(messages=turns) == "u" * len(odd)


def test_tool_calls_in_the_history_are_part_of_the_prompt() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    assert said(role="a", content=None, tool_calls=calls) == 'ac1f{"a": 1}'
    assert said(role="a", function_call={"name": "f", "arguments": "{}"}) == "af{}"


def test_arguments_may_be_json_as_it_is() -> None:
    call = {"function": {"name": "f", "arguments": {"a": [1, 2], "ü": None, "big": 10**30}}}
    arguments = '{"a":[1,2],"ü":null,"big":1000000000000000000000000000000}'
    assert said(role="a", tool_calls=[call]) == "af" + arguments


def test_odd_tool_calls_are_left_out() -> None:
    assert said(role="a", tool_calls=[5, {}, {"function": 5}, {"function": {"name": 5}}]) == "a"


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_in_the_history_is_part_of_the_prompt(name: str) -> None:
    assert said(**{"role": "a", "content": "42", name: "hm"}) == "ahm42"


def test_reasoning_is_not_counted_twice() -> None:
    assert said(role="a", content="42", reasoning="hm", reasoning_content="hm") == "ahm42"


# -- tools ----------------------------------------------------------------------------------------

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}]
USER = [{"role": "user", "content": "hi"}]


def test_x_07_tools_come_first() -> None:
    assert chats.text(tools=TOOLS, messages=USER) == (
        json.dumps(TOOLS, separators=(",", ":")) + "userhi"
    )


def test_x_07_other_tools_are_another_prompt_and_so_is_another_order() -> None:
    turned = [{"function": {"name": "f", "parameters": {"a": 2, "b": 1}}, "type": "function"}]
    prompts = {chats.text(tools=tools, messages=USER) for tools in (TOOLS, turned, TOOLS * 2)}
    assert len(prompts) == 3


def test_x_07_blanks_in_tools_make_no_difference() -> None:
    body = b'{"tools":[ {"name" :\n "a b"} ],"messages":[{"role":"u"}]}'
    tight = b'{"tools":[{"name":"a b"}],"messages":[{"role":"u"}]}'
    assert chats.values(body, PROMPT) == chats.values(tight, PROMPT)


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_add_nothing(tools: Any) -> None:
    assert chats.text(tools=tools, messages=USER) == "userhi"


# -- media ----------------------------------------------------------------------------------------

MEDIA: Mapping[str, tuple[dict[str, Any], Media]] = {
    "image": (
        {"type": "image_url", "image_url": {"url": DATA_URL, "detail": "low"}},
        Media("image", DATA_URL.encode()),
    ),
    "image as a text": (
        {"type": "input_image", "image_url": "https://e/x.png"},
        Media("image", b"https://e/x.png"),
    ),
    "image sent before": (
        {"type": "image_url", "image_url": None, "uuid": "u1"},
        Media("image", b"u1"),
    ),
    "file": ({"type": "input_image", "file_id": "f1"}, Media("image", b"f1")),
    "video": ({"type": "video_url", "video_url": {"url": "v"}}, Media("video", b"v")),
    "audio": (
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        Media("audio", b"QUJDwav"),
    ),
    "audio without a format": (
        {"type": "input_audio", "input_audio": {"data": "QUJD"}},
        Media("audio", b"QUJD"),
    ),
    "audio behind a URL": ({"type": "audio_url", "audio_url": {"url": "a"}}, Media("audio", b"a")),
}


@pytest.mark.parametrize(("part", "medium"), MEDIA.values(), ids=MEDIA.keys())
def test_media_stand_where_they_were(part: dict[str, Any], medium: Media) -> None:
    around = {"type": "text", "text": "x"}
    assert parts(around, part, around, part) == (b"x", medium, b"x", medium)


@pytest.mark.parametrize("value", [None, 5, "", {}, {"url": None}, {"url": 5}, {"data": 5}])
def test_media_without_content_are_left_out(value: Any) -> None:
    assert parts({"type": "image_url", "image_url": value}) == ()


def test_x_03_different_images_make_different_prompts() -> None:
    def tokens(url: str) -> bytes:
        image = {"type": "image_url", "image_url": {"url": url}}
        turns = [{"role": "user", "content": [{"type": "text", "text": "same"}, image]}]
        return estimate(chats.prompt(messages=turns), EstimateParameters()).prompts[0].data

    assert tokens("https://e/1.png") == tokens("https://e/1.png")
    assert tokens("https://e/1.png") != tokens("https://e/2.png")


# -- items of responses ---------------------------------------------------------------------------

ITEMS: Mapping[str, tuple[dict[str, Any], str]] = {
    "message": (
        {"type": "message", "role": "a", "content": [{"type": "output_text", "text": "t"}]},
        "at",
    ),
    "refusal": ({"role": "a", "content": [{"type": "refusal", "refusal": "no"}]}, "ano"),
    "call": ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "f{}"),
    "output": ({"type": "function_call_output", "call_id": "c", "output": "o"}, "o"),
    "output in parts": (
        {"type": "function_call_output", "output": [{"type": "input_text", "text": "o"}]},
        "o",
    ),
    "custom call": ({"type": "custom_tool_call", "name": "f", "input": "in"}, "fin"),
    "reasoning": (
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "r"}],
        },
        "sr",
    ),
}


@pytest.mark.parametrize(("item", "text"), ITEMS.values(), ids=ITEMS.keys())
def test_items_of_responses_are_read_like_messages(item: dict[str, Any], text: str) -> None:
    assert Api("responses").text(input=[{"role": "u"}, item]) == "u" + text


# -- salt and growth ------------------------------------------------------------------------------


def test_x_06_the_cache_salt_is_part_of_the_prompt() -> None:
    salted = chats.prompt(messages=USER, cache_salt="s")
    assert (salted.salt, chats.prompt(messages=USER).salt) == ("s", "")
    assert Api("completions").prompt(prompt="x", cache_salt="s").salt == "s"
    assert Api("embeddings").prompt(input=[1], cache_salt="s").salt == "s"


texts = st.text(max_size=5)
contents = texts | st.lists(texts.map(lambda text: {"type": "text", "text": text}))
turns = st.fixed_dictionaries({"role": texts}, optional={"content": contents, "reasoning": texts})


@given(st.lists(turns, min_size=2), st.integers(min_value=1))
def test_a_conversation_that_goes_on_begins_as_it_did(messages: list[Any], cut: int) -> None:
    whole = chats.prompt(messages=messages).prompts[0]
    before = chats.prompt(messages=messages[: 1 + cut % len(messages)]).prompts[0]
    assert b"".join(map(_text, whole)).startswith(b"".join(map(_text, before)))


def _text(part: Part) -> bytes:
    assert isinstance(part, bytes)
    return part
