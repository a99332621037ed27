"""What parser tests have in common: bodies in, values or refusals out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

import pytest

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, REQUEST_BODY, Parsed
from pointsman.plugins.keys import MAX_OUTPUT_TOKENS, REQUEST_PROMPT, RequestPrompt
from pointsman.plugins.parsers import OpenAIParser

CHAT = "chat/completions"
COMPLETIONS = "completions"
EMBEDDINGS = "embeddings"
RESPONSES = "responses"
CONVERSATIONS = "conversations"
IMAGES = "images/generations"

MODEL = keys(MODEL_NAME)
PROMPT = keys(MODEL_NAME, REQUEST_PROMPT)
LIMIT = keys(MODEL_NAME, MAX_OUTPUT_TOKENS)
WHOLE = keys(MODEL_NAME, REQUEST_BODY)
ALL = PROMPT | LIMIT | WHOLE
DEPTHS = {"model": MODEL, "prompt": PROMPT, "whole": WHOLE, "all": ALL}
EVERY_DEPTH = pytest.mark.parametrize("wanted", DEPTHS.values(), ids=DEPTHS.keys())


class Parser(Protocol):
    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]: ...


class Api:
    """One path of one parser."""

    def __init__(self, path: str = CHAT, parser: Callable[[], Parser] = OpenAIParser) -> None:
        self.path = path
        self.parser = parser()

    def read(self, body: bytes, wanted: Keys = MODEL) -> Parsed:
        return self.parser.reader(self.path, wanted)(body)

    def values(self, body: bytes, wanted: Keys = ALL) -> Any:
        return self.read(body, wanted).values

    def prompt(self, **fields: Any) -> RequestPrompt:
        """The prompt of a JSON body."""
        found = self.read(json_of(fields), PROMPT).values[REQUEST_PROMPT]
        assert isinstance(found, RequestPrompt)
        return found

    def text(self, **fields: Any) -> str:
        """The prompt of a JSON body, when it is one text."""
        ((part,),) = self.prompt(**fields).prompts
        assert isinstance(part, bytes)
        return part.decode()

    def limit(self, **fields: Any) -> int | None:
        return self.read(json_of(fields), LIMIT).values.get(MAX_OUTPUT_TOKENS)

    def refusal(self, body: bytes, wanted: Keys = MODEL) -> Refusal:
        with pytest.raises(Refusal) as refused:
            self.read(body, wanted)
        assert refused.value.status == 400
        return refused.value

    def refusals(self, body: bytes) -> list[str]:
        """What is said about a body that is refused whatever is wanted of it."""
        return [self.refusal(body, wanted).message for wanted in DEPTHS.values()]

    def read_or_refused(self, body: bytes) -> bool:
        """Whether nothing but a refusal with 400 comes of *body*, however it is read."""
        return all(self.reads(body, wanted) in (True, False) for wanted in DEPTHS.values())

    def reads(self, body: bytes, wanted: Keys) -> bool:
        """Whether *body* is not refused."""
        try:
            self.read(body, wanted)
        except Refusal as refused:
            if refused.status != 400:
                raise
            return False
        return True


def json_of(fields: Any) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def le32(*tokens: int) -> bytes:
    """Tokens as four little-endian bytes each."""
    return b"".join(token.to_bytes(4, "little") for token in tokens)
