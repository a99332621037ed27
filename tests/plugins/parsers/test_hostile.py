"""Bodies that mean harm, or mean nothing. B-xx, R-xx and Z-xx are field reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import share

from pointsman.kernel.model import REQUEST_BODY, Parsed
from pointsman.kernel.rewriting import with_model
from pointsman.plugins.keys import REQUEST_PROMPT
from pointsman.plugins.parsers import (
    AnthropicParser,
    OpenAIParser,
    SglangHttpParser,
    VllmHttpParser,
)
from pointsman.plugins.parsers.api import MOST_CONTAINERS, MOST_VALUES
from pointsman.plugins.parsers.inputs import MOST_PROMPTS

from .reading import ALL, MODEL, PROMPT, WHOLE, Api, json_of

JSON_PARSERS = (OpenAIParser, AnthropicParser, VllmHttpParser, SglangHttpParser)
APIS = {
    path: Api(path, parser)
    for parser in JSON_PARSERS
    for path in parser.paths
    if not path.endswith("count_tokens")
}
EVERY_API = pytest.mark.parametrize("api", APIS.values(), ids=APIS.keys())
UNNAMED = "generate"
"""The path of the API that names no model."""
GOOD: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "u", "content": "x"}],
    "prompt": "x",
    "input": "x",
    "items": [{"role": "u"}],
    "token_ids": [1],
    "input_ids": [1],
}
"""Every API finds what it needs in it."""


def good(**others: Any) -> bytes:
    return json_of({**GOOD, **others})


def with_field(text: bytes) -> bytes:
    return good()[:-1] + b"," + text + b"}"


DIGITS = b"1" * 5000
MALFORMED = {
    "truncated": good()[:-1],
    "truncated early": b'{"model":"m"',
    "no UTF-8": b"\xff",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"x"',
    "empty": b"",
    "2,000 brackets": b"[" * 2000,
    "100,000 brackets": b"[" * 100_000,
    "deep inside": with_field(b'"x":' + b"[" * 100_000),
    "balanced and deep": with_field(b'"x":' + b"[" * 100_000 + b"]" * 100_000),
    "deep objects": with_field(b'"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a lone surrogate": with_field(rb'"x":"\ud83d"'),
    "a lone surrogate as model": with_field(rb'"model":"\ud83d"'),
    "NaN": with_field(b'"temperature":NaN'),
    "BOM": b"\xef\xbb\xbf" + good(),
    "UTF-16": good().decode().encode("utf-16"),
    "two values": good() + b"{}",
    "single quotes": b"{'model':'m'}",
}


@EVERY_API
def test_the_good_body_is_good(api: Api) -> None:
    assert api.read(good(), ALL).model == (None if api.path == UNNAMED else "m")


@EVERY_API
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
def test_b_03_malformed_bodies_are_refused(body: bytes, api: Api) -> None:
    assert all(len(message) < 200 for message in api.refusals(body))


@EVERY_API
def test_b_04_a_model_that_is_no_utf_8_is_refused_where_it_matters(api: Api) -> None:
    body = with_field(b'"model":"\xff"')
    assert api.reads(body, MODEL) is (api.path == UNNAMED)


def nested(levels: int) -> bytes:
    inner = b'[{"type":"tool_result","content":' * levels + b'"x"' + b"}]" * levels
    return with_field(b'"messages":[{"role":"u","content":' + inner + b"}]")


@pytest.mark.parametrize("levels", [10, 200, 450, 600, 50_000])
def test_b_03_deep_content_is_read_or_refused(levels: int) -> None:
    assert APIS["messages"].read_or_refused(nested(levels))
    assert APIS["chat/completions"].read_or_refused(nested(levels))


def test_b_03_a_refusal_is_short_however_deep_the_fault_is() -> None:
    """Found by the fuzzer: the decoder tells the way to it."""
    content = b"[" * 400 + DIGITS + b"]" * 400
    body = with_field(b'"messages":[{"content":' + content + b"}]")
    message = APIS["chat/completions"].refusal(body, PROMPT).message
    assert message.startswith("error reading the request body: Integer value out of range")
    assert len(message) < 200


@EVERY_API
@pytest.mark.parametrize("name", ["prompt", "input", "messages", "items", "token_ids", "input_ids"])
def test_b_03_numbers_of_5000_digits_harm_nobody(api: Api, name: str) -> None:
    assert api.read_or_refused(with_field(b'"%s":%s' % (name.encode(), DIGITS)))
    assert api.read_or_refused(with_field(b'"%s":[%s]' % (name.encode(), DIGITS)))


@pytest.mark.parametrize(
    "tools",
    [b"[1e999]", b"[" + DIGITS + b"]", b'["\xff"]', b"[" * 500 + b"]" * 500],
    ids=["huge", "digits", "no UTF-8", "deep"],
)
def test_b_03_tools_may_be_anything(tools: bytes) -> None:
    assert APIS["chat/completions"].read_or_refused(with_field(b'"tools":' + tools))


def test_b_03_what_is_not_read_is_the_model_server_s_affair() -> None:
    completions = APIS["completions"]
    body = b'{"model":"m","prompt":"x\xff","seed":' + DIGITS + b"}"
    assert completions.read(body) == Parsed("m")
    for wanted in (PROMPT, WHOLE):
        assert "error reading the request body" in completions.refusal(body, wanted).message


MANY: dict[str, Callable[[int], bytes]] = {
    "texts": lambda n: with_field(b'"x":[""' + b',"x"' * n + b"]"),
    "fields": lambda n: with_field(b'"a":1,' * n + b'"b":2'),
    "tokens": lambda n: with_field(b'"prompt":[1' + b",1" * n + b"]"),
}
CONTAINERS: dict[str, Callable[[int], bytes]] = {
    "messages": lambda n: with_field(b'"messages":[{}' + b",{}" * n + b"]"),
    "parts": lambda n: with_field(b'"messages":[{"content":[{}' + b",{}" * n + b"]}]"),
    "calls": lambda n: with_field(b'"messages":[{"tool_calls":[{}' + b",{}" * n + b"]}]"),
    "lists": lambda n: with_field(b'"prompt":[[1]' + b",[1]" * n + b"]"),
}


@pytest.mark.parametrize("many", MANY.values(), ids=MANY.keys())
def test_r_01_more_values_than_any_request_needs_are_refused(many: Callable[[int], bytes]) -> None:
    refused = APIS["chat/completions"].refusal(many(MOST_VALUES), ALL)
    assert refused.message == f"the request body holds more than {MOST_VALUES} values"


@pytest.mark.parametrize("many", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_r_01_more_structure_than_any_request_needs_is_refused(
    many: Callable[[int], bytes],
) -> None:
    refused = APIS["chat/completions"].refusal(many(MOST_CONTAINERS), ALL)
    assert "more than 300000 lists and objects" in refused.message


def test_r_01_a_document_in_a_text_may_have_as_many_brackets_as_it_likes() -> None:
    document = json.dumps([{"a": [1]}] * MOST_CONTAINERS)
    chat = {"model": "m", "messages": [{"role": "user", "content": document}]}
    assert APIS["chat/completions"].read(json.dumps(chat).encode(), ALL).model == "m"


def test_r_01_more_prompts_than_any_request_needs_are_refused() -> None:
    body = good(prompt=["x"] * (MOST_PROMPTS + 1))
    assert APIS["completions"].refusals(body) == ["prompt holds more than 100000 prompts"] * 4
    assert APIS["completions"].read(good(prompt=["x"] * MOST_PROMPTS), PROMPT).model == "m"


def test_r_01_a_million_tokens_are_read() -> None:
    body = good(token_ids=[70_000] * 1_000_000)
    found = APIS["inference/v1/generate"].values(body, PROMPT)[REQUEST_PROMPT]
    assert len(found.token_ids[0]) == 4_000_000


def test_r_01_a_large_text_is_no_many_values() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000_000}}
    body = good(messages=[{"role": "u", "content": [image]}])
    assert APIS["chat/completions"].read(body, PROMPT).model == "m"


SECRETS = (
    b'{"model":"SECRET","prompt":SECRET}',
    b'{"model":["SECRET"],"prompt":"SECRET","messages":"SECRET"}',
    b'{"model":"m","prompt":["SECRET",1],"messages":["SECRET"],"input":{"SECRET":1}}',
    b'{"model":"m","token_ids":["SECRET"],"input_ids":["SECRET"],"items":"SECRET"}',
    b'{"SECRET":1}',
    b'"SECRET"',
    b'SECRET\xff{"model"',
)


@EVERY_API
@pytest.mark.parametrize("body", SECRETS)
def test_z_03_a_refusal_quotes_nothing_of_the_body(api: Api, body: bytes) -> None:
    assert not any("SECRET" in message for message in api.refusals(body))


# -- nothing but refusals -------------------------------------------------------------------------

finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | finite | st.text()
kinds = st.sampled_from(["text", "image_url", "image", "tool_use", "tool_result", "input_audio"])
part_fields = st.sampled_from(
    ["text", "image_url", "source", "url", "data", "content", "input", "name", "function", "format"]
)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.dictionaries(part_fields, inner).flatmap(
        lambda fields: kinds.map(lambda kind: {"type": kind, **fields})
    )
    return st.lists(inner) | st.dictionaries(st.text(), inner) | parts


trees: st.SearchStrategy[Any] = st.recursive(scalars, containers, max_leaves=10)
turns = st.dictionaries(
    st.sampled_from(["role", "content", "tool_calls", "reasoning", "arguments", "output"]), trees
)
FIELDS = ("model", "system", "tools", "features", "sampling_params", "max_tokens", "cache_salt")
bodies = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys((*FIELDS, "prompt", "input", "token_ids", "input_ids"), trees),
        **dict.fromkeys(("messages", "items"), trees | st.lists(turns)),
    },
)


THOROUGHLY = settings(max_examples=share(0.5))  # each example is read by every API at every depth


def read_or_refused(body: bytes) -> bool:
    return all(api.read_or_refused(body) for api in APIS.values())


@given(st.binary())
def test_random_bytes_are_read_or_refused(body: bytes) -> None:
    assert read_or_refused(body)


@THOROUGHLY
@given(bodies | trees | st.floats() | st.dictionaries(st.sampled_from(FIELDS), st.floats()))
def test_random_json_is_read_or_refused(value: Any) -> None:
    """Also of numbers that JSON does not have."""
    assert read_or_refused(json.dumps(value).encode())


@THOROUGHLY
@given(bodies, st.text(min_size=1))
def test_b_06_another_model_changes_nothing_else(value: dict[str, Any], model: str) -> None:
    body = good(**{name: value[name] for name in value if name not in GOOD})
    for api in APIS.values():
        before, after = api.read(body, ALL), api.read(with_model(body, model), ALL)
        assert after.model == (None if api.path == UNNAMED else model)
        assert after.values == {**before.values, REQUEST_BODY: json.loads(body) | {"model": model}}


@THOROUGHLY
@given(bodies)
def test_what_nobody_wants_makes_no_good_body_bad(value: dict[str, Any]) -> None:
    """The fewer keys are wanted, the fewer bodies are refused."""
    body = json.dumps(value).encode()
    for api in APIS.values():
        if api.reads(body, ALL):
            assert api.reads(body, PROMPT)
        if api.reads(body, PROMPT):
            assert api.reads(body, MODEL)


@THOROUGHLY
@given(bodies, st.data())
def test_json_that_was_cut_and_spliced_is_read_or_refused(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")
    at = data.draw(st.integers(0, len(text)))
    assert read_or_refused(text[:at] + data.draw(st.binary(max_size=4)) + text[at + 1 :])
