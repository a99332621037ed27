"""The bench's command line; see ``--help``."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import define, evolve, field

from . import micro, rows
from .company import Amount
from .figures import document, micro_table, table
from .measure import Bench, Effort
from .server import Baseline, Pointsman, Target

QUICK: Final = Effort(
    repeat=3,
    share=0.25,
    idle=4.0,
    open_streams=300,
    company=Amount(repeat=1, picks=300, open_streams=1000, exchanges=500),
)

DESCRIPTION: Final = """\
Measure the CPU that one ext_proc exchange costs the daemon, beside a grpc.aio server with Google's
protobuf that answers the same exchange.

The load plays exchanges as Envoy 1.40 sends them: a step's messages at once, the next step when
its replies are there, a reset at the end of each stream. Replies are checked once per row and
counted always. The CPU is user and system time of all threads of the server, from /proc, per
exchange of a counted run after a warm-up; the daemon's scraping of ten model servers is in it.
Target and baseline are loaded in turn, and a figure is the median of its runs.
"""
EPILOG: Final = """\
OVER marks a figure above its budget: the budget's first number is in the row's unit, the second
one the highest ratio to the baseline. "client us" is the CPU of the load itself, per exchange.

Exit status: 0 when all was measured, over budget or not; 1 when a server did not start or did not
answer as it should.

rows:
"""


@define(eq=False)
class Progress:
    """What is being done, on stderr: in place on a terminal, a line for each row in a log."""

    terminal: bool = field(factory=lambda: sys.stderr.isatty())
    _row: str = field(default="", init=False)

    def say(self, row: str, state: str) -> None:
        if self.terminal:
            print(f"\r\x1b[K{row}: {state}", end="", file=sys.stderr, flush=True)
        elif row != self._row:
            print(row, file=sys.stderr, flush=True)
        self._row = row

    def end(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m tests.bench",
        description=DESCRIPTION,
        epilog=EPILOG + "".join(f"  {name}\n" for name in (*rows.names(), *micro.MODULES)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help="fewer and shorter runs: about a minute")
    made.add_argument(
        "--rows",
        metavar="PATTERN",
        type=_pattern,
        default=_pattern(""),
        help="only rows whose name matches this regular expression, in any case",
    )
    made.add_argument("--json", metavar="FILE", type=Path, help="write the figures there as well")
    made.add_argument("--repeat", metavar="N", type=int, help="runs per row and server")
    made.add_argument("--streams", metavar="N", type=int, help="in flight at a time (16)")
    made.add_argument("--connections", metavar="N", type=int, help="that carry them (1)")
    made.add_argument(
        "--target",
        choices=("pointsman", "baseline"),
        default="pointsman",
        help="what to measure; the baseline beside itself shows the noise",
    )
    made.add_argument(
        "--serve-arguments",
        metavar="TEXT",
        default="",
        help="further arguments of `pointsman serve`, as in a shell",
    )
    return made


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def effort(options: argparse.Namespace) -> Effort:
    """What the options say of how much is measured."""
    given = {name: getattr(options, name) for name in ("repeat", "streams", "connections")}
    base = QUICK if options.quick else Effort()
    return evolve(base, **{name: value for name, value in given.items() if value is not None})


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    target: Target = Baseline()
    if options.target == "pointsman":
        target = Pointsman(options.serve_arguments)
    progress = Progress()
    figures = Bench(target, effort(options), options.rows, progress.say).run()
    costs = _micro(options.rows, progress)
    progress.end()
    if figures:
        print(table(figures, target.name))
    if costs:
        print(f"\n{micro_table(costs)}")
    if options.json:
        options.json.write_text(json.dumps(document(figures, costs), indent=1))
    return 1 if any(figure.error for figure in figures) else 0


def _micro(wanted: re.Pattern[str], progress: Progress) -> list[tuple[str, float]]:
    costs: list[tuple[str, float]] = []
    for module in filter(wanted.search, micro.present()):
        progress.say(module, "in process")
        costs += micro.rows(module)
    return costs


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
