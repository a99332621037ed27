from __future__ import annotations

import json

import pytest

from .figures import Budget, Figure, document, micro_table, number, table
from .rows import CHUNK, SSE, response_chunk

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0.0, "0"),
        (0.0451, "0.045"),
        (3.14159, "3.14"),
        (45.32, "45.3"),
        (612.4, "612"),
        (8525.0, "8,525"),
    ],
)
def test_numbers_have_three_digits_that_count(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_table_shows_ratio_budget_and_mark() -> None:
    figures = [
        Figure("chat", "us", 500.0, 625.0, Budget(400.0, 0.7), 71.0, note="2,000/s"),
        Figure("memory at rest", "MB", 41.0, 45.0, Budget(80.0)),
    ]
    assert table(figures, "pointsman").splitlines() == [
        "row             unit  pointsman  baseline  ratio     budget        client us",
        "chat              us        500       625   0.80  400, 0.70  OVER       71.0  2,000/s",
        "memory at rest    MB       41.0      45.0   0.91       80.0",
    ]


def test_a_row_that_failed_says_why_below_the_table() -> None:
    lines = table([Figure("chat", "us", error="no reply")], "pointsman").splitlines()
    assert "failed" in lines[1]
    assert lines[-1] == "chat failed: no reply"


@pytest.mark.parametrize(
    ("target", "over"), [(400.0, False), (401.0, True), (351.0, True), (350.0, False)]
)
def test_a_figure_is_over_budget_by_itself_or_beside_the_baseline(
    target: float, over: bool
) -> None:
    baseline = 500.0 if target < 400.0 else 1000.0
    assert Figure("f", "us", target, baseline, Budget(400.0, 0.7)).over is over


def test_the_chunk_row_is_the_difference_of_the_streamed_rows() -> None:
    few, many = Figure(SSE[0], "us", 1000.0, 2000.0), Figure(SSE[1], "us", 4360.0, 10_400.0)
    chunk = response_chunk([few, many])
    assert chunk is not None
    assert (chunk.name, chunk.target, chunk.baseline) == (CHUNK, 30.0, 75.0)


def test_there_is_no_chunk_row_without_both_streamed_rows() -> None:
    few, failed = Figure(SSE[0], "us", 1000.0), Figure(SSE[1], "us", error="no reply")
    assert response_chunk([few]) is None
    assert response_chunk([few, failed]) is None


def test_micro_benchmarks_have_a_table_of_their_own() -> None:
    assert micro_table([("decode", 8.41), ("encode a reply", 12.0)]).splitlines() == [
        "in process        us",
        "decode          8.41",
        "encode a reply  12.0",
    ]


def test_the_document_holds_figures_ratio_and_mark() -> None:
    made = document([Figure("chat", "us", 500.0, 1000.0, Budget(400.0))], [("decode", 8.0)])
    read = json.loads(json.dumps(made))
    assert read["micro"] == {"decode": 8.0}
    (row,) = read["rows"]
    assert (row["ratio"], row["over"], row["budget"]["most"]) == (0.5, True, 400.0)
