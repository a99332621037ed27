"""Finds the token counts in a response that passes by, in whatever dialect and pieces it comes.

A response names its counts under ``"usage"``, once at its end or in several events. Inside a
JSON string the quotes would be escaped, so these bytes are always a key; nothing else has to be
parsed, and no more is held than an object that is not complete yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast, final

import msgspec
from attrs import define, evolve, field

from pointsman.kernel.model import Headers, Usage

KEY: Final = b'"usage"'
LONGEST: Final = 4096  # bytes of a usage object; what is longer is none
_OPENING: Final = re.compile(rb"\s*:\s*(\{|n)?")
_DEPTH: Final = re.compile(rb'[{}]|"(?:[^"\\]|\\.)*"?')  # a string may be cut off, too

PROMPT: Final = ("prompt_tokens", "input_tokens")
COMPLETION: Final = ("completion_tokens", "output_tokens")
DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")


@final
@define(eq=False)
class UsageReader:
    """Is fed a response's chunks, and knows its usage at the end."""

    usage: Usage | None = field(default=None, init=False)
    """What was found so far; later counts replace earlier ones, field by field."""
    _held: bytes = field(default=b"", init=False)

    def feed(self, data: bytes) -> None:
        """Look at the next chunk."""
        if self._held:
            data = self._held + data
        position = 0
        while (found := data.find(KEY, position)) >= 0:
            end = self._take(data, found)
            if end is None:  # the rest of it comes with the next chunk
                self._held = data[found:] if len(data) - found <= LONGEST else b""
                return
            position = end
        self._held = data[max(position, len(data) - len(KEY) + 1) :]

    def _take(self, data: bytes, found: int) -> int | None:
        """Read the value of the key at *found*; where it ends, None when that is not known yet."""
        opening = _OPENING.match(data, found + len(KEY))
        if opening is None:
            return None if not data[found + len(KEY) :].strip() else found + len(KEY)
        if opening[1] is None:
            return None if opening.end() == len(data) else opening.end()
        if opening[1] == b"n":
            return opening.end()
        start = opening.end() - 1
        end = _end_of_object(data, start)
        if end is not None:
            self._note(data[start:end])
        return end

    def _note(self, text: bytes) -> None:
        try:
            counts: Any = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return
        found = {
            "prompt_tokens": _first(counts, PROMPT),
            "completion_tokens": _first(counts, COMPLETION),
            "cached_tokens": _cached(counts),
        }
        said = {name: count for name, count in found.items() if count is not None}
        if said:
            self.usage = evolve(self.usage or Usage(), **said)


def readable(headers: Headers) -> bool:
    """Whether the response is not compressed."""
    encoding = (headers.get("content-encoding") or "").strip().lower()
    return encoding in ("", "identity")


def _end_of_object(data: bytes, start: int) -> int | None:
    depth = 0
    for token in _DEPTH.finditer(data, start, start + LONGEST):
        if token[0] == b"{":
            depth += 1
        elif token[0] == b"}":
            depth -= 1
            if not depth:
                return token.end()
    return None if len(data) - start < LONGEST else start + LONGEST


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((n for name in names if (n := _count(counts.get(name))) is not None), None)


def _cached(counts: Mapping[str, Any]) -> int | None:
    """Part of the prompt that was cached, in OpenAI's details or as Anthropic says it."""
    for name in DETAILS:
        details: Any = counts.get(name)
        if isinstance(details, dict):
            return _count(cast("Mapping[str, Any]", details).get("cached_tokens"))
    return _count(counts.get("cache_read_input_tokens"))


def _count(value: object) -> int | None:
    """A count, also where it was written as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value
