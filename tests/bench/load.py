"""Load on a gRPC port: plays an exchange many times over a few connections and counts.

Closed loop: a number of streams is always in flight. Open loop: streams start at a rate, whatever
the server does, and latency is counted from the moment a stream was due.
"""

from __future__ import annotations

import select
from collections.abc import Generator
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Final

from attrs import define, field, frozen

from . import wire
from .connection import PATIENCE, Connection, connected
from .stream import Ending, LoadError, Script, Stream
from .wire import Step

__all__ = ["Client", "Ending", "LoadError", "Outcome", "Script", "client", "script"]

STREAMS: Final = 16


def script(steps: tuple[Step, ...], ending: Ending = Ending.RESET) -> Script:
    """Encode *steps* once, for any number of plays."""
    return Script(tuple(wire.burst(step) for step in steps), ending)


@frozen
class Outcome:
    """What a run of load measured on the client's side."""

    exchanges: int
    seconds: float
    """From the first byte sent to the last reply."""
    client_cpu: float
    """Seconds of CPU this process used."""
    decisions: tuple[float, ...]
    """Per exchange, the seconds from its due time to the last reply of its first step."""

    def decision(self, quantile: float) -> float:
        """The latency that a share *quantile* of the decisions kept, in seconds."""
        ordered = sorted(self.decisions)
        return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


@define(eq=False)
class _Run:
    """How far a run is."""

    count: int
    streams: int
    rate: float | None
    """Exchanges per second; None keeps *streams* in flight."""
    began: float = field(factory=perf_counter)
    cpu: float = field(factory=process_time)
    started: int = 0
    done: int = 0
    latencies: list[float] = field(factory=list[float])

    def decided(self, due: float) -> None:
        self.latencies.append(perf_counter() - due)

    def finished(self) -> None:
        self.done += 1

    def due(self) -> float | None:
        """When the next stream is to start; None when it has to wait for another's end."""
        if self.started == self.count:
            return None
        if self.rate is not None:
            return self.began + self.started / self.rate
        return perf_counter() if self.started - self.done < self.streams else None

    def outcome(self) -> Outcome:
        cpu, seconds = process_time() - self.cpu, perf_counter() - self.began
        return Outcome(self.count, seconds, cpu, tuple(self.latencies))


@define(eq=False)
class Client:
    """Plays scripts on its connections. Whatever the server does wrong raises `LoadError`."""

    port: int
    connections: list[Connection] = field(factory=list[Connection])

    def connect(self) -> None:
        """Open one more connection."""
        self.connections.append(connected(self.port))

    def play(
        self, script: Script, count: int, *, streams: int = STREAMS, rate: float | None = None
    ) -> Outcome:
        """Play *script* *count* times, on *streams* at once or *rate* times a second."""
        run = _Run(count, streams, rate)
        while True:
            self._start_due(run, script)
            self._flush()
            if run.done == run.count:
                return run.outcome()
            self._wait(run)

    def capture(self, script: Script) -> list[bytes]:
        """Play *script* once to the server's own end of the stream; all that it replied."""
        run = _Run(count=1, streams=1, rate=None, started=1)
        script = script.ending_by(Ending.HALF_CLOSE)
        stream = self.connections[0].open(script, run, run.began, keep=True)
        while not run.done:
            self._flush()
            self._wait(run)
        return wire.messages(stream.kept or b"")

    def hold(self, script: Script, count: int, *, streams: int = STREAMS) -> None:
        """Play *script* *count* times and leave its streams open when all is answered.

        Connections are added as the server's limit of streams demands, which is Envoy's way too.
        """
        while count > sum(each.limit for each in self.connections):
            self.connect()
        self.play(script.ending_by(Ending.HOLD), count, streams=streams)

    def close(self) -> None:
        for each in self.connections:
            each.sock.close()

    def _start_due(self, run: _Run, script: Script) -> None:
        while (due := run.due()) is not None and due <= perf_counter():
            roomiest = self._roomiest()
            if roomiest is None:
                return
            run.started += 1
            roomiest.open(script, run, due)

    def _roomiest(self) -> Connection | None:
        """The least busy of the connections whose server allows one more stream."""
        roomy = [each for each in self.connections if len(each.streams) < each.limit]
        return min(roomy, key=lambda each: len(each.streams), default=None)

    def _flush(self) -> None:
        for each in self.connections:
            each.flush()

    def _wait(self, run: _Run) -> None:
        """Wait until something can be read or written or the next stream is due."""
        paced = run.rate is not None and self._roomiest() is not None
        due = run.due() if paced else None
        patience = PATIENCE if due is None else max(0.0, due - perf_counter())
        unsent = [each for each in self.connections if each.unsent]
        readable, writable, _ = select.select(self.connections, unsent, [], patience)
        if not (readable or writable or due is not None):
            raise LoadError(f"nothing came for {PATIENCE:.0f} s: {self._oldest()}")
        for each in readable:
            each.receive()

    def _oldest(self) -> Stream | str:
        streams = [stream for each in self.connections for stream in each.streams.values()]
        return min(streams, key=lambda stream: stream.due, default="no stream is open")


@contextmanager
def client(port: int, connections: int = 1) -> Generator[Client]:
    """A client with *connections* to *port*; they are closed at the end of the block."""
    made = Client(port)
    try:
        for _ in range(connections):
            made.connect()
        yield made
    finally:
        made.close()
