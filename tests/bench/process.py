"""What the kernel says of a running process and of the machine; where a process may run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import frozen

_MB: Final = 1024  # kB, which is what /proc counts in


@frozen
class CpuTime:
    """How long each thread of a process has run so far, in nanoseconds, user and system."""

    threads: dict[int, int]

    def since(self, before: CpuTime) -> float:
        """The seconds of CPU between *before* and this.

        A thread that ended in between counts for nothing, one that began counts in full.
        """
        spent = (ran - before.threads.get(thread, 0) for thread, ran in self.threads.items())
        return sum(spent) / 1e9


def cpu_time(pid: int) -> CpuTime:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return CpuTime({int(thread.name): _ran(thread) for thread in threads})


def _ran(thread: Path) -> int:
    try:
        # Some kernels do not keep it, and then it is missing or zero.
        return _precisely(thread) or _by_ticks(thread)
    except (FileNotFoundError, ProcessLookupError):  # the thread ended a moment ago
        return 0


def _precisely(thread: Path) -> int:
    schedstat = thread / "schedstat"
    return int(schedstat.read_text().split()[0]) if schedstat.exists() else 0


def _by_ticks(thread: Path) -> int:
    fields = (thread / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, mostly of 10 ms
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@frozen
class MachineTime:
    """How long the machine's processors have existed so far, and been taken away, in ticks."""

    all: int
    stolen: int
    """By the hypervisor, for other machines on the same hardware."""

    @classmethod
    def now(cls) -> MachineTime:
        with Path("/proc/stat").open() as stat:
            ticks = [int(each) for each in stat.readline().split()[1:9]]
        return cls(sum(ticks), ticks[7])

    def stolen_since(self, before: MachineTime) -> float:
        """Which share of all the time since *before* was taken away."""
        return (self.stolen - before.stolen) / max(1, self.all - before.all)


def keep_to(pid: int, cores: Iterable[int]) -> None:
    """Have all threads of a process run on *cores* alone, and what it starts from now on."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # the thread ended a moment ago
            os.sched_setaffinity(int(thread.name), cores)


def resident(pid: int) -> float:
    """The memory of a process that is in RAM now, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _MB
    raise ProcessLookupError(f"process {pid} has ended")
