"""Reading request bodies. B-xx are the field reports whose fault a test keeps away."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, REQUEST_BODY, Parsed
from pointsman.kernel.parsing import make_routes
from pointsman.plugins.parsers import OpenAIParser, PassthroughParser

CHAT = "chat/completions"
COMPLETIONS = "completions"
MODEL = keys(MODEL_NAME)
WHOLE = keys(MODEL_NAME, REQUEST_BODY)
BOTH_APIS = pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
BOTH_DEPTHS = pytest.mark.parametrize("wanted", [MODEL, WHOLE], ids=["model", "whole"])


def read(body: bytes, path: str = COMPLETIONS, wanted: Keys = MODEL) -> Parsed:
    return OpenAIParser().reader(path, wanted)(body)


def completion(prompt: str, model: str = '"m"') -> bytes:
    return f'{{"model":{model},"prompt":{prompt}}}'.encode()


def chat(messages: str) -> bytes:
    return f'{{"model":"m","messages":{messages}}}'.encode()


def refusal(body: bytes, path: str = COMPLETIONS, wanted: Keys = MODEL) -> Refusal:
    with pytest.raises(Refusal) as refused:
        read(body, path, wanted)
    assert refused.value.status == 400
    return refused.value


EVERY_SHAPE = """[
{"role":"system","content":"s"},
{"role":"user","content":[{"type":"text","text":"hi"},
 {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},
 {"type":"mystery","x":1},"bare"]},
{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
 "function":{"name":"f","arguments":"{}"}}]},
{"role":"tool","tool_call_id":"1","content":""}]"""


@BOTH_DEPTHS
def test_b_01_content_may_have_any_shape(wanted: Keys) -> None:
    assert read(chat(EVERY_SHAPE), CHAT, wanted).model == "m"


def test_b_01_the_whole_body_is_there_when_somebody_wants_it() -> None:
    body = chat(EVERY_SHAPE)
    assert read(body, CHAT, WHOLE).values == {REQUEST_BODY: json.loads(body)}


def test_nothing_but_the_model_is_read_when_nobody_wants_more() -> None:
    assert read(chat(EVERY_SHAPE), CHAT) == Parsed("m")


@pytest.mark.parametrize("messages", ["[]", '"x"', "[null]", '["x"]', "null", "{}", "5"])
def test_b_01_messages_that_are_no_messages_are_refused(messages: str) -> None:
    assert "messages must be a list" in refusal(chat(messages), CHAT).message


def test_b_01_missing_messages_are_refused() -> None:
    assert refusal(b'{"model":"m","prompt":"x"}', CHAT).message == "messages are missing"


@pytest.mark.parametrize("prompt", ['"x"', '["a","b"]', "[1,2,3]", "[[1,2],[3]]", ' [ "a" ]'])
def test_b_02_a_prompt_may_be_texts_or_token_ids(prompt: str) -> None:
    assert read(completion(prompt)).model == "m"


NO_TEXTS = ['""', "{}", "null", "5", "true", '[""]', '["a",""]', '["a",1]', "[null]", "[true]"]
NO_TOKENS = ["[]", "[1.5]", "[-1]", "[4294967296]", "[[]]", "[[1],[]]", "[[1],[-1]]", '[["a"]]']


@pytest.mark.parametrize("prompt", [*NO_TEXTS, *NO_TOKENS, "[[[1]]]"])
def test_b_02_empty_or_mixed_prompts_are_refused(prompt: str) -> None:
    assert "prompt" in refusal(completion(prompt)).message


def test_b_02_a_missing_prompt_is_refused() -> None:
    assert refusal(b'{"model":"m"}').message == "prompt is missing"


DIGITS = b"1" * 5000
MALFORMED = {
    "truncated": b'{"model":"m"',
    "no UTF-8": b"\xff",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"x"',
    "empty": b"",
    "2,000 brackets": b"[" * 2000,
    "100,000 brackets": b"[" * 100_000,
    "deep inside": b'{"model":"m","prompt":"x","x":' + b"[" * 100_000,
    "balanced and deep": b'{"model":"m","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "5,000 digits as prompt": b'{"model":"m","prompt":' + DIGITS + b"}",
    "5,000 digits as token": b'{"model":"m","prompt":[' + DIGITS + b"]}",
    "a lone surrogate": rb'{"model":"m","prompt":"\ud83d"}',
    "a lone surrogate as model": rb'{"model":"\ud83d","prompt":"x"}',
    "a lone surrogate in a list": rb'{"model":"m","prompt":["\ud83d"]}',
    "NaN": b'{"model":"m","temperature":NaN,"prompt":"x"}',
    "BOM": b'\xef\xbb\xbf{"model":"m","prompt":"x"}',
    "UTF-16": '{"model":"m","prompt":"x"}'.encode("utf-16"),
    "model that is no UTF-8": b'{"model":"\xff","prompt":"x"}',
    "two values": b'{"model":"m","prompt":"x"}{}',
}


@BOTH_APIS
@BOTH_DEPTHS
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_b_03_malformed_bodies_are_refused(body: bytes, wanted: Keys, path: str) -> None:
    assert len(refusal(body, path, wanted).message) < 200


def test_b_03_what_is_not_read_is_the_model_server_s_affair() -> None:
    body = b'{"model":"m","prompt":"x\xff","seed":' + DIGITS + b"}"
    assert read(body) == Parsed("m")
    assert "error reading the request body" in refusal(body, wanted=WHOLE).message


def test_b_03_a_refusal_quotes_nothing_of_the_body() -> None:
    for body in (b'{"model":"SECRET","prompt":SECRET}', completion("[SECRET]"), b'"SECRET"'):
        assert "SECRET" not in refusal(body).message


@pytest.mark.parametrize("model", ["5", '["m"]', '{"a":1}', "true"])
def test_b_04_a_model_that_is_no_text_is_refused(model: str) -> None:
    assert "model" in refusal(completion('"x"', model)).message


@pytest.mark.parametrize("body", [completion('"x"', "null"), completion('"x"', '""')])
def test_b_04_an_empty_model_is_left_to_whoever_may_rewrite_it(body: bytes) -> None:
    assert read(body).model == ""


def test_b_04_a_missing_model_is_left_to_whoever_may_rewrite_it() -> None:
    assert read(b'{"prompt":"x"}').model == ""


def test_a_model_s_name_may_hold_any_character() -> None:
    assert read(completion('"x"', r'"m\u00fc \ud83d\ude00\n"')).model == "mü \U0001f600\n"


# -- nothing but refusals -------------------------------------------------------------------------


def answer(body: bytes, path: str, wanted: Keys) -> Parsed | Refusal:
    try:
        return read(body, path, wanted)
    except Refusal as refused:
        return refused


def read_or_refused(body: bytes) -> bool:
    """Whether nothing but a refusal with 400 comes of *body*, however it is read."""
    answers = [answer(body, p, w) for p in (CHAT, COMPLETIONS) for w in (MODEL, WHOLE)]
    return all(isinstance(one, Parsed) or one.status == 400 for one in answers)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
trees: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
bodies = st.fixed_dictionaries({}, optional={"model": trees, "prompt": trees, "messages": trees})


@given(st.binary())
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    assert read_or_refused(body)


@given(bodies | trees)
def test_random_json_is_read_or_refused(value: Any) -> None:
    assert read_or_refused(json.dumps(value).encode())


@given(bodies, st.data())
def test_json_that_was_cut_and_spliced_is_read_or_refused(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    at = data.draw(st.integers(0, len(text)))
    assert read_or_refused(text[:at] + data.draw(st.binary(max_size=4)) + text[at + 1 :])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_any_token_ids_are_a_prompt(tokens: list[int]) -> None:
    assert read(completion(json.dumps(tokens))).model == "m"


# -- the other parser -----------------------------------------------------------------------------


def test_the_passthrough_parser_takes_what_is_left_and_looks_at_none_of_it() -> None:
    parsers = [("openai", OpenAIParser()), ("rest", PassthroughParser())]
    routes = make_routes(parsers, MODEL)
    route = routes.find("/v1/embeddings")
    assert (route.parser, route.read) == ("rest", None)
    assert routes.find("/v1/chat/completions").parser == "openai"
