"""Token counts in what vLLM answers over gRPC, whose messages may come cut anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from attrs import define, field

from pointsman.plugins.parsers.protobuf import FRAME_HEADER, UINT32, Malformed, Value, fields

LONGEST: Final = 64 * 1024
"""Bytes of a frame that is put together; longer ones pass by unread."""

# Field numbers of the two answers, and of the counts in them.
CHUNK, COMPLETE = 1, 2
EMBEDDED_TOKENS, EMBEDDING_SIZE = 2, 3
COUNTS: Final[Mapping[int, Mapping[int, str]]] = {
    CHUNK: {2: "prompt_tokens", 3: "completion_tokens", 4: "cached_tokens"},
    COMPLETE: {3: "prompt_tokens", 4: "completion_tokens", 5: "cached_tokens"},
}


@final
@define(eq=False)
class Frames:
    """Puts the messages of a gRPC body together again, but for compressed and overlong ones."""

    _held: bytes = field(default=b"", init=False)
    _passing: int = field(default=0, init=False)
    """Bytes still to come of a frame that nobody reads."""

    def feed(self, data: bytes) -> list[memoryview]:
        """The messages that are complete with *data*."""
        data = self._held + self._rest(data)
        messages: list[memoryview] = []
        position = 0
        while (start := position + FRAME_HEADER) <= len(data):
            end = start + int.from_bytes(data[position + 1 : start], "big")
            if end - position > LONGEST:
                self._passing = max(0, end - len(data))
            elif end > len(data):
                break
            elif not data[position]:
                messages.append(memoryview(data)[start:end])
            position = end
        self._held = data[position:]
        return messages

    def _rest(self, data: bytes) -> bytes:
        """*data* without what still belongs to a frame that nobody reads."""
        passed = min(self._passing, len(data))
        self._passing -= passed
        return data[passed:]


def counts_in(message: memoryview) -> Mapping[str, int]:
    """What an answer says of tokens, by the names of `Usage`; nothing if it is none."""
    try:
        answer = dict(fields(message))
        embedded = answer.get(EMBEDDED_TOKENS)
        if isinstance(embedded, int) or isinstance(answer.get(EMBEDDING_SIZE), int):
            return _named(answer, {EMBEDDED_TOKENS: "prompt_tokens"})
        found: dict[str, int] = {}
        for number, names in COUNTS.items():
            part = answer.get(number)
            if isinstance(part, memoryview):
                found |= _named(dict(fields(part)), names)
    except Malformed:
        return {}
    return found


def _named(values: Mapping[int, Value], names: Mapping[int, str]) -> Mapping[str, int]:
    """The numbers among *values*; what engines count has 32 bits."""
    counts = {name: values.get(number) for number, name in names.items()}
    return {name: n & UINT32 for name, n in counts.items() if isinstance(n, int)}
