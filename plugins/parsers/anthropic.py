"""The Anthropic API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Final, Generic, final

import msgspec
from attrs import define

from pointsman.kernel.keys import Keys
from pointsman.kernel.model import Parsed
from pointsman.kernel.registry import Stability
from pointsman.plugins.keys import RequestPrompt

from .api import (
    NOTHING,
    PRODUCED,
    UNREADABLE,
    Api,
    Fields,
    Raw,
    count_of,
    reader,
    refuse_bulk,
    value_of,
)
from .transcript import M, Turn, Unread, of_turns

COUNT_TOKENS: Final = "messages/count_tokens"


class Messages(Fields, Generic[M], kw_only=True):
    messages: Annotated[list[M], msgspec.Meta(min_length=1)]
    system: Raw = NOTHING
    tools: Raw = NOTHING
    max_tokens: Raw = NOTHING

    def prompt(self) -> RequestPrompt:
        system: Any = value_of(self.system, object)
        return of_turns(self.tools, system, self.messages, self.cache_salt)

    def limit(self) -> int | None:
        return count_of(self.max_tokens)


MESSAGES: Final = Api(Messages[Unread], Messages[Turn])
_NAME: Final = msgspec.json.Decoder(Fields)


@final
@define(eq=False)
class AnthropicParser:
    """The Anthropic API: messages, and the counting of their tokens."""

    type_name: ClassVar = "anthropic-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = PRODUCED
    paths: ClassVar = ("messages", COUNT_TOKENS)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        return read_name if path == COUNT_TOKENS else reader(MESSAGES, wanted)


def read_name(body: bytes) -> Parsed:
    """The model of a body that may be anything: it generates nothing, so nobody insists."""
    try:
        refuse_bulk(body)
        return Parsed(_NAME.decode(body).model or None)
    except UNREADABLE:
        return Parsed()
