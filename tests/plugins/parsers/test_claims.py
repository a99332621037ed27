"""Which parser reads which path. P-12 is a field report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from pointsman.kernel.errors import ConfigError
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint, Headers
from pointsman.kernel.parsing import make_routes, path_of
from pointsman.kernel.registry import Registry
from pointsman.kernel.testing import wired
from pointsman.plugins.keys import REQUEST_PROMPT
from pointsman.plugins.parsers import (
    AnthropicParser,
    OpenAIParser,
    PassthroughParser,
    SglangHttpParser,
    VertexAIParser,
    VllmGrpcParser,
    VllmHttpParser,
)

from .reading import MODEL

CLASSES = (
    PassthroughParser,
    OpenAIParser,
    AnthropicParser,
    SglangHttpParser,
    VllmHttpParser,
    VllmGrpcParser,
    VertexAIParser,
)
ROUTES = make_routes([(one.type_name, one()) for one in CLASSES], MODEL)
VERTEX = "/google.cloud.aiplatform.v1beta1.PredictionService"


def parser_of(path: str) -> str:
    return ROUTES.find(path_of(Headers({":path": path.encode()}))).parser


@pytest.mark.parametrize(
    ("path", "parser"),
    [
        ("/v1/chat/completions", "openai-parser"),
        ("/v1/chat/completions/render", "openai-parser"),
        ("/v1/completions/render/", "openai-parser"),
        ("/v1/embeddings", "openai-parser"),
        ("/v1/responses", "openai-parser"),
        ("/v1/conversations", "openai-parser"),
        ("/v1/images/generations", "openai-parser"),
        ("/v1/projects/p/locations/l/endpoints/e/chat/completions", "openai-parser"),
        ("/v1/messages?beta=true", "anthropic-parser"),
        ("/v1/messages/count_tokens", "anthropic-parser"),
        ("/inference/v1/generate", "vllmhttp-parser"),
        ("/generate", "sglanghttp-parser"),
        ("/vllm.grpc.engine.VllmEngine/Generate", "vllmgrpc-parser"),
        ("/vllm.grpc.engine.VllmEngine/Embed", "vllmgrpc-parser"),
        (f"{VERTEX}/ChatCompletions", "vertexai-parser"),
        (f"{VERTEX}/StreamRawPredict", "vertexai-parser"),
    ],
)
def test_p_12_every_api_has_its_parser(path: str, parser: str) -> None:
    assert parser_of(path) == parser


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/foo?x=/v1/completions",
        "/v1/audio/transcriptions",
        "/v1/responses/resp_1/cancel",
        "/v1/xchat/xcompletions",
        "/vllm.grpc.engine.VllmEngine/HealthCheck",
        f"{VERTEX}/Explain",
    ],
)
def test_p_12_nothing_else_is_taken_for_an_api(path: str) -> None:
    assert parser_of(path) == "passthrough-parser"


def test_b_05_the_passthrough_parser_looks_at_no_body() -> None:
    assert ROUTES.find("/v1/audio/transcriptions").read is None


class PromptReader:
    """Wants the prompt."""

    type_name: ClassVar = "prompt-reader"
    consumes: ClassVar = Consumes(REQUEST_PROMPT)

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        """Nobody is refused."""


def test_only_what_some_plugin_consumes_is_read() -> None:
    def values(text: str) -> set[str]:
        read = wired(text, PromptReader, OpenAIParser).routes.find("/v1/completions").read
        assert read is not None
        body = b'{"model":"m","prompt":"x","max_tokens":5}'
        return {key.name for key in read(body).values}

    assert values("plugins: []") == set()
    assert values("plugins: [{type: prompt-reader}]") == {REQUEST_PROMPT.name}


@pytest.mark.parametrize("parser", CLASSES, ids=lambda parser: parser.type_name)
def test_parsers_have_no_parameters(parser: type[Any]) -> None:
    with pytest.raises(ConfigError, match=r"parameters\.path: unknown field"):
        wired(f"plugins: [{{type: {parser.type_name}, parameters: {{path: /x}}}}]", *CLASSES)


def test_every_parser_can_be_registered() -> None:
    registry = Registry()
    for parser in CLASSES:
        assert registry.register(parser).summary.endswith(".")
