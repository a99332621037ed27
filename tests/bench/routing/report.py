"""The table of a comparison, in Markdown that can also be read as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from attrs import frozen

from .tallies import Result, Spread

Results = Mapping[str, Sequence[Result]]
"""By policy, one of each seed."""


@final
@frozen
class Column:
    """A figure, and how it is shown."""

    title: str
    of: Callable[[Result], float]
    digits: int

    def cell(self, results: Sequence[Result]) -> str:
        spread = Spread.of([self.of(result) for result in results])
        mean = f"{spread.mean:,.{self.digits}f}"
        return mean if len(results) == 1 else f"{mean} ±{spread.deviation:,.{self.digits}f}"


COLUMNS: Final = (
    Column("hit ratio", lambda result: result.hit, 3),
    Column("reuse captured", lambda result: result.captured, 3),
    Column("output tok/s", lambda result: result.tokens_per_second, 0),
    Column("TTFT p50, s", lambda result: result.ttft_p50, 2),
    Column("TTFT p90, s", lambda result: result.ttft_p90, 2),
    Column("max/mean load", lambda result: result.unevenness, 2),
)
TIMES: Final = "of round-robin"


def table(results: Results, baseline: str) -> str:
    """A line for each policy; throughput also as a multiple of that of *baseline*."""
    head = ("policy", *(column.title for column in COLUMNS), TIMES)
    base = _throughput(results[baseline])
    rows = [
        (name, *(column.cell(each) for column in COLUMNS), f"{_throughput(each) / base:.2f}")
        for name, each in results.items()
    ]
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(cells, widths) for cells in (head, rule, *rows))


def _throughput(results: Sequence[Result]) -> float:
    return Spread.of([result.tokens_per_second for result in results]).mean


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return f"| {' | '.join((first, *rest))} |"
