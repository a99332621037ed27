"""What a bench found, and the tables that show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import asdict, frozen

OVER: Final = "OVER"
_COLUMNS: Final = ("row", "unit", "{target}", "baseline", "ratio", "budget", "", "client us", "")


@frozen
class Budget:
    """The most that a figure may be."""

    most: float
    """In the figure's unit."""
    ratio: float | None = None
    """As a share of the baseline's figure."""

    def __str__(self) -> str:
        return number(self.most) + (f", {self.ratio:.2f}" if self.ratio is not None else "")


@frozen
class Figure:
    """One row of the table: what was measured of the target and of the baseline."""

    name: str
    unit: str
    target: float | None = None
    baseline: float | None = None
    budget: Budget | None = None
    client: float | None = None
    """CPU of the load client, microseconds per exchange."""
    note: str = ""
    error: str = ""
    """What did not work; such a row has no figures."""

    @property
    def ratio(self) -> float | None:
        """The target's figure as a share of the baseline's."""
        if self.target is None or not self.baseline:
            return None
        return self.target / self.baseline

    @property
    def over(self) -> bool:
        """Some part of the budget is exceeded."""
        if self.budget is None or self.target is None:
            return False
        ratio, most = self.ratio, self.budget.ratio
        too_much = ratio is not None and most is not None and ratio > most
        return self.target > self.budget.most or too_much


def number(value: float | None) -> str:
    """Three significant digits, or all of a whole part that has more; nothing for None."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def table(figures: Sequence[Figure], target: str) -> str:
    """The main table; *target* heads the column of what was benched."""
    columns = [column.format(target=target) for column in _COLUMNS]
    rows = [_cells(figure) for figure in figures]
    lines = [*aligned([columns, *rows]), *_errors(figures)]
    return "\n".join(lines)


def micro_table(rows: Sequence[tuple[str, float]]) -> str:
    """The second table: what is measured inside the bench's own process."""
    cells = [("in process", "us"), *((name, number(cost)) for name, cost in rows)]
    return "\n".join(aligned(cells))


def document(figures: Sequence[Figure], micro: Sequence[tuple[str, float]]) -> dict[str, object]:
    """Both tables for a program to read."""
    listed = [asdict(each) | {"ratio": each.ratio, "over": each.over} for each in figures]
    return {"rows": listed, "micro": dict(micro)}


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of columns: the first two to the left, the numbers after them to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(_pad(row, widths)).rstrip() for row in rows]


def _pad(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    last = len(row) - 1
    return [
        cell.rjust(width) if column > 0 and (column < last or last == 1) else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _cells(figure: Figure) -> tuple[str, ...]:
    budget = str(figure.budget) if figure.budget else ""
    mark = OVER if figure.over else ""
    ratio = f"{figure.ratio:.2f}" if figure.ratio is not None else ""
    target = "failed" if figure.error else number(figure.target)
    figures = (target, number(figure.baseline), ratio, budget, mark, number(figure.client))
    return (figure.name, figure.unit, *figures, figure.note)


def _errors(figures: Sequence[Figure]) -> list[str]:
    return [f"{figure.name} failed: {figure.error}" for figure in figures if figure.error]
