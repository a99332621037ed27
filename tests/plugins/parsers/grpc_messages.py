"""The gRPC requests that are read, written by an independent protobuf implementation."""

from __future__ import annotations

from dataclasses import dataclass

import betterproto2
from betterproto2 import Message, field


@dataclass(eq=False, repr=False)
class TokenizedInput(Message):
    original_text: str = field(1, betterproto2.TYPE_STRING)
    input_ids: list[int] = field(2, betterproto2.TYPE_UINT32, repeated=True)


@dataclass(eq=False, repr=False)
class SamplingParams(Message):
    temperature: float | None = field(1, betterproto2.TYPE_FLOAT, optional=True)
    max_tokens: int | None = field(8, betterproto2.TYPE_UINT32, optional=True)
    stop: list[str] = field(10, betterproto2.TYPE_STRING, repeated=True)


@dataclass(eq=False, repr=False)
class PlaceholderRange(Message):
    offset: int = field(1, betterproto2.TYPE_UINT32)
    length: int = field(2, betterproto2.TYPE_UINT32)


@dataclass(eq=False, repr=False)
class MultimodalInputs(Message):
    mm_placeholders: list[PlaceholderRange] = field(5, betterproto2.TYPE_MESSAGE, repeated=True)
    mm_hashes: list[str] = field(6, betterproto2.TYPE_STRING, repeated=True)


@dataclass(eq=False, repr=False)
class GenerateRequest(Message):
    request_id: str = field(1, betterproto2.TYPE_STRING)
    tokenized: TokenizedInput | None = field(2, betterproto2.TYPE_MESSAGE, optional=True)
    text: str | None = field(3, betterproto2.TYPE_STRING, optional=True)
    sampling_params: SamplingParams | None = field(4, betterproto2.TYPE_MESSAGE, optional=True)
    stream: bool = field(5, betterproto2.TYPE_BOOL)
    mm_inputs: MultimodalInputs | None = field(7, betterproto2.TYPE_MESSAGE, optional=True)
    kv_transfer_params_json: str = field(8, betterproto2.TYPE_STRING)


@dataclass(eq=False, repr=False)
class HttpBody(Message):
    content_type: str = field(1, betterproto2.TYPE_STRING)
    data: bytes = field(2, betterproto2.TYPE_BYTES)


@dataclass(eq=False, repr=False)
class PredictRequest(Message):
    endpoint: str = field(1, betterproto2.TYPE_STRING)
    http_body: HttpBody | None = field(2, betterproto2.TYPE_MESSAGE, optional=True)


@dataclass(eq=False, repr=False)
class GenerateStreamChunk(Message):
    token_ids: list[int] = field(1, betterproto2.TYPE_UINT32, repeated=True)
    prompt_tokens: int = field(2, betterproto2.TYPE_UINT32)
    completion_tokens: int = field(3, betterproto2.TYPE_UINT32)
    cached_tokens: int = field(4, betterproto2.TYPE_UINT32)


@dataclass(eq=False, repr=False)
class GenerateComplete(Message):
    output_ids: list[int] = field(1, betterproto2.TYPE_UINT32, repeated=True)
    finish_reason: str = field(2, betterproto2.TYPE_STRING)
    prompt_tokens: int = field(3, betterproto2.TYPE_UINT32)
    completion_tokens: int = field(4, betterproto2.TYPE_UINT32)
    cached_tokens: int = field(5, betterproto2.TYPE_UINT32)


@dataclass(eq=False, repr=False)
class GenerateResponse(Message):
    chunk: GenerateStreamChunk | None = field(1, betterproto2.TYPE_MESSAGE, optional=True)
    complete: GenerateComplete | None = field(2, betterproto2.TYPE_MESSAGE, optional=True)


@dataclass(eq=False, repr=False)
class EmbedResponse(Message):
    embedding: list[float] = field(1, betterproto2.TYPE_FLOAT, repeated=True)
    prompt_tokens: int = field(2, betterproto2.TYPE_UINT32)
    embedding_dim: int = field(3, betterproto2.TYPE_UINT32)


def length_delimited(number: int, content: bytes) -> bytes:
    """A field by hand, for what no implementation writes."""
    size, length = bytearray(), len(content)
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def framed(message: Message | bytes, *, flag: int = 0) -> bytes:
    """A message as gRPC sends it."""
    data = bytes(message)
    return bytes([flag]) + len(data).to_bytes(4, "big") + data
