"""Measures the rows: starts the servers, loads them in turn, takes medians.

The target and the baseline run side by side and are loaded alternately, so a slow minute of the
machine hits both. A row that fails keeps its place in the table, with the reason.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Final

from attrs import define, field, frozen

from . import company, load
from .checks import WrongReplyError, check
from .company import Company
from .figures import Figure
from .load import LoadError, Outcome
from .process import cpu_time, resident
from .rows import (
    BUDGETS,
    CHUNK,
    IDLE,
    LOADED,
    OPEN_STREAM,
    REST,
    SCRAPE,
    SSE,
    Row,
    exchanges,
    response_chunk,
)
from .scenarios import KB, chat_body, duplex
from .server import Baseline, Models, Pointsman, Server, ServerError, Target, model_servers

SETTLE: Final = 0.02  # seconds in which a server gets over its last streams
_FAILURES: Final = (LoadError, WrongReplyError, ServerError, OSError)


@frozen
class Effort:
    """How much is measured."""

    repeat: int = 5
    """Runs per row and server; the median counts."""
    share: float = 1.0
    """Of each row's exchanges."""
    idle: float = 10.0
    """Seconds over which idleness is watched, after half as many to become idle."""
    open_streams: int = 1000
    streams: int = load.STREAMS
    """In flight at a time."""
    connections: int = 1
    company: company.Amount = field(factory=company.Amount)


@frozen
class _Sample:
    """One run of load on one server."""

    server_us: float
    outcome: Outcome

    @property
    def client_us(self) -> float:
        return self.outcome.client_cpu / self.outcome.exchanges * 1e6


@define(eq=False)
class Bench:
    """Measures all rows whose name *wanted* finds."""

    target: Target
    effort: Effort
    wanted: re.Pattern[str]
    say: Callable[[str, str], None]
    """Told which row is worked on, and how far it is."""
    figures: list[Figure] = field(factory=list[Figure], init=False)

    def run(self) -> list[Figure]:
        rows = [row for row in exchanges() if self._wants(row.name) or self._wants_chunk(row)]
        if rows or self._wants(REST, LOADED):
            self._try("start", lambda: self._loaded(rows))
        if self._wants(OPEN_STREAM):
            self._try(OPEN_STREAM, self._open_streams)
        self._in_company()
        if self._wants(IDLE, SCRAPE) and isinstance(self.target, Pointsman):
            self._try(IDLE, self._idle)
        return self.figures

    def _wants(self, *names: str) -> bool:
        return any(self.wanted.search(name) for name in names)

    def _wants_chunk(self, row: Row) -> bool:
        return row.name in SSE and self._wants(CHUNK)

    def _add(self, figure: Figure) -> None:
        if self._wants(figure.name) or figure.error:
            self.figures.append(figure)

    def _try(self, name: str, measure: Callable[[], object]) -> None:
        try:
            measure()
        except _FAILURES as error:
            self._add(Figure(name, "", error=str(error)))

    def _loaded(self, rows: Sequence[Row]) -> None:
        """Everything that two servers behind ten model servers are asked."""
        with ExitStack() as stack:
            models = stack.enter_context(model_servers("127.0.1", 10))
            servers = self._start(stack, models)
            self._add(_memory(REST, servers))
            measured: list[Figure] = []
            for row in rows:
                measured.append(self._measured(row, servers, models))
                self._add(measured[-1])
            if chunk := response_chunk(measured):
                self._add(chunk)
            if rows:
                self._add(_memory(LOADED, servers))

    def _start(self, stack: ExitStack, models: Models) -> list[Server]:
        """The target and the baseline, in this order."""
        self.say("start", f"{self.target.name} and baseline")
        return [stack.enter_context(each.start(models)) for each in (self.target, Baseline())]

    def _measured(self, row: Row, servers: Sequence[Server], models: Models) -> Figure:
        try:
            return _figure(row, list(self._rounds(row, servers, models)))
        except _FAILURES as error:
            return Figure(row.name, "us", error=str(error))

    def _rounds(
        self, row: Row, servers: Sequence[Server], models: Models
    ) -> Iterable[tuple[_Sample, ...]]:
        """One sample of each server a round, in the order of *servers*."""
        script = load.script(row.exchange.steps)
        for server in servers:
            self.say(row.name, f"checking the replies of {server.name}")
            with load.client(server.port) as client:
                check(row.exchange, client.capture(script), models.endpoints)
        for turn in range(self.effort.repeat):
            self.say(row.name, f"run {turn + 1} of {self.effort.repeat}")
            yield tuple(self._sample(row, script, server) for server in servers)

    def _sample(self, row: Row, script: load.Script, server: Server) -> _Sample:
        """Warm up with a quarter of the exchanges, then count."""
        effort = self.effort
        count = max(4, int(row.count * effort.share))
        with load.client(server.port, effort.connections) as client:
            client.play(script, count // 4, streams=effort.streams, rate=row.rate)
            before = cpu_time(server.pid)
            outcome = client.play(script, count, streams=effort.streams, rate=row.rate)
            time.sleep(SETTLE)
            return _Sample(cpu_time(server.pid).since(before) / count * 1e6, outcome)

    def _open_streams(self) -> None:
        """Fresh servers, so that no memory is left over from other rows."""
        with ExitStack() as stack:
            models = stack.enter_context(model_servers("127.0.1", 10))
            servers = self._start(stack, models)
            self.say(OPEN_STREAM, f"holding {self.effort.open_streams}")
            target, baseline = [self._held(server) for server in servers]
        self._add(Figure(OPEN_STREAM, "kB", target, baseline, BUDGETS[OPEN_STREAM]))

    def _held(self, server: Server) -> float:
        """What a stream that waits for its response holds, in kB."""
        script = load.script(duplex(OPEN_STREAM, chat_body(2 * KB)).steps)
        count = self.effort.open_streams
        with load.client(server.port) as client:
            client.play(script, count)
            before = resident(server.pid)
            client.hold(script, count)
            return (resident(server.pid) - before) * KB / count

    def _in_company(self) -> None:
        measured = Company(self.target, self.effort.company, self.say)
        for name in filter(self._wants, company.LARGE):
            self._try(name, partial(self._beside_bodies, measured, name))
        if self._wants(company.PICKS, company.MEMORY):
            self._try(company.PICKS, lambda: [*map(self._add, measured.beside_streams())])

    def _beside_bodies(self, measured: Company, name: str) -> None:
        self._add(measured.beside_bodies(name))

    def _idle(self) -> None:
        """A daemon that only watches, over 100 model servers."""
        seconds = self.effort.idle
        with ExitStack() as stack:
            models = stack.enter_context(model_servers("127.0.2", 100, idle=True))
            server = stack.enter_context(self.target.start(models))
            self.say(IDLE, f"settling for {seconds / 2:.0f} s")
            time.sleep(seconds / 2)
            self.say(IDLE, f"watching for {seconds:.0f} s")
            cpu, began, scrapes = cpu_time(server.pid), time.monotonic(), models.scrapes()
            time.sleep(seconds)
            used, elapsed = cpu_time(server.pid).since(cpu), time.monotonic() - began
            scrapes = models.scrapes() - scrapes
        note = f"{scrapes / elapsed:.0f} scrapes/s"
        self._add(Figure(IDLE, "core", used / elapsed, None, BUDGETS[IDLE], note=note))
        if scrapes:
            self._add(Figure(SCRAPE, "us", used / scrapes * 1e6))


def _memory(name: str, servers: Sequence[Server]) -> Figure:
    target, baseline = [resident(server.pid) for server in servers]
    return Figure(name, "MB", target, baseline, BUDGETS.get(name))


def _figure(row: Row, rounds: Sequence[tuple[_Sample, ...]]) -> Figure:
    """The medians of all rounds."""
    target, baseline = zip(*rounds, strict=True)
    return Figure(
        row.name,
        "us",
        median(sample.server_us for sample in target),
        median(sample.server_us for sample in baseline),
        row.budget,
        median(sample.client_us for sample in target),
        _note(row, [sample.outcome for sample in target]),
    )


def _note(row: Row, outcomes: Sequence[Outcome]) -> str:
    if row.rate is None:
        return f"{median(one.exchanges / one.seconds for one in outcomes):,.0f}/s"
    p50, p99 = (median(one.decision(q) for one in outcomes) * 1e3 for q in (0.5, 0.99))
    return f"decision p50 {p50:.1f}, p99 {p99:.1f} ms"
