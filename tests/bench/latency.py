"""The latency that the picker adds to requests through a real Envoy.

Three Envoys run side by side: one that asks nobody, one that asks the daemon in lean buffered
mode, one in full duplex. Each gets the same requests in turn, at a fixed rate; the upstream
answers at once. What counts is the difference to the Envoy that asks nobody.

    python -m tests.bench.latency [--rate 200] [--seconds 5] [--repeat 5]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
from attrs import frozen

from pointsman.actors.sim.envoy import envoy_command
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, HostPort, Mode, bootstrap
from pointsman.actors.sim.processes import ProcessError, answers, child, free_ports

from .company import WITH_PREFIX
from .figures import aligned, number
from .http_load import http_client, post
from .scenarios import KB, chat_body
from .server import Models, Pointsman, Server, ServerError, model_servers
from .stream import LoadError

LOOPBACK: Final = "127.0.0.1"
WITHOUT: Final = "without ext_proc"
ARMS: Final = (WITHOUT, Mode.LEAN_BUFFERED.value, Mode.FULL_DUPLEX.value)
BUDGET: Final = 3.0  # ms added at p99
EXT_PROC: Final = "envoy.filters.http.ext_proc"
PATH: Final = "/v1/chat/completions"


@frozen
class Amount:
    rate: float = 200.0
    """Requests a second."""
    seconds: float = 5.0
    """Of one run."""
    repeat: int = 5


@frozen
class Arm:
    """An Envoy that is measured, with the latencies of each of its runs in ms."""

    name: str
    port: int
    runs: list[list[float]]

    def quantile(self, quantile: float) -> list[float]:
        """One figure for each run."""
        return [sorted(run)[min(len(run) - 1, int(quantile * len(run)))] for run in self.runs]


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
        models = stack.enter_context(model_servers("127.0.1", 10))
        server = stack.enter_context(Pointsman(profile=WITH_PREFIX).start(models))
        return anyio.run(_through_envoys, amount, models, server)


async def _through_envoys(amount: Amount, models: Models, server: Server) -> list[Arm]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pointsman-latency-")))
        arms: list[Arm] = []
        for name in ARMS:
            port = await _start_envoy(stack, folder, name, models, server)
            arms.append(Arm(name, port, []))
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
    request = post(PATH, chat_body(2 * KB))
    count = int(amount.rate * amount.seconds)
    for turn in range(amount.repeat + 1):
        for arm in arms:
            with http_client(arm.port) as client:
                client.play(request, 20, amount.rate)  # opens the connections
                latencies = client.play(request, count, amount.rate)
            if turn:  # the first one warms up
                arm.runs.append([each * 1e3 for each in latencies])


def table(arms: Sequence[Arm]) -> str:
    """Medians over the runs, and what each arm adds to the first one in the same round."""
    rows = [("ms", "p50", "p99", "added p50", "added p99", "budget", "")]
    rows += [_row(arm, arms[0]) for arm in arms]
    return "\n".join(aligned(rows))


def _row(arm: Arm, plain: Arm) -> tuple[str, str, str, str, str, str, str]:
    p50, p99 = (number(median(arm.quantile(q))) for q in (0.5, 0.99))
    if arm is plain:
        return (arm.name, p50, p99, "", "", "", "")
    added = [median(_added(arm, plain, q)) for q in (0.5, 0.99)]
    over = "OVER" if added[1] > BUDGET else ""
    return (arm.name, p50, p99, number(added[0]), number(added[1]), number(BUDGET), over)


def _added(arm: Arm, plain: Arm, quantile: float) -> Iterator[float]:
    pairs = zip(arm.quantile(quantile), plain.quantile(quantile), strict=True)
    return (with_ - without for with_, without in pairs)


def parser() -> argparse.ArgumentParser:
    description = (__doc__ or "").partition("\n\n    python")[0]
    made = argparse.ArgumentParser("python -m tests.bench.latency", description=description)
    base = Amount()
    made.add_argument("--rate", type=float, default=base.rate, help="requests a second (200)")
    made.add_argument("--seconds", type=float, default=base.seconds, help="of one run (5)")
    made.add_argument("--repeat", type=int, default=base.repeat, help="runs of each Envoy (5)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        arms = measure(Amount(options.rate, options.seconds, options.repeat))
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
