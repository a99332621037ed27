"""A soak from the start of the daemon to the verdict."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final

from attrs import define, field
from tests.bench.process import resident
from tests.bench.server import Daemon, daemon, model_servers
from tests.bench.stream import LoadError

from . import verdict
from .crowd import Crowd
from .plays import BODY_LIMIT, deck, shuffled
from .verdict import Finding, Sample
from .world import World

NETWORK: Final = "127.0.3"  # of the model servers
SERVERS: Final = 8
ENDS: Final = 100  # streams a second that come to their end, about
SHORTEST: Final = 4.0  # seconds for which a stream is held, on the average
FILLED: Final = 0.5  # of the first quarter, in which the streams are opened
SAMPLE: Final = 0.25  # seconds between two looks at the daemon's memory
TOLD: Final = 5.0  # seconds between lines of progress
MISHAPS: Final = 60  # of connections in a soak, about; at most one in four seconds
REST: Final = 20.0  # seconds in which everything has to come to rest
STOP: Final = 20.0  # seconds in which the daemon has to end
ARGUMENTS: Final = (
    "--bind-address=127.0.0.1",
    "--log-format=json",
    "--drain-timeout=2s",
    f"--grpc-max-recv-msg-size={BODY_LIMIT}",
)


def sample(at: float, pid: int, streams: int) -> Sample:
    """Look at the memory of the daemon with that *pid*, and of whom it has started."""
    return Sample(at, resident(pid), streams, max(map(_left, _children(pid)), default=0.0))


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread ended a moment ago
            yield from map(int, (thread / "children").read_text().split())


def _left(pid: int) -> float:
    """MB of a process that may have ended, and has nothing then."""
    try:
        return resident(pid)
    except OSError:
        return 0.0


@define(eq=False)
class Soak:
    """Plays for so many *seconds* with so many *streams*."""

    seconds: float
    streams: int
    random: Random
    keep_log: str = ""
    _samples: list[Sample] = field(factory=list[Sample], init=False)
    _next_sample: float = field(default=0.0, init=False)
    _next_told: float = field(default=TOLD, init=False)
    _next_mishap: float = field(default=4.0, init=False)

    def run(self) -> list[Finding]:
        """Everything that was looked at, in order."""
        plays = shuffled(deck(self._child()), self._child())
        with TemporaryDirectory() as made, model_servers(NETWORK, SERVERS) as models:
            world = World(Path(made), models, self._child())
            with daemon(world.folder, world.config, ARGUMENTS) as started:
                crowd = Crowd(
                    started.grpc,
                    plays,
                    self._child(),
                    world.endpoints,
                    self.streams,
                    max(SHORTEST, self.streams / ENDS),
                    ENDS + self.streams / (self.seconds / 4 * FILLED),
                )
                return self._soak(crowd, world, started)

    def _child(self) -> Random:
        """A source of its own for each part: what one does changes nothing for the others."""
        return Random(self.random.random())

    def _soak(self, crowd: Crowd, world: World, started: Daemon) -> list[Finding]:
        try:
            self._play(crowd, world, started)
            return list(self._findings(crowd, world, started))
        except (OSError, LoadError, http.client.HTTPException) as error:
            said = started.said.read_text()
            return [Finding("daemon", False, f"{error!r}; its last words: {said[-2000:]}")]
        finally:
            crowd.close()
            if self.keep_log:
                Path(self.keep_log).write_text(started.said.read_text())

    def _play(self, crowd: Crowd, world: World, started: Daemon) -> None:
        began = monotonic()
        while (now := monotonic() - began) < self.seconds:
            crowd.turn()
            world.go_on(started.process.pid)
            if now >= self._next_sample:
                self._next_sample = now + SAMPLE
                self._samples.append(sample(now, started.process.pid, crowd.open))
            if now >= self._next_mishap and not self._is_measured(now):
                apart = max(4.0, self.seconds / MISHAPS)
                self._next_mishap = now + crowd.random.uniform(0.5, 1.5) * apart
                crowd.mishap()
            if now >= self._next_told:
                self._next_told = now + TOLD
                self._tell(now, crowd)
        self._tell(self.seconds, crowd)

    def _is_measured(self, now: float) -> bool:
        """Memory is compared soon: streams that were lost now would be missing then."""
        calm = max(6.0, self.seconds / 10)
        return any(0 <= end - now < calm for end in (self.seconds / 4, self.seconds))

    def _tell(self, now: float, crowd: Crowd) -> None:
        wrong = ", ".join(f"{count} {kind}" for kind, count in crowd.faults.items()) or "none"
        print(
            f"{now:5.0f} s  {crowd.open:5,} open  {crowd.done.total():8,} played"
            f"  {crowd.dropped:6,} dropped  {self._samples[-1].resident:6.1f} MB  wrong: {wrong}",
            file=sys.stderr,
            flush=True,
        )

    # -- afterwards ---------------------------------------------------------------------------

    def _findings(self, crowd: Crowd, world: World, started: Daemon) -> Iterator[Finding]:
        world.calm_down()
        crowd.end_all()
        total, wrong = crowd.done.total(), crowd.faults.total()
        shown = "".join(f"\n      {text}" for text in crowd.wrong)
        changes = ", ".join(f"{count} x {name}" for name, count in sorted(world.changes.items()))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in crowd.done.most_common())
        yield Finding("played", total > 0, f"{kinds}; {crowd.dropped:,} dropped")
        yield Finding("meanwhile", True, changes)
        yield Finding("wrong answers", not wrong, f"{wrong} of {total + wrong:,}{shown}")
        yield verdict.memory(self._samples, self.seconds)
        yield verdict.readers(self._samples)
        yield from verdict.counters(self._at_rest(crowd, started))
        yield Finding("memory at rest", True, f"{resident(started.process.pid):.1f} MB")
        yield self._stop(started)
        yield verdict.log(started.said.read_text())

    def _at_rest(self, crowd: Crowd, started: Daemon) -> dict[str, float]:
        """The daemon's figures once everything has ended, or when it takes too long."""
        deadline = monotonic() + REST
        while True:
            crowd.turn()
            found = verdict.totals(started.page("/metrics"))
            if not verdict.unfinished(found) or monotonic() > deadline:
                return found
            sleep(0.2)

    def _stop(self, started: Daemon) -> Finding:
        started.process.send_signal(signal.SIGTERM)
        try:
            status = started.process.wait(STOP)
        except subprocess.TimeoutExpired:
            return Finding("end", False, f"still there {STOP:.0f} s after SIGTERM")
        return Finding("end", status == 0, f"exit status {status}")
