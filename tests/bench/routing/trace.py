"""Traces of requests: the Mooncake release's own format, and a short one to keep beside the code.

The original has one JSON object a line. The short one is a gzip of lines with the same columns,
``timestamp,input_length,output_length,ids``, where ids that follow one another are written as a
run, ``first-last``: a fifth of the size, and nothing is lost.

``python -m tests.bench.routing.trace ORIGINAL SHORT`` makes the one of the other.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, final

import msgspec
from attrs import frozen

BLOCK_TOKENS: Final = 512
"""What an id stands for, together with all that came before it."""


class Entry(msgspec.Struct, frozen=True):
    """A request of the trace."""

    timestamp: int
    """Milliseconds."""
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        blocks = -(-self.input_length // BLOCK_TOKENS)
        if len(self.hash_ids) != blocks:
            raise ValueError(f"{self.input_length} tokens need {blocks} ids")


@final
@frozen
class TraceError(Exception):
    """A line of a trace that is none."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}"


def read(path: Path) -> list[Entry]:
    """The entries of a file in either format; a short one's name ends in ``.gz``.

    Raises:
        OSError: it cannot be read.
        TraceError: a line of it makes no sense.
    """
    short = path.suffix == ".gz"
    decode = _short_entry if short else msgspec.json.Decoder(Entry).decode
    lines = (gzip.decompress(path.read_bytes()) if short else path.read_bytes()).splitlines()
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(decode(line))
        except (ValueError, msgspec.MsgspecError) as exc:
            raise TraceError(path, number, str(exc)) from exc
    return entries


def shortened(entries: Iterable[Entry]) -> bytes:
    """*entries* in the short format: the same ones give the same bytes."""
    return gzip.compress("".join(map(_line, entries)).encode(), mtime=0)


def _line(entry: Entry) -> str:
    numbers = (entry.timestamp, entry.input_length, entry.output_length)
    return ",".join((*map(str, numbers), " ".join(_runs(entry.hash_ids)))) + "\n"


def _runs(ids: Sequence[int]) -> Iterator[str]:
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or ids[end] != ids[end - 1] + 1:
            first, last = ids[start], ids[end - 1]
            yield str(first) if first == last else f"{first}-{last}"
            start = end


def _short_entry(line: bytes) -> Entry:
    timestamp, length, output, runs = line.decode().split(",")
    ids: list[int] = []
    for run in runs.split():
        first, _, last = run.partition("-")
        ids += range(int(first), int(last or first) + 1)
    return Entry(int(timestamp), int(length), int(output), tuple(ids))


def main(original: str, short: str) -> None:
    Path(short).write_bytes(shortened(read(Path(original))))


if __name__ == "__main__":
    main(*sys.argv[1:])
