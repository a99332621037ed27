"""Changing the model's name in JSON that is otherwise left exactly as it came.

The bytes of one value are replaced; order, spacing, numbers and everything else stay. Where a
name stands is found by walking the structure, so text that merely looks like it is never hit.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias, final

import msgspec
from attrs import define, field, frozen

from .model import Buffer

Text: TypeAlias = bytes | bytearray

# A string, or a bracket. The strings' loop is unrolled: prompts are long. It never gives anything
# back, and a string that is cut off is a token, too: else each quote in it would be tried again.
_STRING: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+("|)'
_TOKEN: Final = re.compile(rb'"%b|[{}\[\]]' % _STRING, re.DOTALL)
_REST_OF_STRING: Final = re.compile(_STRING, re.DOTALL)
_MODEL_KEY: Final = b'"model"'
_ESCAPED_LETTER: Final = b"\\u006"  # that a key could be written with
_COLON: Final = re.compile(rb"\s*:\s*")
_VALUE: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,}\]"]+', re.DOTALL)
_EMPTY: Final = re.compile(rb"\s*}")
_QUOTE: Final = ord('"')
_OPEN: Final = b"{["
LOOKED_AT: Final = 1 << 20  # bytes of a piece in which a response's model is looked for
HELD_LIMIT: Final = 256 * 1024  # bytes of a response that wait for its model's name


@final
@frozen
class Span:
    """Where a value stands: ``text[start:end]``."""

    start: int
    end: int


@final
@define(eq=False)
class Walk:
    """A way along a JSON text that may still grow; no byte of it is looked at twice."""

    is_complete: bool = field(default=False, init=False)
    """Whether an object or a list ended that is in no other."""
    _depth: int = field(default=0, init=False)
    _at: int = field(default=0, init=False)
    _string: int | None = field(default=None, init=False)
    """Where the string begins in which the text ended."""
    _key_end: int | None = field(default=None, init=False)
    """The end of a key ``model`` that the last token was."""

    def model_spans(self, text: Text, limit: int = sys.maxsize) -> Iterator[Span]:
        """The values of ``model`` at the top of an object that the walk had not come to yet.

        Args:
            text: what there is by now. It may not grow before all spans were taken.
            limit: bytes after which the walk ends.
        """
        for start, end in self._tokens(text, limit):
            if self._key_end is not None:  # by now its value is whole
                span = _value_after(text, self._key_end)
                self._key_end = None
                if span is not None:
                    yield span
            if self._depth == 1 and text[start] == _QUOTE and _is_model(text[start:end]):
                self._key_end = end

    def to_the_end(self, text: Text) -> None:
        """Go past all there is by now."""
        for _ in self.model_spans(text):
            pass

    def _tokens(self, text: Text, limit: int) -> Iterator[tuple[int, int]]:
        """Where the next brackets and whole strings stand."""
        if self._string is not None:
            rest = _REST_OF_STRING.match(text, self._at, limit)
            assert rest is not None
            self._at = rest.end()
            if not rest[1]:
                return
            start, self._string = self._string, None
            yield start, self._at
        for token in _TOKEN.finditer(text, self._at, limit):
            start, self._at = token.span()
            first = text[start]
            if first in _OPEN:
                self._depth += 1
            elif first != _QUOTE:
                self._depth -= 1
                self.is_complete = self.is_complete or self._depth <= 0
            elif not token[1]:
                self._string = start
                return
            yield start, self._at
        self._at = len(text)  # no token begins in the rest


def _is_model(key: Text) -> bool:
    if b"\\" in key:  # letters may be escaped
        try:
            return msgspec.json.decode(key, type=str) == "model"
        except msgspec.DecodeError:
            return False
    return key == _MODEL_KEY


def _value_after(text: Text, key_end: int) -> Span | None:
    """The simple value behind a key's colon; None where there is none."""
    colon = _COLON.match(text, key_end)
    value = colon and _VALUE.match(text, colon.end())
    return Span(value.start(), value.end()) if value else None


class _Named(msgspec.Struct):
    model: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_NAMED: Final = msgspec.json.Decoder(_Named)


def _model_key_ends(body: bytes) -> Iterator[int]:
    """Behind each key ``model`` of any object that is written without escapes."""
    end = 0
    while (start := body.find(_MODEL_KEY, end)) >= 0:
        end = start + len(_MODEL_KEY)
        if body[start - 1 : start] != b"\\" and _COLON.match(body, end):
            yield end


def _spans_in_whole(body: bytes) -> Iterable[Span]:
    """Those of a walk to the end, which takes ten times as long as it does to ask msgspec.

    So there is none where one key alone can be the model's: all it takes is whether that is so.
    """
    ends = list(islice(_model_key_ends(body), 2))
    if len(ends) > 1 or _ESCAPED_LETTER in body:
        return Walk().model_spans(body)
    if not ends:
        return ()
    try:
        is_named = _NAMED.decode(body).model is not msgspec.UNSET
    except (msgspec.DecodeError, RecursionError):
        return Walk().model_spans(body)
    span = _value_after(body, ends[0]) if is_named else None
    return () if span is None else (span,)


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
    for last in deque(_spans_in_whole(body), maxlen=1):
        return NamePlace(last.start, last.end)
    start = body.index(b"{") + 1
    return NamePlace(start, start, b'"model":', b"" if _EMPTY.match(body, start) else b",")


def with_model(body: bytes, model: str, place: NamePlace | None = None) -> bytes:
    """A JSON object with *model* as its model, whose *place* is looked for if it is not known."""
    return b"".join((place or model_place(body)).filled(body, model))


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
    _held: bytearray = field(factory=bytearray, init=False)
    _walk: Walk = field(factory=Walk, init=False)
    """Goes along what is held."""
    _done: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._old = msgspec.json.encode(self.served)
        self._new = msgspec.json.encode(self.asked)

    def feed(self, chunk: bytes, *, end: bool) -> bytes:
        """What can be passed on now."""
        if self._done:
            return chunk
        return self._feed_events(chunk, end) if self.events else self._feed_json(chunk, end)

    def _feed_events(self, chunk: bytes, end: bool) -> bytes:
        whole, newline, rest = chunk.rpartition(b"\n")
        passed = b""
        if newline:
            lines = (self._taken() + whole).split(b"\n")
            passed = b"\n".join(map(self._line, lines)) + newline
        if rest:
            self._held += rest
            self._walk.to_the_end(self._held)
        enough = self._is_enough(self._held, end)
        return passed + self._line(self._taken()) if enough else passed

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:") or self._old not in line:
            return line
        return self._renamed(line, Walk()) or line

    def _feed_json(self, chunk: bytes, end: bool) -> bytes:
        text: Text = chunk  # one that comes whole may be large, and is not copied to be looked at
        if self._held:
            self._held += chunk
            text = self._held
        renamed = self._renamed(text, self._walk)
        if renamed is None and not self._is_enough(text, end):
            self._held = text if isinstance(text, bytearray) else bytearray(text)
            return b""
        self._done, self._held = True, bytearray()
        return bytes(text) if renamed is None else renamed

    def _renamed(self, text: Text, walk: Walk) -> bytes | None:
        """*text* with the model's other name; None when it names none that is new to *walk*."""
        named = False
        for span in walk.model_spans(text, LOOKED_AT):
            named = True
            if text[span.start : span.end] == self._old:
                view = memoryview(text)
                return b"".join((view[: span.start], self._new, view[span.end :]))
        return bytes(text) if named else None

    def _is_enough(self, text: Text, end: bool) -> bool:
        return end or len(text) > HELD_LIMIT or self._walk.is_complete

    def _taken(self) -> bytes:
        held = bytes(self._held)
        self._held, self._walk = bytearray(), Walk()
        return held
