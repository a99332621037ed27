"""The OpenAI API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Final, Generic, final

import msgspec
from attrs import define

from pointsman.kernel.keys import Keys
from pointsman.kernel.model import Parsed
from pointsman.kernel.registry import Stability
from pointsman.plugins.keys import RequestPrompt

from .api import NOTHING, PRODUCED, Api, Fields, Raw, count_of, reader, text_of
from .inputs import Text, check_input, input_prompt
from .transcript import M, Turn, Unread, of_turns

AtLeastOne = msgspec.Meta(min_length=1)


class Chat(Fields, Generic[M], kw_only=True):
    messages: Annotated[list[M], AtLeastOne]
    tools: Raw = NOTHING
    max_completion_tokens: Raw = NOTHING
    max_tokens: Raw = NOTHING

    def prompt(self) -> RequestPrompt:
        return of_turns(self.tools, None, self.messages, self.cache_salt)

    def limit(self) -> int | None:
        return count_of(self.max_completion_tokens, self.max_tokens)


class Completion(Fields, kw_only=True):
    text: Raw = msgspec.field(name="prompt")
    max_tokens: Raw = NOTHING

    def check(self) -> None:
        check_input(self.text, "prompt")

    def prompt(self) -> RequestPrompt:
        return input_prompt(self.text, "prompt", text_of(self.cache_salt))

    def limit(self) -> int | None:
        return count_of(self.max_tokens)


class Embedding(Fields, kw_only=True):
    input: Raw

    def check(self) -> None:
        check_input(self.input, "input")

    def prompt(self) -> RequestPrompt:
        return input_prompt(self.input, "input", text_of(self.cache_salt))


class Response(Fields, Generic[M], kw_only=True):
    input: str | list[M]
    instructions: Raw = NOTHING
    tools: Raw = NOTHING
    max_output_tokens: Raw = NOTHING

    def prompt(self) -> RequestPrompt:
        """As of a chat whose system message are the instructions."""
        turns: list[Unread] = []
        if instructions := text_of(self.instructions):
            turns.append(Turn(role="system", content=instructions))
        if isinstance(self.input, str):
            turns.append(Turn(role="user", content=self.input))
        else:
            turns += self.input
        return of_turns(self.tools, None, turns, self.cache_salt)

    def limit(self) -> int | None:
        return count_of(self.max_output_tokens)


class Conversation(Fields, Generic[M], kw_only=True):
    items: Annotated[list[M], AtLeastOne]

    def prompt(self) -> RequestPrompt:
        return of_turns(NOTHING, None, self.items, self.cache_salt)


class Image(Fields, kw_only=True):
    description: Text = msgspec.field(name="prompt")

    def prompt(self) -> RequestPrompt:
        return RequestPrompt(((self.description.encode(),),), salt=text_of(self.cache_salt))


CHAT: Final = Api(Chat[Unread], Chat[Turn])
COMPLETION: Final = Api(Completion, Completion)
RESPONSE: Final = Api(Response[Unread], Response[Turn])

APIS: Final[Mapping[str, Api]] = {
    "chat/completions": CHAT,
    "chat/completions/render": CHAT,
    "completions": COMPLETION,
    "completions/render": COMPLETION,
    "embeddings": Api(Embedding, Embedding),
    "responses": RESPONSE,
    "conversations": Api(Conversation[Unread], Conversation[Turn], unnamed=None),
    "images/generations": Api(Image, Image, unnamed=None),
}


@final
@define(eq=False)
class OpenAIParser:
    """The OpenAI API: chats, completions, embeddings, responses, conversations and images."""

    type_name: ClassVar = "openai-parser"
    stability: ClassVar = Stability.BETA
    produces: ClassVar = PRODUCED
    paths: ClassVar = tuple(APIS)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        return reader(APIS[path], wanted)
