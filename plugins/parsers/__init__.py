"""Parsers: which bodies they read, what they make of them, and what they refuse.

Reading is tolerant: what a parser does not need to understand it does not look at, and the
model server gets the bytes as they came. A body that cannot be what it claims is a 400.
"""

from __future__ import annotations

from .anthropic import AnthropicParser
from .engines import SglangHttpParser, VllmHttpParser
from .openai import OpenAIParser
from .passthrough import PassthroughParser
from .vertexai import VertexAIParser
from .vllm_grpc import VllmGrpcParser

__all__ = [
    "AnthropicParser",
    "OpenAIParser",
    "PassthroughParser",
    "SglangHttpParser",
    "VertexAIParser",
    "VllmGrpcParser",
    "VllmHttpParser",
]
