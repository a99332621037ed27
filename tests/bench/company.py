"""What a pick costs, and how long it takes, when the daemon has other things on its hands.

Beside large bodies: small requests come at a fixed rate, and what counts is how much later than
without company they are decided. The large bodies come from another process, so that sending
them does not hold up the small ones. This is wall-clock time of a shared machine: it is told,
and nothing depends on it.

Beside open streams: what an exchange costs while thousands of streams wait for their responses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from attrs import define, evolve, field, frozen

from . import load
from .figures import Budget, Figure
from .load import Client, Script
from .process import cpu_time, resident
from .scenarios import KB, buffered, chat_body, duplex
from .server import PROFILE, Pointsman, Server, Target, background, model_servers

MB: Final = 1024 * KB
WITH_PREFIX: Final = (*PROFILE[:-1], "prefix-cache-scorer", PROFILE[-1])
LARGE: Final = {
    "picks beside 400 KB bodies": (400 * KB, 10.0),
    "picks beside 64 MiB bodies": (64 * MB - KB, 0.5),
}
"""By name, the size of a large body and how many of them come in a second."""
PICKS: Final = "picks beside open streams"
MEMORY: Final = "memory of each of them"
NAMES: Final = (*LARGE, PICKS, MEMORY)
BUDGETS: Final = {
    "picks beside 400 KB bodies": Budget(5.0),
    PICKS: Budget(1.1),
    MEMORY: Budget(50.0),
}
RATE: Final = 100.0  # small requests a second
SETTLE: Final = 0.02  # seconds in which a server gets over its last streams


@frozen
class Amount:
    """How much is measured."""

    repeat: int = 3
    picks: int = 1000
    """Small requests of one run beside large bodies."""
    open_streams: int = 5000
    exchanges: int = 2000
    """Of one run beside open streams."""


@define(eq=False)
class Company:
    """Measures the rows of this module of one kind of server."""

    target: Target
    amount: Amount
    say: Callable[[str, str], None]
    _small: Script = field(init=False)
    """A whole request phase in one step: its reply is the decision."""

    def __attrs_post_init__(self) -> None:
        if isinstance(self.target, Pointsman):
            self.target = evolve(self.target, profile=WITH_PREFIX)
        self._small = load.script(duplex("small", chat_body(2 * KB)).steps)

    # -- beside large bodies ------------------------------------------------------------------

    def beside_bodies(self, name: str) -> Figure:
        """By how much a large body on another stream delays small requests, in ms at p99."""
        size, rate = LARGE[name]
        with ExitStack() as stack:
            models = stack.enter_context(model_servers("127.0.1", 10))
            server = stack.enter_context(self.target.start(models))
            client = stack.enter_context(load.client(server.port))
            pairs = [
                self._alone_and_beside(client, server, size, rate, f"{name}, run {turn + 1}")
                for turn in range(self.amount.repeat)
            ]
        alone, beside = ([each for pair in pairs for each in pair[of]] for of in (0, 1))
        delay = median(
            _quantile(with_, 0.99) - _quantile(without, 0.99) for without, with_ in pairs
        )
        return Figure(name, "ms", delay, budget=BUDGETS.get(name), note=_latencies(alone, beside))

    def _alone_and_beside(
        self, client: Client, server: Server, size: int, rate: float, said: str
    ) -> tuple[Sequence[float], Sequence[float]]:
        self.say(said, "alone")
        alone = client.play(self._small, self.amount.picks, rate=RATE).decisions
        self.say(said, "beside large bodies")
        with background("tests.bench.large_bodies", str(server.port), str(size), str(rate)):
            beside = client.play(self._small, self.amount.picks, rate=RATE).decisions
        return alone, beside

    # -- beside open streams ------------------------------------------------------------------

    def beside_streams(self) -> tuple[Figure, Figure]:
        """What an exchange costs beside so many open streams, as a share of what it costs without;
        and the memory of each."""
        with ExitStack() as stack:
            models = stack.enter_context(model_servers("127.0.1", 10))
            alone, beside = [stack.enter_context(self.target.start(models)) for _ in range(2)]
            clients = [stack.enter_context(load.client(each.port)) for each in (alone, beside)]
            holder = stack.enter_context(load.client(beside.port))
            kilobytes = self._hold(holder, beside)
            ratios, note = self._compare(clients, (alone, beside))
        return (
            Figure(PICKS, "x", ratios, budget=BUDGETS[PICKS], note=note),
            Figure(MEMORY, "kB", kilobytes, budget=BUDGETS[MEMORY], note=self._held),
        )

    @property
    def _held(self) -> str:
        return f"{self.amount.open_streams:,} open"

    def _hold(self, holder: Client, server: Server) -> float:
        """Open the streams and let them wait; what one of them holds, in kB."""
        count = self.amount.open_streams
        self.say(PICKS, f"opening {count:,} streams")
        script = load.script(buffered("held", chat_body(2 * KB)).steps)
        holder.play(script, min(count, 2000))
        before = resident(server.pid)
        holder.hold(script, count)
        return (resident(server.pid) - before) * KB / count

    def _compare(self, clients: Sequence[Client], servers: Sequence[Server]) -> tuple[float, str]:
        script = load.script(buffered("lean buffered", chat_body(2 * KB)).steps)
        runs: list[list[float]] = []
        for turn in range(self.amount.repeat):
            self.say(PICKS, f"run {turn + 1} of {self.amount.repeat}")
            pairs = zip(clients, servers, strict=True)
            runs.append([self._cost(script, client, server) for client, server in pairs])
        alone, beside = (median(each) for each in zip(*runs, strict=True))
        note = f"{beside:.0f} us beside {self._held}, {alone:.0f} us beside none"
        return beside / alone, note

    def _cost(self, script: Script, client: Client, server: Server) -> float:
        """Microseconds of the server's CPU for one exchange."""
        count = self.amount.exchanges
        client.play(script, count // 4)
        before = cpu_time(server.pid)
        client.play(script, count)
        time.sleep(SETTLE)
        return cpu_time(server.pid).since(before) / count * 1e6


def _quantile(values: Sequence[float], quantile: float) -> float:
    """In ms."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))] * 1e3


def _latencies(alone: Sequence[float], beside: Sequence[float]) -> str:
    def told(values: Sequence[float]) -> str:
        return "/".join(f"{_quantile(values, q):.1f}" for q in (0.5, 0.99, 1.0))

    return f"p50/p99/max {told(beside)} ms beside, {told(alone)} alone"
