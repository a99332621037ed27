"""The Mooncake conversation trace: real arrivals and lengths, and which prompts share what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, final

from attrs import frozen

from .trace import BLOCK_TOKENS, Entry
from .workloads import Arrival, Prompt, Segment, prompt_of

TRACE: Final = Path(__file__).parents[1] / "data" / "mooncake-conversation.csv.gz"
QUANTUM: Final = 3.0  # seconds; the trace tells arrivals no more exactly


def prompt(entry: Entry) -> Prompt:
    """Tokens made up from the ids: they agree where the trace's own did."""
    whole, rest = divmod(entry.input_length, BLOCK_TOKENS)
    lengths = [BLOCK_TOKENS] * whole + [rest] * bool(rest)
    return prompt_of(list(map(Segment, entry.hash_ids, lengths)))


@final
@frozen(kw_only=True)
class Mooncake:
    """The trace, at the speed of its recording.

    The seed places each request inside the three seconds that the trace gives for it.
    """

    entries: Sequence[Entry]
    name: str = "mooncake"

    def __len__(self) -> int:
        return len(self.entries)

    def shortened(self, factor: float) -> Mooncake:
        """The first part of it."""
        return Mooncake(entries=self.entries[: max(1, round(len(self) * factor))])

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        random = Random(seed)
        placed = [(e.timestamp / 1000 + random.uniform(0, QUANTUM), e) for e in self.entries]
        for at, entry in sorted(placed, key=lambda one: one[0]):
            yield Arrival(at, prompt(entry), entry.output_length)
