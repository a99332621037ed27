"""Changing the model's name in JSON that is otherwise left exactly as it came.

The bytes of one value are replaced; order, spacing, numbers and everything else stay. Where a
name stands is found by walking the structure, so text that merely looks like it is never hit.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Final, final

import msgspec
from attrs import define, field, frozen

from .model import Buffer

# A string, or a bracket. The strings' loop is unrolled: prompts are long. It never gives anything
# back, and a string that is cut off is a token, too: else each quote in it would be tried again.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{}\[\]]', re.DOTALL)
_COLON: Final = re.compile(rb"\s*:\s*")
_VALUE: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,}\]"]+', re.DOTALL)
_EMPTY: Final = re.compile(rb"\s*}")
_QUOTE: Final = ord('"')
_OPEN: Final = b"{["
_CLOSE: Final = b"}]"
LOOKED_AT: Final = 1 << 20  # bytes of a piece in which a response's model is looked for
HELD_LIMIT: Final = 256 * 1024  # bytes of a response that wait for its model's name


@final
@frozen
class Span:
    """Where a value stands: ``text[start:end]``."""

    start: int
    end: int


def model_spans(text: bytes) -> Iterator[Span]:
    """The values of ``model`` at the top of a JSON object, also of one that is cut off."""
    for token, depth in _tokens(text):
        is_key = depth == 1 and text[token.start()] == _QUOTE and _is_model(token[0])
        if is_key and (span := _value_after(text, token.end())):
            yield span


def _is_complete(text: bytes) -> bool:
    """Whether *text* begins with an object or a list, and that ends in it."""
    for token, depth in _tokens(text):
        if depth <= 0:
            return text[token.start()] in _CLOSE
    return False


def _tokens(text: bytes) -> Iterator[tuple[re.Match[bytes], int]]:
    """Strings and brackets, each with how many lists and objects are open behind it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in _OPEN:
            depth += 1
        elif first != _QUOTE:
            depth -= 1
        yield token, depth


def _is_model(key: bytes) -> bool:
    if b"\\" in key:  # letters may be escaped
        try:
            return msgspec.json.decode(key, type=str) == "model"
        except msgspec.DecodeError:
            return False
    return key == b'"model"'


def _value_after(text: bytes, key_end: int) -> Span | None:
    """The simple value behind a key's colon; None where there is none (yet)."""
    colon = _COLON.match(text, key_end)
    if colon is None:
        return None
    value = _VALUE.match(text, colon.end())
    if value is None or value.end() == len(text):
        return None  # it may go on in what has not come yet
    return Span(value.start(), value.end())


@final
@frozen
class NamePlace:
    """Where in a body a model's name goes: in the place of ``body[start:end]``."""

    start: int
    end: int
    before: bytes = b""
    after: bytes = b""

    def filled(self, body: Buffer, model: str) -> tuple[Buffer, bytes, Buffer]:
        """*body* with *model* there, in pieces: those of a view are views, too."""
        name = self.before + msgspec.json.encode(model) + self.after
        return body[: self.start], name, body[self.end :]


def model_place(body: bytes) -> NamePlace:
    """The place of a JSON object's model: the last that it names, or a new first field."""
    for last in deque(model_spans(body), maxlen=1):
        return NamePlace(last.start, last.end)
    start = body.index(b"{") + 1
    return NamePlace(start, start, b'"model":', b"" if _EMPTY.match(body, start) else b",")


def with_model(body: bytes, model: str, place: NamePlace | None = None) -> bytes:
    """A JSON object with *model* as its model, whose *place* is looked for if it is not known."""
    return b"".join((place or model_place(body)).filled(body, model))


def _renamed(text: bytes, old: bytes, new: bytes) -> bytes | None:
    """*text* with the model *old* called *new*; None when it names no model at all."""
    found = False
    for span in model_spans(text):
        found = True
        if text[span.start : span.end] == old:
            return text[: span.start] + new + text[span.end :]
    return text if found else None


@final
@define(eq=False)
class ModelRestorer:
    """Gives a response the model's name back that the request had asked for.

    Chunks go in as they come, cut anywhere, and come out whole lines (event streams) or from
    the moment on that the name is known (JSON). What is held back is bounded; beyond that, and
    in anything that is neither, bytes pass as they are. Nothing is held back of JSON that is
    complete: some proxies have no place for it when the body ends with trailers.
    """

    events: bool
    """Whether the response is an event stream."""
    asked: str
    served: str
    _old: bytes = field(init=False)
    _new: bytes = field(init=False)
    _held: bytes = field(default=b"", init=False)
    _done: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._old = msgspec.json.encode(self.served)
        self._new = msgspec.json.encode(self.asked)

    def feed(self, chunk: bytes, *, end: bool) -> bytes:
        """What can be passed on now."""
        if self._done:
            return chunk
        text = self._held + chunk
        self._held = b""
        return self._feed_events(text, end) if self.events else self._feed_json(text, end)

    def _feed_events(self, text: bytes, end: bool) -> bytes:
        whole, newline, rest = text.rpartition(b"\n")
        if end or len(rest) > HELD_LIMIT or _is_complete(rest.removeprefix(b"data:")):
            whole, newline, rest = text, b"", b""
        self._held = rest
        return b"\n".join(map(self._line, whole.split(b"\n"))) + newline

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:") or self._old not in line:
            return line
        renamed = _renamed(line[5:] + b" ", self._old, self._new)
        return line if renamed is None else b"data:" + renamed[:-1]

    def _feed_json(self, text: bytes, end: bool) -> bytes:
        renamed = _renamed(text[:LOOKED_AT], self._old, self._new)
        if renamed is not None:
            renamed += text[LOOKED_AT:]
        elif not end and len(text) <= HELD_LIMIT and not _is_complete(text):
            self._held = text
            return b""
        self._done = True
        return text if renamed is None else renamed
