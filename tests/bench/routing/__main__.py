"""The command line of the routing bench; see ``--help``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Final, final

from attrs import define, evolve, field, frozen

from .mooncake import TRACE
from .policies import ROUND_ROBIN, compared
from .report import table
from .runs import WORKLOADS, Choice, Run, play_all
from .tallies import Result
from .trace import TraceError

DESCRIPTION: Final = """\
Compare where the daemon's configurations send requests, and what becomes of them.

Eight simulated vLLM servers with continuous batching and prefix caches, after Qwen3-32B on two
H100, run under a virtual clock. Every decision is made by the daemon's own kernel and plugins,
which hear of the servers' load by scrapes in the daemon's rhythm. Only network and CPU time of
the daemon are left out.

workloads:
  kv73      150 customers' system prompts of 6,000 tokens with 5 questions each, 73 % of what all
            caches together hold, at rates from 3 to 60 a second: far more than the servers can
            do, so that times to the first token are mostly waiting
  mooncake  real conversations, most of which share little: 12,000 tokens a prompt at 3.4 requests
            a second, about half of what the servers can do

policies:
  default             conf/default.yaml, what the daemon does without a configuration
  reference           the reference system's default: queue 2, kv-cache-utilization 2, prefix 3
  reference + active  the same with the active-request scorer, by its weight
  load-only           queue 2, kv-cache-utilization 2, active-request 2
  random, round-robin without scorers
"""
EPILOG: Final = """\
Figures are means over the seeds ± their standard deviation.
  hit ratio       prompt tokens that the engines took from their caches, of all
  reuse captured  blocks that the chosen server held, of those that the best one held
  max/mean load   requests in flight at the busiest server, to the mean of all, at arrivals
"""


@final
@frozen
class Effort:
    """How much is played."""

    kv73: float
    """Share of each stage's time."""
    mooncake: float
    """Share of the trace, from its beginning."""
    seeds: int


QUICK: Final = Effort(kv73=0.05, mooncake=0.05, seeds=2)
USUAL: Final = Effort(kv73=0.2, mooncake=0.15, seeds=3)
FULL: Final = Effort(kv73=1.0, mooncake=1.0, seeds=3)


@final
@define(eq=False)
class Progress:
    """How far it is, on stderr: in place on a terminal, a line for each run in a log."""

    runs: int
    terminal: bool = field(factory=lambda: sys.stderr.isatty())
    _done: int = field(default=0, init=False)
    _started: float = field(factory=monotonic, init=False)

    def ended(self, run: Run) -> None:
        self._done += 1
        what = f"{run.choice.workload}, {run.policy.name}, seed {run.seed}"
        seconds = monotonic() - self._started
        self._say(f"{self._done} of {self.runs} runs, {seconds:.0f} s: {what}")
        if self._done == self.runs and self.terminal:
            self._say("")

    def _say(self, text: str) -> None:
        begin, end = ("\r\x1b[K", "") if self.terminal else ("", "\n")
        print(f"{begin}{text}", end=end, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        "python -m tests.bench.routing",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    amount = made.add_mutually_exclusive_group()
    amount.add_argument(
        "--quick",
        dest="effort",
        action="store_const",
        const=QUICK,
        default=USUAL,
        help="less of both, from two seeds: caches are cold for much of it",
    )
    amount.add_argument(
        "--full",
        dest="effort",
        action="store_const",
        const=FULL,
        help="all of both workloads, which takes five times as long",
    )
    made.add_argument("--seeds", metavar="N", type=_positive, help="runs of each policy (3)")
    made.add_argument("--workload", choices=WORKLOADS, help="only this one")
    made.add_argument(
        "--weights",
        metavar="W",
        type=float,
        nargs="+",
        default=[2.0, 3.0, 4.0],
        help="of the active-request scorer beside the reference's default (2 3 4)",
    )
    made.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        default=TRACE,
        help="another trace for mooncake: JSON lines as released, or .gz as in tests/bench/data",
    )
    made.add_argument(
        "--jobs",
        metavar="N",
        type=_positive,
        default=os.cpu_count() or 1,
        help="processes that play (as many as there are CPUs)",
    )
    return made


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def choices(options: argparse.Namespace) -> list[Choice]:
    """The workloads that the options ask for."""
    names = [options.workload] if options.workload else WORKLOADS
    effort: Effort = options.effort
    return [
        Choice(workload=name, share=getattr(effort, name), trace=options.trace) for name in names
    ]


def runs_of(choice: Choice, options: argparse.Namespace) -> list[Run]:
    """Every policy from every seed; a seed's requests are the same for all policies."""
    effort: Effort = options.effort
    if options.seeds is not None:
        effort = evolve(effort, seeds=options.seeds)
    return [
        Run(choice=choice, policy=policy, seed=seed)
        for seed in range(1, effort.seeds + 1)
        for policy in compared(options.weights)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    chosen = choices(options)
    try:
        sizes = [len(choice.load()) for choice in chosen]
    except (OSError, TraceError) as exc:
        made.error(str(exc))
    runs = [run for choice in chosen for run in runs_of(choice, options)]
    results = _played(runs, options.jobs)
    for choice, requests in zip(chosen, sizes, strict=True):
        print(f"{choice.workload}: about {requests:,} requests a run\n")
        print(table(results[choice], ROUND_ROBIN.name), end="\n\n")
    return 0


def _played(runs: Sequence[Run], jobs: int) -> dict[Choice, dict[str, list[Result]]]:
    """Results by workload and policy, both in the order of *runs*."""
    results: dict[Choice, dict[str, list[Result]]] = {}
    for run in runs:
        results.setdefault(run.choice, {}).setdefault(run.policy.name, [])
    progress = Progress(len(runs))
    for run, result in play_all(runs, min(jobs, len(runs))):
        results[run.choice][run.policy.name].append(result)
        progress.ended(run)
    return results


def _terminated(signum: int, _frame: FrameType | None) -> None:
    """Leave in order: processes that play would outlive a death."""
    sys.exit(128 + signum)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
