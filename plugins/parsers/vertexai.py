"""Vertex AI's prediction service over gRPC: JSON of the OpenAI API, wrapped in protobuf."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from attrs import define

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import REQUEST_BODY, Parsed
from pointsman.kernel.registry import Stability
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT

from .api import Api, reader
from .openai import CHAT, RESPONSE
from .protobuf import Malformed, framed, message_in

HTTP_BODY: Final = 2
DATA: Final = 2
SERVICES: Final = (
    "google.cloud.aiplatform.v1.PredictionService",
    "google.cloud.aiplatform.v1beta1.PredictionService",
    "PredictionService",
)
METHODS: Final[Mapping[str, Api]] = {
    "ChatCompletions": CHAT,
    "RawPredict": RESPONSE,
    "StreamRawPredict": RESPONSE,
}


@final
@define(eq=False)
class VertexAIParser:
    """Vertex AI's prediction service: chats, and raw predictions as responses of the OpenAI API.

    The model is left alone: its name stands inside protobuf and cannot be exchanged.
    """

    type_name: ClassVar = "vertexai-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = keys(REQUEST_BODY, REQUEST_PROMPT, MAX_OUTPUT_TOKENS)
    paths: ClassVar = tuple(f"{service}/{method}" for service in SERVICES for method in METHODS)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        read_json = reader(METHODS[path.rpartition("/")[2]], wanted)

        def read(body: bytes) -> Parsed:
            try:
                data = message_in(message_in(framed(body), HTTP_BODY), DATA)
            except Malformed as exc:
                raise Refusal(400, f"error reading the gRPC message: {exc}") from None
            return Parsed(None, read_json(bytes(data)).values)

        return read
