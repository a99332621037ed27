"""All runs of a comparison: several policies on one workload, each from several seeds."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Final, final

from attrs import frozen

from .fleet import Sizes
from .mooncake import TRACE, Mooncake
from .play import Play
from .policies import Policy
from .tallies import Result
from .trace import read
from .workloads import Kv73, Workload

WORKLOADS: Final = ("kv73", "mooncake")


@final
@frozen(kw_only=True)
class Choice:
    """A workload by its name, and what of it is played."""

    workload: str
    """One of `WORKLOADS`."""
    share: float = 1.0
    trace: Path = TRACE
    """Where mooncake's requests are."""

    def load(self) -> Workload:
        """Raises OSError or TraceError for a trace that cannot be read."""
        whole = Kv73() if self.workload == "kv73" else Mooncake(entries=read(self.trace))
        return whole if self.share == 1.0 else whole.shortened(self.share)


@final
@frozen(kw_only=True)
class Run:
    """One policy from one seed: the same run gives the same result, whoever plays it."""

    choice: Choice
    policy: Policy
    seed: int
    sizes: Sizes = Sizes()

    def play(self) -> Result:
        return Play.of(self.policy, _loaded(self.choice), self.sizes, self.seed).run()


_loaded = cache(Choice.load)  # making prompts takes longer than playing some


def play_all(runs: Sequence[Run], jobs: int) -> Generator[tuple[Run, Result]]:
    """Results as they come, from *jobs* processes; one job plays them here, in their order."""
    if jobs == 1:
        for run in runs:
            yield run, run.play()
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        played = {pool.submit(run.play): run for run in runs}
        for future in as_completed(played):
            yield played[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)
