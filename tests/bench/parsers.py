"""What reading request bodies costs: the more is wanted, the more is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from tests.plugins.parsers.grpc_messages import framed, length_delimited

from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, REQUEST_BODY, Parsed
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT
from pointsman.plugins.parsers import AnthropicParser, OpenAIParser, VllmGrpcParser, VllmHttpParser

from .cycle import timed

SENTENCE: Final = "the quick brown fox jumps over the lazy dog. "
MODEL: Final = keys(MODEL_NAME)
PROMPT: Final = keys(MODEL_NAME, REQUEST_PROMPT, MAX_OUTPUT_TOKENS)
WHOLE: Final = keys(MODEL_NAME, REQUEST_BODY)


def rows() -> list[tuple[str, float]]:
    """Name and CPU microseconds per operation."""
    chat = OpenAIParser().reader
    short, long = _chat(1, 2_000), _chat(200, 2_000)
    tokens = json.dumps({"model": "m", "token_ids": list(range(1000, 101_000))}).encode()
    return [
        ("read a chat of 2 KB, model", _row(chat, "chat/completions", MODEL, short)),
        ("read a chat of 2 KB, prompt", _row(chat, "chat/completions", PROMPT, short)),
        ("read a chat of 400 KB, model", _row(chat, "chat/completions", MODEL, long)),
        ("read a chat of 400 KB, prompt", _row(chat, "chat/completions", PROMPT, long)),
        ("read a chat of 400 KB, all of it", _row(chat, "chat/completions", WHOLE, long)),
        (
            "read 4,000 messages of 100 bytes, prompt",
            _row(AnthropicParser().reader, "messages", PROMPT, _chat(4_000, 100)),
        ),
        (
            "read 100,000 tokens, JSON",
            _row(VllmHttpParser().reader, "inference/v1/generate", PROMPT, tokens),
        ),
        (
            "read 100,000 tokens, gRPC",
            _row(
                VllmGrpcParser().reader,
                "vllm.grpc.engine.VllmEngine/Generate",
                PROMPT,
                _grpc(100_000),
            ),
        ),
    ]


def _row(
    reader: Callable[[str, Keys], Callable[[bytes], Parsed]], path: str, wanted: Keys, body: bytes
) -> float:
    read = reader(path, wanted)
    return timed(lambda: read(body))


def _chat(messages: int, size: int) -> bytes:
    text = (SENTENCE * (size // len(SENTENCE) + 1))[:size]
    turns: list[Any] = [{"role": "user", "content": text} for _ in range(messages)]
    return json.dumps({"model": "m", "max_tokens": 100, "messages": turns}).encode()


def _grpc(tokens: int) -> bytes:
    """A framed request with *tokens* tokens of two bytes each."""
    tokenized = length_delimited(2, bytes([0x90, 0x4E]) * tokens)
    return framed(length_delimited(2, tokenized))
