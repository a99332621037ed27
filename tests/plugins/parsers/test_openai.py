"""The OpenAI API. B-xx and X-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.keys import Keys
from pointsman.kernel.model import REQUEST_BODY, Parsed
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT, RequestPrompt

from .reading import (
    ALL,
    CHAT,
    COMPLETIONS,
    CONVERSATIONS,
    EMBEDDINGS,
    EVERY_DEPTH,
    IMAGES,
    LIMIT,
    MODEL,
    PROMPT,
    RESPONSES,
    WHOLE,
    Api,
    json_of,
    le32,
)

chats = Api(CHAT)
completions = Api(COMPLETIONS)
embeddings = Api(EMBEDDINGS)
responses = Api(RESPONSES)
conversations = Api(CONVERSATIONS)
images = Api(IMAGES)


def completion(prompt: str, model: str = '"m"') -> bytes:
    return f'{{"model":{model},"prompt":{prompt}}}'.encode()


def chat(messages: str) -> bytes:
    return f'{{"model":"m","messages":{messages}}}'.encode()


# -- chats ----------------------------------------------------------------------------------------

EVERY_SHAPE = """[
{"role":"system","content":"s"},
{"role":"user","content":[{"type":"text","text":"hi"},
 {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
 {"type":"mystery","x":1},"bare"]},
{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
 "function":{"name":"f","arguments":"{}"}}]},
{"role":"tool","tool_call_id":"1","content":""}]"""


@EVERY_DEPTH
def test_b_01_content_may_have_any_shape(wanted: Keys) -> None:
    assert chats.read(chat(EVERY_SHAPE), wanted).model == "m"


def test_b_01_the_whole_body_is_there_when_somebody_wants_it() -> None:
    body = chat(EVERY_SHAPE)
    assert chats.values(body, WHOLE) == {REQUEST_BODY: json.loads(body)}


def test_nothing_but_the_model_is_read_when_nobody_wants_more() -> None:
    assert chats.read(chat(EVERY_SHAPE)) == Parsed("m")


UNREAD = b'{"model":"m","max_tokens":5,"messages":[{"role":5,"content":"\xff"}]}'


def test_messages_are_not_even_decoded_when_nobody_wants_the_prompt() -> None:
    for wanted in (MODEL, LIMIT):
        assert chats.read(UNREAD, wanted).model == "m"
    for wanted in (PROMPT, WHOLE):
        assert "error reading" in chats.refusal(UNREAD, wanted).message


@EVERY_DEPTH
@pytest.mark.parametrize("messages", ["[]", '"x"', "[null]", '["x"]', '[{},"x"]', "null", "5"])
def test_b_01_messages_that_are_no_messages_are_refused(messages: str, wanted: Keys) -> None:
    assert "$.messages" in chats.refusal(chat(messages), wanted).message


def test_b_01_missing_messages_are_refused() -> None:
    assert "`messages`" in chats.refusal(b'{"model":"m","prompt":"x"}').message


# -- prompts and inputs ---------------------------------------------------------------------------

TOKENS = [1, 2, 70000]
PROMPTS: dict[str, tuple[Any, RequestPrompt]] = {
    "a text": ("äx", RequestPrompt((("äx".encode(),),))),
    "texts": (["a", "b"], RequestPrompt(((b"a",), (b"b",)))),
    "tokens": (TOKENS, RequestPrompt(token_ids=(le32(*TOKENS),))),
    "lists of tokens": ([[1, 2], [3]], RequestPrompt(token_ids=(le32(1, 2), le32(3)))),
}
EVERY_INPUT = pytest.mark.parametrize(("given_", "expected"), PROMPTS.values(), ids=PROMPTS.keys())


@EVERY_INPUT
def test_b_02_each_text_or_list_of_tokens_is_a_prompt_of_its_own(
    given_: Any, expected: RequestPrompt
) -> None:
    assert completions.prompt(model="m", prompt=given_) == expected


@EVERY_INPUT
def test_embeddings_take_the_same_inputs(given_: Any, expected: RequestPrompt) -> None:
    assert embeddings.prompt(model="m", input=given_) == expected


@pytest.mark.parametrize("prompt", ['"x"', '["a","b"]', "[1,2,3]", "[[1,2],[3]]", ' [ "a" ]'])
def test_b_02_a_prompt_is_checked_even_when_nobody_wants_it(prompt: str) -> None:
    assert completions.read(completion(prompt)).model == "m"


NO_TEXTS = ['""', "{}", "null", "5", "true", '[""]', '["a",""]', '["a",1]', "[null]", "[true]"]
NO_TOKENS = ["[]", "[1.5]", "[-1]", "[4294967296]", "[[]]", "[[1],[]]", "[[1],[-1]]", '[["a"]]']


@EVERY_DEPTH
@pytest.mark.parametrize("prompt", [*NO_TEXTS, *NO_TOKENS, "[[[1]]]", "[1,[1]]", "[[1],1]"])
def test_b_02_empty_or_mixed_prompts_are_refused(prompt: str, wanted: Keys) -> None:
    message = "prompt must be a text, a list of texts, or token ids, and not be empty"
    assert completions.refusal(completion(prompt), wanted).message == message


@EVERY_DEPTH
@pytest.mark.parametrize("given_", ["null", '""', "[]", '[""]', "{}"])
def test_embeddings_without_an_input_are_refused(given_: str, wanted: Keys) -> None:
    body = f'{{"model":"m","input":{given_}}}'.encode()
    assert embeddings.refusal(body, wanted).message.startswith("input must be a text")


@pytest.mark.parametrize(
    ("api", "field"),
    [
        (completions, "prompt"),
        (embeddings, "input"),
        (responses, "input"),
        (conversations, "items"),
        (images, "prompt"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.path,
)
def test_what_is_missing_is_called_by_its_name(api: Api, field: str) -> None:
    assert f"`{field}`" in api.refusal(b'{"model":"m"}').message


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_any_token_ids_are_a_prompt(tokens: list[int]) -> None:
    assert completions.prompt(model="m", prompt=tokens).token_ids == (le32(*tokens),)


# -- responses, conversations, images -------------------------------------------------------------


def test_a_response_is_asked_for_like_a_chat() -> None:
    as_chat = chats.text(
        model="m",
        tools=[{"name": "f"}],
        messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
    )
    fields = {"model": "m", "tools": [{"name": "f"}], "instructions": "be brief"}
    assert responses.text(**fields, input="hi") == as_chat
    assert responses.text(**fields, input=[{"role": "user", "content": "hi"}]) == as_chat


@EVERY_DEPTH
@pytest.mark.parametrize("given_", ["null", "5", "{}", "[5]"])
def test_responses_without_an_input_are_refused(given_: str, wanted: Keys) -> None:
    body = f'{{"model":"m","input":{given_}}}'.encode()
    assert "$.input" in responses.refusal(body, wanted).message


def test_an_input_of_a_response_may_be_empty() -> None:
    assert responses.prompt(model="m", input=[]).prompts == ((),)


@EVERY_DEPTH
@pytest.mark.parametrize("items", ["[]", "null", "{}", "[1]"])
def test_conversations_without_items_are_refused(items: str, wanted: Keys) -> None:
    assert "$.items" in conversations.refusal(f'{{"items":{items}}}'.encode(), wanted).message


def test_a_conversation_is_read_item_by_item() -> None:
    items = [{"type": "message", "role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert conversations.text(items=items) == "userauserb"


@EVERY_DEPTH
@pytest.mark.parametrize("prompt", ["null", '""', "[]", '["a"]'])
def test_images_without_a_prompt_are_refused(prompt: str, wanted: Keys) -> None:
    assert "$.prompt" in images.refusal(f'{{"prompt":{prompt}}}'.encode(), wanted).message


def test_images_have_a_text_as_prompt() -> None:
    assert images.text(prompt="a cat") == "a cat"


# -- the model ------------------------------------------------------------------------------------


@EVERY_DEPTH
@pytest.mark.parametrize("model", ["5", '["m"]', '{"a":1}', "true"])
def test_b_04_a_model_that_is_no_text_is_refused(model: str, wanted: Keys) -> None:
    assert "$.model" in completions.refusal(completion('"x"', model), wanted).message


@pytest.mark.parametrize(
    "body", [completion('"x"', "null"), completion('"x"', '""'), b'{"prompt":"x"}']
)
def test_b_04_a_model_that_is_not_named_is_left_to_whoever_may_rewrite_it(body: bytes) -> None:
    assert completions.read(body).model == ""


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}])
def test_images_and_conversations_need_no_model(model: dict[str, Any]) -> None:
    assert images.read(json_of({"prompt": "x", **model})).model is None
    assert conversations.read(json_of({"items": [{}], **model})).model is None


def test_a_model_s_name_may_hold_any_character() -> None:
    body = completion('"x"', r'"m\u00fc \ud83d\ude00\n"')
    assert completions.read(body).model == "mü \U0001f600\n"


def test_of_two_models_the_last_is_meant() -> None:
    assert completions.read(b'{"model":"a","prompt":"x","model":"b"}').model == "b"


# -- tokens to generate ---------------------------------------------------------------------------


def test_chats_say_how_much_to_generate_in_two_ways() -> None:
    messages = [{"role": "user"}]
    assert chats.limit(messages=messages, max_tokens=5) == 5
    assert chats.limit(messages=messages, max_tokens=5, max_completion_tokens=7) == 7
    assert chats.limit(messages=messages, max_tokens=5, max_completion_tokens=-1) == 5


def test_completions_and_responses_each_have_a_name_for_it() -> None:
    assert completions.limit(prompt="x", max_tokens=5, max_completion_tokens=7) == 5
    assert responses.limit(input="x", max_output_tokens=5, max_tokens=7) == 5


@pytest.mark.parametrize(("limit", "expected"), [(0, 0), (16.0, 16), (2**31 - 1, 2**31 - 1)])
def test_any_whole_number_of_tokens_counts(limit: float, expected: int) -> None:
    assert completions.limit(prompt="x", max_tokens=limit) == expected


@pytest.mark.parametrize("limit", ["16", -1, 1e99, 2**31, 1.5, True, None, [], {}, 10**30])
def test_b_12_a_limit_of_the_wrong_type_is_as_good_as_none(limit: Any) -> None:
    assert completions.limit(prompt="x", max_tokens=limit) is None


@pytest.mark.parametrize("wanted", [MODEL, PROMPT | LIMIT], ids=["model", "prompt"])
@pytest.mark.parametrize(
    "loose",
    [
        '"stream":"true"',
        '"stream":1',
        '"stream_options":"x"',
        '"stream_options":{"include_usage":"true"}',
        '"max_tokens":1e400',
        '"cache_salt":5',
        '"tools":"x"',
        '"seed":12345678901234567890123,"temperature":0.10,"top_p":1e0,"k":1,"k":2',
    ],
)
def test_b_12_loosely_typed_fields_harm_nobody(loose: str, wanted: Keys) -> None:
    body = f'{{"prompt":"x","messages":[{{}}],"model":"m",{loose}}}'.encode()
    assert completions.read(body, wanted).model == "m"
    assert chats.read(body, wanted).model == "m"


def test_an_absent_limit_is_no_value() -> None:
    assert MAX_OUTPUT_TOKENS not in completions.values(completion('"x"'), LIMIT)


# -- less is read than there is, and means the same -----------------------------------------------

names = st.sampled_from(["model", "prompt", "messages", "max_tokens", "stream", "x", "é"])
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.text()
trees: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(names, inner), max_leaves=8
)
messages = st.fixed_dictionaries({"role": st.text(), "content": st.text()}, optional={"x": trees})
extras = st.dictionaries(st.text().filter(lambda name: name != "model"), trees)


@given(extras, st.text(min_size=1), st.lists(messages, min_size=1), st.integers(0, 2**31 - 1))
def test_partial_reading_of_a_chat_agrees_with_the_full_parse(
    extras: dict[str, Any], model: str, messages: list[dict[str, Any]], limit: int
) -> None:
    fields = {**extras, "model": model, "messages": messages, "max_completion_tokens": limit}
    fields.pop("tools", None)
    parsed = chats.read(json_of(fields), ALL)
    texts = "".join(message["role"] + message["content"] for message in messages)
    assert parsed.model == model
    assert parsed.values[REQUEST_BODY] == fields
    assert parsed.values[REQUEST_PROMPT].prompts == (((texts.encode(),) if texts else ()),)
    assert parsed.values[MAX_OUTPUT_TOKENS] == limit


@given(extras, st.text(min_size=1), st.lists(st.text(min_size=1), min_size=1))
def test_partial_reading_of_a_completion_agrees_with_the_full_parse(
    extras: dict[str, Any], model: str, prompts: list[str]
) -> None:
    fields = {**extras, "model": model, "prompt": prompts}
    parsed = completions.read(json_of(fields), ALL)
    assert (parsed.model, parsed.values[REQUEST_BODY]) == (model, fields)
    assert parsed.values[REQUEST_PROMPT].prompts == tuple((p.encode(),) for p in prompts)
