"""Inputs that resemble those of a corpus, and are wrong in some way."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from attrs import define

TOKENS: Final = (
    *(b'"', b"\\", b'\\"', b"{", b"}", b"[", b"]", b",", b":", b" ", b"\r\n", b"\n\n"),
    *(b"null", b"true", b'""', b"{}", b"[]", b"-1", b"0.5", b"1e999", b"NaN", b"1" * 5000),
    *(b"\\ud83d", b"\\u0000", b"\xff", b"\0", b"\xef\xbb\xbf", "\u00e9\u2028".encode()),
    *(b'"model":', b'"model":"m",', b'"usage":{', b'"prompt_tokens":', b'"meta_info":{'),
    *(b"data: ", b"data:", b"event: x\n", b"data: [DONE]\n\n", b'"type":"image_url",'),
    *(b"\x0a\x00", b"\x12\x01", b"\x7a\x05", b"\x0b\x0c", b"\x80" * 10, b"\xff\xff\xff\xff\x0f"),
)
"""What is worth putting in: pieces of JSON, of event streams, of protobuf."""
NUMBERS: Final = (b"0", b"-1", b"4294967296", b"18446744073709551616", b"1e400", b"0.1", b'"7"')
NESTS: Final = ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"type":"tool_result","content":', b"}]"))
MOST_CHANGES: Final = 6  # of one input
MOST_DOUBLINGS: Final = 14  # of what is repeated
_NUMBER: Final = re.compile(rb"-?\d+")


@define(eq=False)
class Mutator:
    """Makes inputs of others; the same for the same randomness."""

    random: Random
    longest: int
    """Bytes of an input."""

    def make(self, corpus: Sequence[bytes]) -> bytes:
        """One of *corpus* with a few changes."""
        data = self.random.choice(corpus)
        for _ in range(self.random.randint(1, MOST_CHANGES)):
            change = self.random.choice(_CHANGES)
            data = change(self, data, corpus)[: self.longest]
        return data

    def place(self, data: bytes) -> int:
        return self.random.randint(0, len(data))

    def slice(self, data: bytes) -> tuple[int, int]:
        """Somewhere in *data*, and more often short than long."""
        start = self.place(data)
        length = self.random.randint(0, max(1, (len(data) - start) >> self.random.randrange(8)))
        return start, min(len(data), start + length)


def _flip(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = mutator.random.randrange(len(data))
    flipped = data[at] ^ 1 << mutator.random.randrange(8)
    return data[:at] + bytes([flipped]) + data[at + 1 :]


def _insert(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = mutator.place(data)
    return data[:at] + mutator.random.choice(TOKENS) + data[at:]


def _replace(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = mutator.slice(data)
    return data[:start] + mutator.random.choice(TOKENS) + data[end:]


def _remove(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = mutator.slice(data)
    return data[:start] + data[end:]


def _repeat(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = mutator.slice(data)
    piece = data[start:end] if mutator.random.random() < 0.7 else mutator.random.choice(TOKENS)
    times = 1 << mutator.random.randint(0, MOST_DOUBLINGS)
    return data[:start] + piece * min(times, mutator.longest // max(1, len(piece))) + data[start:]


def _nest(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start, end = mutator.slice(data)
    opening, closing = mutator.random.choice(NESTS)
    levels = 1 << mutator.random.randint(0, MOST_DOUBLINGS)
    return data[:start] + opening * levels + data[start:end] + closing * levels + data[end:]


def _splice(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = mutator.random.choice(corpus)
    return data[: mutator.place(data)] + other[mutator.place(other) :]


def _cut(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return data[: mutator.place(data)]


def _renumber(mutator: Mutator, data: bytes, corpus: Sequence[bytes]) -> bytes:
    found = list(_NUMBER.finditer(data[:20_000]))
    if not found:
        return data
    number = mutator.random.choice(found)
    return data[: number.start()] + mutator.random.choice(NUMBERS) + data[number.end() :]


_CHANGES: Final[tuple[Callable[[Mutator, bytes, Sequence[bytes]], bytes], ...]] = (
    _flip,
    _insert,
    _replace,
    _remove,
    _repeat,
    _nest,
    _splice,
    _cut,
    _renumber,
)
