"""The latency that the picker adds to requests through a real Envoy.

Three Envoys run side by side: one that asks nobody, one that asks the daemon in lean buffered
mode, one in full duplex. Each gets the same requests in turn, at a fixed rate; the upstream
answers at once. The daemon has a core of its own, all else the others. What counts is the
difference to the Envoy that asks nobody.

A run during which the hypervisor gave more than 0.5 % of the time to other machines says nothing
of the daemon, for each hop of a request may have waited for that. So runs are repeated until
enough of them were quiet, or until that has taken too many; then the quietest ones count.

    python -m tests.bench.latency [--rate 200] [--seconds 1] [--runs 20]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
from attrs import define, field, frozen

from pointsman.actors.sim.envoy import envoy_command
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, HostPort, Mode, bootstrap
from pointsman.actors.sim.processes import ProcessError, answers, child, free_ports

from .company import WITH_PREFIX
from .figures import aligned, number
from .http_load import http_client, post
from .process import MachineTime, keep_to
from .scenarios import KB, chat_body
from .server import Models, Pointsman, Server, ServerError, model_servers
from .stream import LoadError

LOOPBACK: Final = "127.0.0.1"
WITHOUT: Final = "without ext_proc"
ARMS: Final = (WITHOUT, Mode.LEAN_BUFFERED.value, Mode.FULL_DUPLEX.value)
BUDGET: Final = 3.0  # ms added at p99
QUIET: Final = 0.005  # of the time, at most, went to other machines
PATIENCE: Final = 6  # times the runs that are wanted
PROGRESS: Final = 5  # turns from one line to the next
EXT_PROC: Final = "envoy.filters.http.ext_proc"
PATH: Final = "/v1/chat/completions"


@frozen
class Amount:
    rate: float = 200.0
    """Requests a second."""
    seconds: float = 1.0
    """Of one run."""
    runs: int = 20
    """That count, of each Envoy."""


@frozen
class Run:
    latencies: Sequence[float]
    """In ms."""
    stolen: float
    """Which share of the machine's time meanwhile went to others."""


@define
class Arm:
    """An Envoy that is measured."""

    name: str
    port: int
    wanted: int
    """How many quiet runs are enough."""
    runs: list[Run] = field(factory=list[Run])

    @property
    def quiet(self) -> int:
        """How many runs were quiet."""
        return sum(run.stolen <= QUIET for run in self.runs)

    @property
    def enough(self) -> bool:
        """Whether there are enough quiet runs, or so many that there is no use in more."""
        return self.quiet >= self.wanted or len(self.runs) >= PATIENCE * self.wanted

    def quantile(self, quantile: float) -> float:
        """Of all latencies of the quietest runs, in ms."""
        counted = sorted(self.runs, key=lambda run: run.stolen)[: self.wanted]
        latencies = sorted(each for run in counted for each in run.latencies)
        return latencies[min(len(latencies) - 1, int(quantile * len(latencies)))]


def without_ext_proc(config: Any) -> Any:
    """An Envoy's configuration, without the filter that asks the picker."""
    changed = json.loads(json.dumps(config))
    for listener in changed["static_resources"]["listeners"]:
        for chain in listener["filter_chains"]:
            for each in chain["filters"]:
                filters = each["typed_config"]["http_filters"]
                filters[:] = [one for one in filters if one["name"] != EXT_PROC]
    return changed


def measure(amount: Amount) -> list[Arm]:
    """Run everything. Raises ProcessError, ServerError or LoadError."""
    with ExitStack() as stack:
        first, *others = sorted(os.sched_getaffinity(0))
        if others:  # what is started from here on runs there
            stack.callback(keep_to, os.getpid(), {first, *others})
            keep_to(os.getpid(), others)
        models = stack.enter_context(model_servers("127.0.1", 10))
        server = stack.enter_context(Pointsman(profile=WITH_PREFIX).start(models))
        keep_to(server.pid, {first})
        return anyio.run(_through_envoys, amount, models, server)


async def _through_envoys(amount: Amount, models: Models, server: Server) -> list[Arm]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pointsman-latency-")))
        arms: list[Arm] = []
        for name in ARMS:
            port = await _start_envoy(stack, folder, name, models, server)
            arms.append(Arm(name, port, amount.runs))
        await anyio.to_thread.run_sync(_play, amount, arms)
        return arms


async def _start_envoy(
    stack: AsyncExitStack, folder: Path, name: str, models: Models, server: Server
) -> int:
    """An Envoy for one arm; the port where it listens."""
    listen, admin = (HostPort(LOOPBACK, port) for port in free_ports(2))
    settings = EnvoySettings(
        listen=listen,
        admin=admin,
        picker=HostPort(LOOPBACK, server.port),
        mode=Mode.LEAN_BUFFERED if name == WITHOUT else Mode(name),
        fallback=tuple(HostPort(host, models.port) for host in models.hosts),
    )
    config: Any = bootstrap(settings)
    file = folder / f"{name.replace(' ', '-')}.json"
    file.write_text(json.dumps(without_ext_proc(config) if name == WITHOUT else config))
    command = envoy_command(file, settings)
    ready = answers(f"{settings.admin_url}/ready")
    await stack.enter_async_context(child("envoy", command, ready=ready, ready_within=30.0))
    return listen.port


def _play(amount: Amount, arms: Sequence[Arm]) -> None:
    """One run of each in turn, so that a slow minute of the machine hits all."""
    for arm in arms:
        _run(amount, arm)  # warms up
    for turn in count(1):
        waiting = [arm for arm in arms if not arm.enough]
        if not waiting:
            return
        for arm in waiting:
            arm.runs.append(_run(amount, arm))
        if not turn % PROGRESS:
            quiet = ", ".join(f"{arm.quiet} of {len(arm.runs)}" for arm in arms)
            print(f"quiet runs, of {amount.runs} that are wanted: {quiet}", file=sys.stderr)


def _run(amount: Amount, arm: Arm) -> Run:
    request = post(PATH, chat_body(2 * KB))
    with http_client(arm.port) as client:
        client.play(request, 20, amount.rate)  # opens the connections
        before = MachineTime.now()
        latencies = client.play(request, int(amount.rate * amount.seconds), amount.rate)
        stolen = MachineTime.now().stolen_since(before)
    return Run([each * 1e3 for each in latencies], stolen)


def table(arms: Sequence[Arm]) -> str:
    """What each arm took, and what it adds to the first one."""
    rows = [("ms", "p50", "p99", "added p50", "added p99", "budget", "", "quiet runs")]
    rows += [_row(arm, arms[0]) for arm in arms]
    return "\n".join(aligned(rows))


def _row(arm: Arm, plain: Arm) -> tuple[str, str, str, str, str, str, str, str]:
    p50, p99 = arm.quantile(0.5), arm.quantile(0.99)
    quiet = f"{arm.quiet} of {len(arm.runs)}"
    if arm is plain:
        return (arm.name, number(p50), number(p99), "", "", "", "", quiet)
    more, added = p50 - plain.quantile(0.5), p99 - plain.quantile(0.99)
    over = "OVER" if added > BUDGET else ""
    budget = number(BUDGET)
    return (arm.name, number(p50), number(p99), number(more), number(added), budget, over, quiet)


def parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n\n    python")[0]
    made = argparse.ArgumentParser("python -m tests.bench.latency", description=description)
    base = Amount()
    made.add_argument("--rate", type=float, default=base.rate, help="requests a second (200)")
    made.add_argument("--seconds", type=float, default=base.seconds, help="of one run (1)")
    made.add_argument(
        "--runs", type=int, default=base.runs, help="quiet ones of each Envoy that count (20)"
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        arms = measure(Amount(options.rate, options.seconds, options.runs))
    except (ProcessError, ServerError, LoadError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(table(arms))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
