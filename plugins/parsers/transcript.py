"""What engines render of a conversation, in the order in which they do: the prompt as texts.

Messages of chats, blocks of Anthropic's and items of OpenAI's responses have most fields in
common, so one reading serves them all. What is of an unknown kind is left out; it still reaches
the model server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, cast, final

import msgspec
from attrs import define, field

from pointsman.plugins.keys import Media, Part, RequestPrompt

from .api import NOTHING, Raw, text_of

BILLING: Final = "x-anthropic-billing-header"
"""How a block begins that clients put before the system text and that changes every time."""
_NO_TOOLS: Final = (b"", b"null", b"[]")
_TEXTS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""By the type of a part: the field that holds its text."""
_MEDIA: Final = {
    "image_url": ("image", "image_url"),
    "input_image": ("image", "image_url"),
    "image": ("image", "source"),
    "video_url": ("video", "video_url"),
    "audio_url": ("audio", "audio_url"),
    "input_audio": ("audio", "input_audio"),
}
"""By the type of a part: its modality, and the field that says where its content is."""
_NAMES: Final = ("uuid", "file_id")
"""What stands for a medium that was sent before."""


@final
@define(eq=False)
class Transcript:
    """Texts and media one after the other; neighbouring texts become one part."""

    _texts: list[str] = field(factory=list[str], init=False)
    _parts: list[Part] = field(factory=list[Part], init=False)

    def text(self, text: object) -> None:
        """Add *text* if it is one."""
        if isinstance(text, str):
            self._texts.append(text)

    def json(self, value: object) -> None:
        """Add a text as it is, and anything else but nothing as JSON."""
        if value is not None and not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        self.text(value)

    def tools(self, raw: Raw) -> None:
        """Add the definitions of tools, without the blanks between their parts."""
        text = msgspec.json.format(raw, indent=-1) if raw is not NOTHING else b""
        if text not in _NO_TOOLS:
            self._texts.append(text.decode())

    def content(self, content: object) -> None:
        """Add a text, or parts of any kind."""
        if isinstance(content, str):
            self._texts.append(content)
        elif isinstance(content, list):
            for part in cast("list[object]", content):
                self._part(part)

    def _part(self, part: object) -> None:
        if not isinstance(part, dict):
            self.text(part)
            return
        fields = cast("Mapping[str, object]", part)
        kind = fields.get("type", "text")
        if kind == "tool_use":
            self.call(fields, fields.get("input"))
        elif kind == "tool_result":
            self.content(fields.get("content"))
        elif isinstance(kind, str) and kind in _TEXTS:
            self.text(fields.get(_TEXTS[kind]))
        elif isinstance(kind, str) and kind in _MEDIA:
            self._medium(fields, *_MEDIA[kind])

    def _medium(self, part: Mapping[str, object], modality: str, name: str) -> None:
        for content in (_location(part.get(name)), *map(part.get, _NAMES)):
            if content and isinstance(content, str):
                self._flush()
                self._parts.append(Media(modality, content.encode()))
                return

    def call(self, named: Mapping[str, object], arguments: object) -> None:
        """Add the call of a tool."""
        self.text(named.get("id"))
        self.text(named.get("name"))
        self.json(arguments)

    def calls(self, calls: object) -> None:
        """Add the tool calls of a chat message."""
        for call in cast("list[object]", calls) if isinstance(calls, list) else ():
            if isinstance(call, dict):
                outer = cast("Mapping[str, object]", call)
                self.text(outer.get("id"))
                function = outer.get("function")
                if isinstance(function, dict):
                    inner = cast("Mapping[str, object]", function)
                    self.call(inner, inner.get("arguments"))

    def prompt(self, salt: Raw) -> RequestPrompt:
        """All of it as a request's one prompt."""
        self._flush()
        return RequestPrompt((tuple(self._parts),), salt=text_of(salt))

    def _flush(self) -> None:
        if text := "".join(self._texts):
            self._parts.append(text.encode())
        self._texts.clear()


def _location(value: object) -> object:
    """The URL of a medium, or its data; in a data URL, where it is said what they are."""
    if not isinstance(value, dict):
        return value
    fields = cast("Mapping[str, object]", value)
    data, kind = fields.get("data"), fields.get("media_type")
    if not isinstance(data, str):
        return fields.get("url") or fields.get("file_id")
    if fields.get("type") == "base64":
        return f"data:{kind if isinstance(kind, str) else 'image/jpeg'};base64,{data}"
    form = fields.get("format")
    return data + form if isinstance(form, str) else data


class Unread(msgspec.Struct, gc=False):
    """A message that is there, and that nobody looks into."""

    def add_to(self, transcript: Transcript) -> None:
        """Nothing is known of it."""


@final
class Turn(Unread, gc=False):
    """A message of a chat or an item of a conversation, as far as engines render it."""

    role: Any = None
    name: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    summary: Any = None
    content: Any = None
    tool_calls: Any = None
    function_call: Any = None
    """The older spelling of one of `tool_calls`."""
    arguments: Any = None
    input: Any = None
    output: Any = None

    def add_to(self, transcript: Transcript) -> None:
        # There may be thousands of turns, and most have a role and content only.
        transcript.text(self.role)
        if self.name is not None:
            transcript.text(self.name)
        if self.reasoning is not None:
            transcript.content(self.reasoning)
        elif self.reasoning_content is not None:
            transcript.content(self.reasoning_content)
        if self.summary is not None:
            transcript.content(self.summary)
        transcript.content(self.content)
        if self.tool_calls is not None:
            transcript.calls(self.tool_calls)
        if self.function_call is not None:
            transcript.calls([{"function": self.function_call}])
        if self.arguments is not None:
            transcript.json(self.arguments)
        if self.input is not None:
            transcript.json(self.input)
        if self.output is not None:
            transcript.content(self.output)


M = TypeVar("M", bound=Unread)


def of_turns(tools: Raw, system: object, turns: Iterable[Unread], salt: Raw) -> RequestPrompt:
    """A conversation as engines render it: tools, system text, then turn by turn.

    Args:
        system: a text or blocks beside the turns; None where the API has no such thing.
    """
    transcript = Transcript()
    transcript.tools(tools)
    transcript.content(_without_billing(system))
    for turn in turns:
        turn.add_to(transcript)
    return transcript.prompt(salt)


def _without_billing(system: object) -> object:
    if not isinstance(system, list):
        return system
    return [block for block in cast("list[object]", system) if not _is_billing(block)]


def _is_billing(block: object) -> bool:
    text = cast("Mapping[str, object]", block).get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(BILLING)
