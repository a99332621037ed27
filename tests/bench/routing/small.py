"""Workloads and a fleet small enough for tests."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from .fleet import QWEN3_32B, Sizes
from .trace import Entry
from .workloads import Kv73, Stage

TWO: Final = Sizes(servers=2, engine=evolve(QWEN3_32B, num_gpu_blocks=2048))
FOUR: Final = Sizes(servers=4, engine=evolve(QWEN3_32B, num_gpu_blocks=1024))
"""Caches for little more than half of the customers of `shop` each."""


def shop(*, seconds: float = 20.0, rate: float = 40.0) -> Kv73:
    """kv73 with 20 customers and prompts of 1,200 tokens."""
    return Kv73(
        groups=20,
        prompts_per_group=2,
        system_tokens=1120,
        question_tokens=80,
        output_tokens=40,
        stages=(Stage(rate, seconds),),
    )


def conversations(count: int, turns: int) -> list[Entry]:
    """A trace of people who take turns; each turn repeats all that its person had before."""
    entries: list[Entry] = []
    for turn in range(turns):
        for person in range(count):
            ids = tuple(range(person * 100, person * 100 + 2 * turn + 2))
            at = 3000 * (turn * count + person) // 8
            entries.append(Entry(at, 512 * len(ids) - 100, 20, ids))
    return entries
