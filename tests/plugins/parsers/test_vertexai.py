"""Vertex AI's prediction service."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.model import REQUEST_BODY
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT
from pointsman.plugins.parsers import VertexAIParser

from .grpc_messages import HttpBody, PredictRequest, framed
from .reading import ALL, CHAT, RESPONSES, Api, json_of

SERVICE = "google.cloud.aiplatform.v1beta1.PredictionService"
chats = Api(f"{SERVICE}/ChatCompletions", VertexAIParser)
METHODS = [("ChatCompletions", CHAT), ("RawPredict", RESPONSES), ("StreamRawPredict", RESPONSES)]
FIELDS: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "input": "hi",
    "max_tokens": 5,
    "max_output_tokens": 6,
}


def predict(data: bytes) -> bytes:
    body = HttpBody(content_type="application/json", data=data)
    return framed(PredictRequest(endpoint="projects/p/locations/l/endpoints/e", http_body=body))


@pytest.mark.parametrize(("method", "path"), METHODS)
def test_the_json_inside_is_read_as_of_the_openai_api(method: str, path: str) -> None:
    data = json_of(FIELDS)
    found = Api(f"{SERVICE}/{method}", VertexAIParser).values(predict(data))
    assert found == Api(path).values(data)
    assert found.keys() == {REQUEST_BODY, REQUEST_PROMPT, MAX_OUTPUT_TOKENS}


def test_the_model_cannot_be_exchanged_and_is_left_alone() -> None:
    assert chats.read(predict(json_of(FIELDS))).model is None


@pytest.mark.parametrize("data", [b"", b"no json", b"{}", b'{"messages":[]}', b"[" * 100_000])
def test_what_the_openai_api_refuses_is_refused(data: bytes) -> None:
    assert "request body" in chats.refusal(predict(data), ALL).message


@pytest.mark.parametrize("message", [b"", b"\x10\x05", b"\x12\x02\x10\x05"])
def test_a_request_without_a_body_is_refused(message: bytes) -> None:
    assert "request body" in chats.refusal(framed(message)).message


def test_b_15_a_frame_that_is_not_all_there_is_refused() -> None:
    assert "cut short" in chats.refusal(b"\0\xff\xff\xff\xff\x01").message


def test_what_is_no_message_is_refused() -> None:
    assert "gRPC message" in chats.refusal(framed(b"\x12\x05ab")).message


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert chats.read_or_refused(data)
    assert chats.read_or_refused(framed(data))
    assert chats.read_or_refused(predict(data))
