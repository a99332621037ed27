"""Traces in both formats, and the prompts made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import trace
from .mooncake import QUANTUM, TRACE, Mooncake, prompt
from .small import conversations
from .trace import BLOCK_TOKENS, Entry, TraceError

pytestmark = pytest.mark.long

NUMBERS = st.integers(0, 10**7)
IDS = st.lists(st.integers(0, 50) | NUMBERS, min_size=1, max_size=20)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    ids = tuple(draw(IDS))
    missing = draw(st.integers(0, BLOCK_TOKENS - 1))
    return Entry(draw(NUMBERS), len(ids) * BLOCK_TOKENS - missing, draw(NUMBERS), ids)


@given(st.lists(entries(), max_size=5))
def test_the_short_format_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, many: list[Entry]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "short.gz"
    path.write_bytes(trace.shortened(many))
    assert trace.read(path) == many


def test_the_released_format_is_read_and_made_short(tmp_path: Path) -> None:
    original, short = tmp_path / "original.jsonl", tmp_path / "short.gz"
    original.write_text(
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [0, 9]}\n'
    )
    trace.main(str(original), str(short))
    assert trace.read(short) == [Entry(0, 1100, 5, (0, 1, 2)), Entry(3000, 600, 7, (0, 9))]
    assert trace.read(original) == trace.read(short)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "truncated"),
        ('{"timestamp": 0, "input_length": 9, "output_length": 5}', "hash_ids"),
        (
            '{"timestamp": 0, "input_length": 513, "output_length": 5, "hash_ids": [1]}',
            "513 tokens need 2 ids",
        ),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "trace.jsonl"
    good = '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1]}'
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(TraceError, match=f"trace.jsonl, line 2: .*{reason}"):
        trace.read(path)


def test_prompts_agree_as_far_as_their_ids_do() -> None:
    one, two = prompt(Entry(0, 1100, 5, (0, 1, 2))), prompt(Entry(0, 1500, 5, (0, 1, 7)))
    shared = 2 * BLOCK_TOKENS
    assert (one.length, two.length) == (1100, 1500)
    assert one.tokens[: shared * 4] == two.tokens[: shared * 4]
    assert one.tokens[shared * 4 :][:4] != two.tokens[shared * 4 :][:4]
    assert one.blocks[: shared // 16] == two.blocks[: shared // 16]
    assert not set(one.blocks[shared // 16 :]) & set(two.blocks)


def test_requests_are_placed_inside_their_three_seconds() -> None:
    told = conversations(8, 4)
    arrivals = list(Mooncake(entries=told).arrivals(seed=1))
    assert [one.at for one in arrivals] == sorted(one.at for one in arrivals)
    moved = sorted(one.at for one in arrivals)[-1] - told[-1].timestamp / 1000
    assert -QUANTUM <= moved <= QUANTUM
    assert sorted(one.prompt.length for one in arrivals) == sorted(e.input_length for e in told)


def test_a_shortened_trace_is_its_beginning() -> None:
    whole = Mooncake(entries=conversations(8, 4))
    assert whole.shortened(0.25).entries == whole.entries[:8]


def test_the_kept_trace_is_the_released_one() -> None:
    """Its figures are those that the release states."""
    kept = trace.read(TRACE)
    assert len(kept) == 12_031
    assert round(sum(entry.input_length for entry in kept) / len(kept)) == 12_035
    assert round(sum(entry.output_length for entry in kept) / len(kept)) == 343
    assert len({one for entry in kept for one in entry.hash_ids}) == 182_790
