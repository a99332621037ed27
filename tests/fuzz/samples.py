"""Inputs to start from: small, valid, and one of each kind."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Final

from tests.plugins.parsers.grpc_messages import (
    EmbedResponse,
    GenerateComplete,
    GenerateRequest,
    GenerateResponse,
    GenerateStreamChunk,
    HttpBody,
    MultimodalInputs,
    PlaceholderRange,
    PredictRequest,
    SamplingParams,
    TokenizedInput,
    framed,
)
from tests.plugins.recorded import exchanges
from tests.proto.recorded import exchange

from pointsman.proto import Metadata, ProcessingRequest, encode, struct_of

IMAGE: Final = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TEXT: Final = {"type": "text", "text": "h\u00e9"}
CALL: Final = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: Final = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [TEXT, IMAGE, "bare"]},
    {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": ""},
]
BLOCKS: Final = [
    {"type": "thinking", "thinking": "t"},
    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": [1, None]}},
    {"type": "tool_result", "content": [{"type": "text", "text": "x"}]},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
]
ITEMS: Final = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
    {"type": "function_call", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "output": "o"},
]
FEATURES: Final = {
    "mm_hashes": {"image": ["h"]},
    "mm_placeholders": {"image": [{"offset": 1, "length": 2}]},
}
COMMON: Final = {"model": "m", "cache_salt": "s", "stream": True, "max_tokens": 16}
TOOLS: Final = [{"type": "function", "function": {"name": "f", "parameters": {"b": 1}}}]
BODIES: Final[tuple[dict[str, Any], ...]] = (
    {"messages": CHAT, "tools": TOOLS, "max_completion_tokens": 5, **COMMON},
    {"messages": [{"role": "u", "content": BLOCKS}], "system": [TEXT], "tools": TOOLS, **COMMON},
    {"prompt": "x", "input": "x", "items": ITEMS, **COMMON},
    {"prompt": ["a", "b"], "input": ITEMS, "instructions": "i", "max_output_tokens": 5, **COMMON},
    {"prompt": [1, 70000], "input": [[1, 2], [3]], "items": CHAT, **COMMON},
    {"token_ids": [1, 2, 70000], "features": FEATURES, "sampling_params": {"max_tokens": 5}},
    {"input_ids": [1, 2], "extra_key": "s", "sampling_params": {"max_new_tokens": 5}},
)
ANSWERS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "message_start", "message": {"model": "tiny-llama", "usage": {"input_tokens": 9}}},
    {"type": "message_delta", "usage": {"output_tokens": 4, "cache_read_input_tokens": 8}},
    {"response": {"usage": {"input_tokens": 31, "input_tokens_details": {"cached_tokens": 1}}}},
    {"text": 'say \\"', "meta_info": {"finish_reason": None, "prompt_tokens": "4"}},
)


@cache
def json_bodies() -> tuple[bytes, ...]:
    """Requests that were recorded, and one of each API that was not."""
    recorded = (one.request for one in exchanges() if one.request)
    return (*recorded, *(json.dumps(body).encode() for body in BODIES))


@cache
def bodies(path: str) -> tuple[bytes, ...]:
    """Bodies of requests to *path*."""
    if "PredictionService" in path:
        return tuple(framed(_predict(body)) for body in json_bodies())
    if "VllmEngine" in path:
        return tuple(map(framed, _generate()))
    return json_bodies()


def _predict(data: bytes) -> PredictRequest:
    body = HttpBody(content_type="application/json", data=data)
    return PredictRequest(endpoint="projects/p", http_body=body)


def _generate() -> tuple[GenerateRequest, ...]:
    tokenized = TokenizedInput(original_text="x", input_ids=[1, 300, 70000, 2**32 - 1])
    places = [PlaceholderRange(offset=1, length=300), PlaceholderRange(offset=400, length=1)]
    media = MultimodalInputs(mm_placeholders=places, mm_hashes=["h"])
    sampling = SamplingParams(temperature=0.5, max_tokens=16, stop=["x"])
    return (
        GenerateRequest(request_id="r", text="h\u00e9", sampling_params=sampling, stream=True),
        GenerateRequest(tokenized=tokenized, mm_inputs=media, sampling_params=sampling),
    )


@cache
def responses() -> tuple[bytes, ...]:
    """Answers that were recorded, and in dialects that were not."""
    recorded = tuple(one.response for one in exchanges() if one.response)
    written = tuple(json.dumps(answer).encode() for answer in ANSWERS)
    events = b"".join(b"data: %b\n\n" % answer for answer in written)
    return (*recorded, *written, events, _generated(), framed(_embedded()))


def _generated() -> bytes:
    chunk = GenerateStreamChunk(token_ids=[1, 70000], prompt_tokens=9, completion_tokens=2)
    complete = GenerateComplete(finish_reason="stop", prompt_tokens=9, cached_tokens=8)
    first, last = GenerateResponse(chunk=chunk), GenerateResponse(complete=complete)
    return framed(first) + framed(last)


def _embedded() -> EmbedResponse:
    return EmbedResponse(embedding=[0.5, -1.0], prompt_tokens=9, embedding_dim=2)


@cache
def messages() -> tuple[bytes, ...]:
    """Messages of ext_proc as Envoy sends them, and one with metadata."""
    hint = struct_of({"x-gateway-destination-endpoint-subset": ["10.0.0.1:8000", None, 1.5, {}]})
    metadata = Metadata(filter_metadata={"envoy.lb.subset_hint": hint})
    recorded = (data for name in ("json", "sse") for _, data in exchange(name))
    return (*recorded, encode(ProcessingRequest(metadata_context=metadata)), b"\x0a\x01x")


def paths() -> tuple[bytes, ...]:
    return (b"/v1/chat/completions?x=1", b"/vllm.grpc.engine.VllmEngine/Generate", b"/a//b/#c")
