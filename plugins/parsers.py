"""Reading request bodies: only the fields that somebody wants, and never a rewrite.

Reading is tolerant: what a parser does not need to understand it does not look at, and the
model server gets the bytes as they came. A body that cannot be what it claims is a 400.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, final

import msgspec
from attrs import define

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, REQUEST_BODY, Parsed
from pointsman.kernel.registry import Stability

Check = Callable[[memoryview], str | None]
"""From the text of one JSON value to what is wrong with it. A view: the value may be large."""
_MESSAGES: Final = re.compile(rb"\[\s*\{")
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)


class _Named(msgspec.Struct):
    """What every API's body may have. `subject` is the field that the API is about."""

    model: str | None = None


class _Chat(_Named):
    subject: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="messages")


class _Completion(_Named):
    subject: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="prompt")


def _check_messages(raw: memoryview) -> str | None:
    """A list that begins with an object; the rest is the model server's affair."""
    if not raw:
        return "messages are missing"
    if not _MESSAGES.match(raw):
        return "messages must be a list of at least one message"
    return None


def _check_prompt(raw: memoryview) -> str | None:
    """A text, texts, token ids, or lists of token ids; none of them empty."""
    start = bytes(raw[:4])
    if start in (b"", b"null"):
        return "prompt is missing"
    if start.startswith(b'"'):
        return "prompt is empty" if start == b'""' else None
    if start.startswith(b"["):
        return None if _is_prompt_list(raw) else _BAD_PROMPT
    return _BAD_PROMPT


_BAD_PROMPT: Final = "prompt must be a text, a list of texts, or token ids, and not be empty"
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Token = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_Tokens = Annotated[list[_Token], msgspec.Meta(min_length=1)]
_PROMPT_LISTS: Final = (
    msgspec.json.Decoder(Annotated[list[_Text], msgspec.Meta(min_length=1)]),
    msgspec.json.Decoder(_Tokens),
    msgspec.json.Decoder(Annotated[list[_Tokens], msgspec.Meta(min_length=1)]),
)


def _is_prompt_list(raw: memoryview) -> bool:
    return any(_reads(decoder, raw) for decoder in _PROMPT_LISTS)


def _reads(decoder: msgspec.json.Decoder[Any], raw: memoryview) -> bool:
    try:
        decoder.decode(raw)
    except msgspec.DecodeError:
        return False
    return True


_APIS: Final[Mapping[str, tuple[type[_Chat | _Completion], Check]]] = {
    "chat/completions": (_Chat, _check_messages),
    "completions": (_Completion, _check_prompt),
}


@final
@define(eq=False)
class OpenAIParser:
    """The OpenAI API: chat completions and completions."""

    type_name: ClassVar = "openai-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = keys(MODEL_NAME, REQUEST_BODY)
    paths: ClassVar = tuple(_APIS)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        body_type, check = _APIS[path]
        decode = msgspec.json.Decoder(body_type).decode
        whole = REQUEST_BODY in wanted

        def read(body: bytes) -> Parsed:
            try:
                found = decode(body)
                values = {REQUEST_BODY: msgspec.json.decode(body)} if whole else {}
            except _UNREADABLE as exc:
                raise unreadable(exc) from None
            if (wrong := check(memoryview(found.subject))) is not None:
                raise Refusal(400, wrong)
            return Parsed(found.model or "", values)

        return read


def unreadable(exc: Exception) -> Refusal:
    """The answer to a body that is no JSON, or no JSON of the right shape.

    The decoder's message names positions and types, never content.
    """
    if isinstance(exc, msgspec.DecodeError):
        return Refusal(400, f"error reading the request body: {exc}")
    return Refusal(400, "error reading the request body: it is nested too deeply or malformed")


@final
@define(eq=False)
class PassthroughParser:
    """Takes what no other parser claims, and looks at none of it."""

    type_name: ClassVar = "passthrough-parser"
    stability: ClassVar = Stability.BETA
    paths: ClassVar[tuple[str, ...]] = ()

    def reader(self, path: str, wanted: Keys) -> None:
        return None
