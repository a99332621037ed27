"""What a server says to requests that it does not take, as vLLM says it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.http import Request, Response
from pointsman.actors.sim.api import ApiError, ChatRequest, CompletionRequest, decode
from pointsman.actors.sim.model_server import ModelServer
from pointsman.actors.sim.pods import Pod, PodSettings

CHAT = "/v1/chat/completions"


@pytest.fixture
def server() -> ModelServer:
    return ModelServer(Pod("sim-1", "127.0.1.1", 8000, PodSettings(max_model_len=2048)))


async def answer(server: ModelServer, path: str, body: bytes, method: str = "POST") -> Response:
    return await server.handle(Request(method, path, {}, {}, body))


async def error(server: ModelServer, body: bytes, path: str = CHAT) -> tuple[int, Any]:
    response = await answer(server, path, body)
    assert isinstance(response.body, bytes)
    assert ("content-type", "application/json") in response.headers
    return response.status, json.loads(response.body)["error"]


async def test_an_unknown_model(server: ModelServer) -> None:
    assert await error(server, b'{"model":"nope","messages":[{"role":"user","content":"x"}]}') == (
        404,
        {
            "message": "The model `nope` does not exist. Valid aliases: llama-8b.",
            "type": "NotFoundError",
            "param": "model",
            "code": 404,
        },
    )


async def test_a_body_that_is_no_json(server: ModelServer) -> None:
    body = b'{"model": "tiny-llama", "messages": [ '
    assert await error(server, body.rstrip()) == (
        400,
        {
            "message": "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.37', "
            "'msg': 'JSON decode error', 'input': '<dict of 0 items>', "
            "'ctx': {'error': 'Expecting value'}}",
            "type": "Bad Request",
            "param": "body.37",
            "code": 400,
        },
    )


async def test_a_chat_without_messages(server: ModelServer) -> None:
    assert await error(server, b'{"model":"llama-8b"}') == (
        400,
        {
            "message": "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', "
            "'msg': 'Field required', 'input': '<dict of 1 items>'}",
            "type": "Bad Request",
            "param": "body.messages",
            "code": 400,
        },
    )


async def test_a_negative_temperature(server: ModelServer) -> None:
    body = b'{"temperature":-3,"messages":[{"role":"user","content":"x"}]}'
    assert await error(server, body) == (
        400,
        {
            "message": "temperature must be non-negative, got -3.0. "
            "(parameter=temperature, value=-3.0)",
            "type": "BadRequestError",
            "param": "temperature",
            "code": 400,
        },
    )


async def test_more_tokens_than_the_context_has(server: ModelServer) -> None:
    body = b'{"max_tokens":4000,"messages":[{"role":"user","content":"x"}]}'
    assert await error(server, body) == (
        400,
        {
            "message": "max_tokens=4000 cannot be greater than max_model_len=2048. "
            "Please request fewer output tokens. (parameter=max_tokens, value=4000)",
            "type": "BadRequestError",
            "param": "max_tokens",
            "code": 400,
        },
    )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "x " * 4000}, "input_tokens"),
        ({"prompt": "x " * 1000, "max_tokens": 1100}, "max_tokens"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "max_tokens": "many"}, "body.max_tokens"),
        ({"prompt": "x", "n": 0}, "n"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": ["x", ""]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1], [2**40]]}, "prompt"),
        ({"prompt": None}, "body.prompt"),
        ({"prompt": []}, "body.prompt"),
        ({"prompt": {"a": 1}}, "body.prompt"),
        ({}, "body.prompt"),
        ([1], "body"),
    ],
)
async def test_a_wrong_parameter_is_named(server: ModelServer, body: object, param: str) -> None:
    status, told = await error(server, json.dumps(body).encode(), "/v1/completions")
    assert (status, told["param"], told["code"]) == (400, param, 400)


async def test_nothing_to_tokenize(server: ModelServer) -> None:
    status, told = await error(server, b"{}", "/tokenize")
    assert (status, told["param"]) == (400, "body.prompt")


async def test_an_unknown_path(server: ModelServer) -> None:
    response = await answer(server, "/v1/nope", b"", "GET")
    assert (response.status, response.body) == (404, b'{"detail":"Not Found"}')


async def test_a_method_that_does_not_fit(server: ModelServer) -> None:
    response = await answer(server, CHAT, b"", "GET")
    assert (response.status, response.body) == (405, b'{"detail":"Method Not Allowed"}')
    assert ("allow", "POST") in response.headers


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=8,
)
names = st.sampled_from(["messages", "prompt", "model", "max_tokens", "n", "stream", "seed"])


def read_prompts(body: bytes) -> None:
    with suppress(ApiError):
        decode(body, ChatRequest).prompts()
    with suppress(ApiError):
        decode(body, CompletionRequest).prompts()


@given(st.dictionaries(names, json_values) | json_values)
def test_any_json_is_a_request_or_an_api_error(value: object) -> None:
    read_prompts(json.dumps(value).encode())


@given(st.binary())
def test_bytes_that_are_no_chat_are_a_bad_request(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        decode(body, ChatRequest)
    assert refused.value.status == 400
