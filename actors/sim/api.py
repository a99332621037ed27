"""What clients ask of a model server, checked; and what they are told when it is wrong.

The error bodies are those of vLLM 0.32, as far as clients and pickers can tell.
"""

from __future__ import annotations

import json
import re
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from pointsman.actors.http import Response, json_response

from .faults import Failure
from .tokens import VOCABULARY, render_chat, tokenize

T = TypeVar("T")


class ApiError(Exception):
    """A request that is answered with an error in the OpenAI shape."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(status, message)
        self.status = status
        self.kind = kind
        self.message = message
        self.param = param

    @classmethod
    def of(cls, failure: Failure) -> ApiError:
        return cls(failure.status, failure.type, failure.message)

    def response(self) -> Response:
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return json_response({"error": error}, self.status)


def bad_request(message: str, param: str, value: object = None) -> ApiError:
    detail = "" if value is None else f" (parameter={param}, value={value})"
    return ApiError(400, "BadRequestError", f"{message}{detail}", param)


def invalid(kind: str, location: str, message: str, more: str = "") -> ApiError:
    """The body does not have the shape it should have at *location*."""
    text = f"{{'type': '{kind}', 'loc': '{location}', 'msg': '{message}'{more}}}"
    return ApiError(400, "Bad Request", f"1 validation error:\n  {text}", location)


class TextPart(Struct):
    """One piece of a message; those that are no text count as nothing."""

    text: str = ""


class Message(Struct):
    role: str
    content: str | list[TextPart] | None = None

    @property
    def words(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerateRequest(Struct, kw_only=True):
    """What chat and plain completions have in common."""

    model: str | None = None
    n: int = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float | None = None
    seed: int | None = None
    cache_salt: str | None = None

    @property
    def most_tokens(self) -> int | None:
        """The client's limit of the answer, if there is one."""
        return self.max_tokens

    def check(self, max_model_len: int) -> None:
        """Raises: ApiError: a parameter has a value that the server does not take."""
        if self.temperature is not None and self.temperature < 0:
            message = f"temperature must be non-negative, got {self.temperature}."
            raise bad_request(message, "temperature", self.temperature)
        if self.n < 1:
            raise bad_request(f"n must be at least 1, got {self.n}.", "n", self.n)
        most = self.most_tokens
        if most is not None and most < 1:
            raise bad_request(f"max_tokens must be at least 1, got {most}.", "max_tokens", most)
        if most is not None and most > max_model_len:
            message = f"max_tokens={most} cannot be greater than max_model_len={max_model_len}."
            hint = "Please request fewer output tokens."
            raise bad_request(f"{message} {hint}", "max_tokens", most)
        if self.stream_options is not None and not self.stream:
            message = "Stream options can only be defined when `stream=True`."
            raise bad_request(message, "stream_options")


class ChatRequest(GenerateRequest, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompts(self) -> list[list[int]]:
        """The tokens of the one prompt that the messages are."""
        return [render_chat((message.role, message.words) for message in self.messages)]


class CompletionRequest(GenerateRequest, kw_only=True):
    prompt: Raw
    max_tokens: int | None = 16

    def prompts(self) -> list[list[int]]:
        """The tokens of each prompt: text, texts, tokens or several lists of tokens."""
        if text := _read(self.prompt, str):
            return [tokenize(text)]
        if texts := _read(self.prompt, list[str]):
            return [tokenize(text) for text in texts]
        if tokens := _read(self.prompt, list[int]):
            return [_in_vocabulary(tokens)]
        if lists := _read(self.prompt, list[list[int]]):
            return [_in_vocabulary(tokens) for tokens in lists]
        raise invalid("prompt_type", "body.prompt", "Expected text, tokens or lists of them")


class TokenizeRequest(Struct):
    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None

    def tokens(self) -> list[int]:
        if self.messages is not None:
            return render_chat((message.role, message.words) for message in self.messages)
        if self.prompt is None:
            raise invalid("missing", "body.prompt", "Field required")
        return tokenize(self.prompt)


class AdapterRequest(Struct):
    lora_name: str
    lora_path: str = ""


def decode(body: bytes, kind: type[T]) -> T:
    """Read a JSON body as *kind*; fields that it does not know are left alone.

    Raises:
        ApiError: it is not JSON, or not of that shape.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise _misshaped(str(error), body) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _not_json(body) from None


def _misshaped(message: str, body: bytes) -> ApiError:
    text, _, path = message.partition(" - at `$")
    location = f"body{path.rstrip('`')}"
    if absent := re.search(r"missing required field `(\w+)`", text):
        size = len(msgspec.json.decode(body, type=dict[str, Raw])) if location == "body" else 0
        more = f", 'input': '<dict of {size} items>'"
        return invalid("missing", f"{location}.{absent[1]}", "Field required", more)
    return invalid("type_error", location, text)


def _not_json(body: bytes) -> ApiError:
    position, reason = 0, "Expecting value"
    try:
        json.loads(body)
    except json.JSONDecodeError as error:
        position, reason = error.pos, error.msg
    except UnicodeDecodeError as error:
        position, reason = error.start, "Invalid UTF-8"
    more = f", 'input': '<dict of 0 items>', 'ctx': {{'error': '{reason}'}}"
    return invalid("json_invalid", f"body.{position}", "JSON decode error", more)


def _read(raw: Raw, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        return None


def _in_vocabulary(tokens: list[int]) -> list[int]:
    """Raises: ApiError: a number is no token."""
    strange = [token for token in tokens if not 0 <= token < VOCABULARY]
    if strange:
        raise bad_request(f"Token id {strange[0]} is out of vocabulary.", "prompt")
    return tokens
