"""Finds the token counts in a response that passes by, in whatever dialect and pieces it comes.

A response names its counts under ``"usage"``, or ``"meta_info"`` in SGLang's own API, once at its
end or in several events. Inside a JSON string the quotes would be escaped, so these bytes are
always a key; nothing else has to be parsed, and no more is held than an object that is not
complete yet. What begins with a zero byte is no text, but vLLM's gRPC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast, final

import msgspec
from attrs import define, field, fields

from pointsman.kernel.model import Headers, Usage

from .usage_grpc import Frames, counts_in

USAGE: Final = b'"usage"'
META_INFO: Final = b'"meta_info"'
LONGEST: Final = 4096  # bytes of a usage object; what is longer is none
MOST_BRACES: Final = 256  # in one; what has more is none
MUCH: Final = 1 << 20
"""Bytes of a piece of which only the ends are looked at: so large ones are whole responses."""
MOST_TOKENS: Final = 2**63 - 1  # that are counted; more is a mistake, and too much for some
_KEY: Final = re.compile(USAGE + b"|" + META_INFO)
_KEPT: Final = len(META_INFO) - 1  # bytes that may be the beginning of a key
_OPENING: Final = re.compile(rb"\s*(:\s*(\{|n)?)?")
_BRACE: Final = re.compile(rb'(?s)(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+([{}])')  # none in a string

_UNKNOWN: Final = Usage()
_NAMES: Final = tuple(each.name for each in fields(Usage))

PROMPT: Final = ("prompt_tokens", "input_tokens")
COMPLETION: Final = ("completion_tokens", "output_tokens")
CACHED: Final = ("cache_read_input_tokens", "cached_tokens")
DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")


@final
@define(eq=False)
class UsageReader:
    """Is fed a response's chunks, and knows its usage at the end."""

    usage: Usage | None = field(default=None, init=False)
    """What was found so far. Later counts replace earlier ones, field by field, unless by 0."""
    _held: bytes = field(default=b"", init=False)
    _began: bool = field(default=False, init=False)
    _frames: Frames | None = field(default=None, init=False)

    def feed(self, data: bytes) -> None:
        """Look at the next chunk."""
        if not self._began and data:
            self._began = True
            self._frames = Frames() if data[0] == 0 else None
        if self._frames is not None:
            for message in self._frames.feed(data):
                self._note(counts_in(message))
            return
        if len(data) > MUCH:
            self._read(data[: MUCH // 2])
            self._held = b""
            data = data[-MUCH // 2 :]
        self._read(data)

    def _read(self, data: bytes) -> None:
        if self._held:
            data = self._held + data
        position = 0
        if USAGE in data or META_INFO in data:  # quicker than the expression, and most have none
            while found := _KEY.search(data, position):
                end = self._take(data, found.end())
                if end is None:  # the rest of it comes with the next chunk
                    held = data[found.start() :]
                    self._held = held if len(held) <= LONGEST else b""
                    return
                position = end
        # No key has a line's end in it, and most chunks end with one.
        self._held = b"" if data.endswith(b"\n") else data[max(position, len(data) - _KEPT) :]

    def _take(self, data: bytes, key_end: int) -> int | None:
        """Read the value behind a key; where it ends, None when that is not known yet."""
        opening = _OPENING.match(data, key_end)
        assert opening is not None
        if opening[2] is None:
            return None if opening.end() == len(data) else opening.end()
        if opening[2] == b"n":
            return opening.end()
        start = opening.end() - 1
        end = _end_of_object(data, start)
        if end is not None:
            self._note(_counts(data[start:end]))
        return end

    def _note(self, found: Mapping[str, int | None]) -> None:
        known = self.usage or _UNKNOWN
        said = Usage(*[_later(found.get(name), getattr(known, name)) for name in _NAMES])
        if said != _UNKNOWN:
            self.usage = said


def encoding_of(headers: Headers) -> str:
    """How the response is compressed; empty if it is not."""
    encoding = (headers.get("content-encoding") or "").strip().lower()
    return "" if encoding == "identity" else encoding


def _later(count: int | None, known: int | None) -> int | None:
    return count or (count if known is None else known)


def _counts(text: bytes) -> Mapping[str, int | None]:
    try:
        counts: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {
        "prompt_tokens": _first(counts, PROMPT),
        "completion_tokens": _first(counts, COMPLETION),
        "cached_tokens": _cached(counts),
    }


def _end_of_object(data: bytes, start: int) -> int | None:
    """Where the object ends, or what is too much for a usage; None when that is not known yet."""
    depth, limit, position = 0, start + LONGEST, start
    for _ in range(MOST_BRACES):
        brace = _BRACE.match(data, position, limit)
        if brace is None:
            return None if len(data) < limit else limit
        depth += 1 if brace[1] == b"{" else -1
        position = brace.end()
        if not depth:
            break
    return position


def _first(counts: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        if (count := _count(counts.get(name))) is not None:
            return count
    return None


def _cached(counts: Mapping[str, Any]) -> int | None:
    """Part of the prompt that was cached: in OpenAI's details, or as Anthropic and SGLang do."""
    for name in DETAILS:
        details: Any = counts.get(name)
        if isinstance(details, dict):
            return _count(cast("Mapping[str, Any]", details).get("cached_tokens"))
    return _first(counts, CACHED)


def _count(value: object) -> int | None:
    """A count, also where it was written as text."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None
