"""``pointsman demo``: real requests through a real Envoy to the best of three model servers."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, final

import anyio
import httpx
from attrs import define, field, frozen

from .arguments import Parser, port
from .sim.envoy import envoy, envoy_path
from .sim.envoy_bootstrap import EnvoySettings, HostPort, Mode
from .sim.processes import ProcessError, answers, child, free_ports

MODEL: Final = "llama-8b"
BUSY: Final = {"sim-1": 14, "sim-2": 5}
"""Requests that keep a server busy all the time; eight run at once, the rest wait."""
AT_ONCE: Final = 6
PAUSE: Final = 0.05  # seconds between two requests, on average
MODELS_READY: Final = re.compile("^ready", re.MULTILINE)
TOPICS: Final = ("tides", "lighthouses", "signal boxes", "points and crossings", "night trains")
CONFIG: Final = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: max-score-picker
- name: endpoints
  type: file-discovery
  parameters: {{path: {path}, watchFile: true}}
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: queue-scorer, weight: 2}}
  - {{pluginRef: kv-cache-utilization-scorer, weight: 2}}
  - {{pluginRef: max-score-picker}}
dataLayer: {{discovery: {{pluginRef: endpoints}}}}
"""
DESCRIPTION: Final = """\
Starts three simulated model servers (one idle, one busy, one overloaded), the daemon and a real
Envoy in front of it, all on loopback; sends chat requests, streaming and not, and prints where
they went and why. Then everything stays up to be tried, until Ctrl-C.

  pointsman demo --once                ends by itself
  pointsman demo --mode full-duplex    shows the daemon every byte
"""


def add_arguments(parser: Parser) -> None:
    """Declare the options that `demo` takes."""
    parser.description = DESCRIPTION
    parser.add_argument("--once", action="store_true", help="end after the requests")
    parser.add_argument("--requests", type=int, default=60, metavar="N", help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the requests")
    text = "of Envoy; any free one when left out"
    parser.add_argument("--port", type=port, default=0, help=text)
    modes = [mode.value for mode in (Mode.LEAN_BUFFERED, Mode.LEAN_DUPLEX, Mode.FULL_DUPLEX)]
    text = f"how much Envoy shows the daemon ({modes[0]})"
    parser.add_argument("--mode", choices=modes, default=modes[0], help=text)
    text = "another configuration, whose file-discovery reads the path {endpoints}"
    parser.add_argument("--config", type=Path, metavar="FILE", help=text)


async def run(options: argparse.Namespace) -> int:
    """Run the demonstration; 0 when every request was served."""
    try:
        envoy_path()
        return await _demo(options)
    except ProcessError as exc:
        print(f"pointsman demo: {exc}", file=sys.stderr)
        return 2


async def _demo(options: argparse.Namespace) -> int:
    with TemporaryDirectory(prefix="pointsman-demo-") as folder:
        async with _stack(options, Path(folder)) as stack:
            traffic = Traffic(stack.url, Random(options.seed), options.requests)
            say(f"sending {options.requests} chat requests through {stack.url}")
            await traffic.run(stack)
            print(table(traffic), flush=True)
            if not options.once:
                _invite(stack)
                await anyio.sleep_forever()
            print(f"{len(traffic.served)} of {options.requests} requests served", flush=True)
            return 0 if len(traffic.served) == options.requests else 1


def say(text: str) -> None:
    """A line about what is going on."""
    print(f"* {text}", flush=True)


@final
@frozen
class Stack:
    """The running parts, by their addresses."""

    url: str
    admin: str

    async def endpoints(self) -> Sequence[Mapping[str, Any]]:
        """What the daemon knows of the model servers now."""
        async with httpx.AsyncClient(trust_env=False) as client:
            response = await client.get(f"{self.admin}/debug/endpoints")
            rows: Sequence[Mapping[str, Any]] = response.raise_for_status().json()
            return rows


@asynccontextmanager
async def _stack(options: argparse.Namespace, folder: Path) -> AsyncGenerator[Stack]:
    """Model servers, the daemon and Envoy, each ready before the next is started."""
    endpoints = folder / "endpoints.yaml"
    config = folder / "config.yaml"
    template = options.config.read_text() if options.config else CONFIG.format(path=endpoints)
    config.write_text(template.replace("{endpoints}", str(endpoints)))
    grpc, health, metrics, listen, admin = free_ports(5)
    settings = EnvoySettings(
        listen=HostPort("127.0.0.1", options.port or listen),
        admin=HostPort("127.0.0.1", admin),
        picker=HostPort("127.0.0.1", grpc),
        picker_tls=True,
        mode=Mode(options.mode),
    )
    ports = flags(grpc_port=grpc, grpc_health_port=health, metrics_port=metrics)
    say("starting three model servers: sim-3 idle, sim-2 busy, sim-1 overloaded")
    async with child("model servers", _models(endpoints), ready=MODELS_READY):
        say("starting the daemon")
        ready = answers(f"http://127.0.0.1:{metrics}/readyz")
        serve = command("serve", "--config-file", str(config), *ports)
        async with child("pointsman", serve, ready=ready, grace=3):
            say("starting Envoy")
            async with envoy(settings):
                yield Stack(settings.url, f"http://127.0.0.1:{metrics}")


def command(*arguments: str) -> Sequence[str]:
    """The command line of a part of ours, as a process of its own."""
    return (sys.executable, "-m", "pointsman", *arguments)


def flags(**values: int) -> Sequence[str]:
    """Flags of a daemon that stays on loopback and ends quickly."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    fixed = ("--bind-address=127.0.0.1", "--drain-timeout=1s", "--log-format=text")
    return (*given, *fixed)


def _models(endpoints: Path) -> Sequence[str]:
    (some_port,) = free_ports(1, "127.0.1.1")
    busy = (f"--pod={name}:background={count}" for name, count in BUSY.items())
    return command(
        "sim", f"--port={some_port}", f"--model={MODEL}", f"--endpoints-file={endpoints}", *busy
    )


@final
@frozen
class Served:
    """A request that was answered."""

    pod: str
    first_token: float | None
    """Seconds until the first event of a stream."""


@final
@define(eq=False)
class Traffic:
    """Chat requests, every other one streaming, a few at a time."""

    url: str
    random: Random
    count: int
    served: list[Served] = field(factory=list[Served], init=False)
    failed: list[str] = field(factory=list[str], init=False)
    rows: Sequence[Mapping[str, Any]] = field(default=(), init=False)
    """What the daemon knew when half of the requests were under way."""

    async def run(self, stack: Stack) -> None:
        limiter = anyio.CapacityLimiter(AT_ONCE)
        async with (
            httpx.AsyncClient(trust_env=False, timeout=60, base_url=self.url) as client,
            anyio.create_task_group() as tasks,
        ):
            for number in range(self.count):
                if number == self.count // 2:
                    self.rows = await stack.endpoints()
                await limiter.acquire_on_behalf_of(number)
                tasks.start_soon(self._one, client, number, limiter)
                await anyio.sleep(self.random.expovariate(1 / PAUSE))
        for failure in self.failed:
            say(f"failed: {failure}")

    async def _one(
        self, client: httpx.AsyncClient, number: int, limiter: anyio.CapacityLimiter
    ) -> None:
        try:
            await self._chat(client, streaming=number % 2 == 0)
        except httpx.HTTPError as exc:
            self.failed.append(f"request {number}: {type(exc).__name__} {exc}")
        finally:
            limiter.release_on_behalf_of(number)

    async def _chat(self, client: httpx.AsyncClient, *, streaming: bool) -> None:
        topic = self.random.choice(TOPICS)
        body = {
            "model": MODEL,
            "stream": streaming,
            "max_tokens": self.random.randint(8, 32),
            "messages": [{"role": "user", "content": f"Tell me something about {topic}."}],
        }
        sent = perf_counter()
        first: float | None = None
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for _ in response.aiter_raw():
                if streaming and first is None:
                    first = perf_counter() - sent
            response.raise_for_status()
            self.served.append(Served(response.headers.get("x-inference-pod", "?"), first))


def table(traffic: Traffic) -> str:
    """Where the requests went, beside what the daemon knew of the servers."""
    head = f"{'endpoint':<10}{'queue':>7}{'kv use':>8}{'score':>7}{'served':>8}{'TTFT p50':>10}"
    lines = [head]
    for row in sorted(traffic.rows, key=lambda row: str(row["id"])):
        name = str(row["id"]).rpartition("/")[2]
        mine = [one for one in traffic.served if one.pod == name]
        first = [one.first_token for one in mine if one.first_token is not None]
        values, scores = row["values"], row["scores"]
        lines.append(
            f"{name:<10}{_number(values.get('waiting-queue-size')):>7}"
            f"{_percent(values.get('kv-cache-usage')):>8}"
            f"{_number(next(iter(scores.values()), None), 2):>7}{len(mine):>8}"
            f"{f'{median(first) * 1000:.0f} ms' if first else '-':>10}"
        )
    return "\n".join(lines)


def _number(value: float | None, places: int = 0) -> str:
    return "-" if value is None else f"{value:.{places}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _invite(stack: Stack) -> None:
    say("everything stays up; try")
    question = '{"model": "%s", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    print(f"    curl -N {stack.url}/v1/chat/completions -d '{question % MODEL}'")
    print(f"    curl -s {stack.admin}/metrics | grep llm_d_epp")
    say("Ctrl-C ends it")
