"""Several simulated model servers in one process: the ``pointsman sim`` command."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import anyio
import attrs
import msgspec
from anyio import TASK_STATUS_IGNORED
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskStatus

from pointsman.actors.http import serve

from .faults import Faults
from .model_server import ModelServer
from .pods import (
    BadSetting,
    Pod,
    PodSettings,
    descriptions,
    read_override,
    read_settings,
)

_DESCRIPTION: Final = """\
Simulated vLLM servers: OpenAI completions with streaming and usage, queues, slots, LoRA adapters,
a prefix cache, and vLLM's metrics. All run in this process, each on an address of its own.

  pointsman sim --pods 3 --endpoints-file endpoints.yaml
  curl -N http://127.0.1.1:8000/v1/chat/completions -d '{"model": "llama-8b", "stream": true,
    "messages": [{"role": "user", "content": "Where does this train go?"}]}'
"""
_EPILOG: Final = """\
Every setting can be another for single pods, who are called sim-1, sim-2, ...:
  --pod sim-1:background=12,failure-rate=5 --pod sim-3:waiting=oscillate:0:20:30s

Those under "faults" can be changed while the servers run, all of a request or none:
  curl http://127.0.1.2:8000/admin/config -d '{"metrics_fault": "hang"}'
A client gets an error of its choice with the header X-Return-Error: 429 (or a failure type).
"""

TcpListener = Listener[SocketStream]


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options that `run` takes."""
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.usage = "%(prog)s [options]"
    parser.description, parser.epilog = _DESCRIPTION, _EPILOG
    fleet = parser.add_argument_group("fleet")
    fleet.add_argument("--pods", type=int, default=3, metavar="N", help="servers (default 3)")
    fleet.add_argument(
        "--address",
        default="127.0.1.1",
        metavar="IP",
        help="of the first; the others follow (default 127.0.1.1)",
    )
    fleet.add_argument(
        "--port", type=int, default=8000, metavar="N", help="of all (default 8000; 0: any)"
    )
    fleet.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="times real time (default 1); 0 waits for nothing",
    )
    fleet.add_argument(
        "--endpoints-file", type=Path, metavar="PATH", help="write the servers' addresses there"
    )
    fleet.add_argument(
        "--pod",
        action="append",
        default=[],
        metavar="NAME:KEY=VALUE,...",
        help="other settings for one server; may be given several times",
    )
    _add_settings(parser)


def _add_settings(parser: ArgumentParser) -> None:
    settings = parser.add_argument_group("settings of a server")
    faults = parser.add_argument_group("faults")
    told = (str, int, float)
    for name, description in descriptions().items():
        group = faults if name in Faults.__struct_fields__ else settings
        default = getattr(PodSettings(), name)
        group.add_argument(
            f"--{name.replace('_', '-')}",
            metavar="VALUE",
            help=f"{description} (default {default})" if type(default) in told else description,
        )


def plan(options: Namespace) -> list[Pod]:
    """The pods that the options describe.

    Raises:
        BadSetting: an option has a value that cannot be used.
    """
    if options.pods < 1:
        raise BadSetting(f"--pods: expected at least 1, got {options.pods}")
    if options.speed < 0:
        raise BadSetting(f"--speed: expected 0 or more, got {options.speed:g}")
    given = {name: getattr(options, name) for name in PodSettings.__struct_fields__}
    common = {name: str(text) for name, text in given.items() if text is not None}
    read_settings(common, "--")
    own: dict[str, dict[str, str]] = {f"sim-{number + 1}": {} for number in range(options.pods)}
    for text in options.pod:
        name, settings = read_override(text)
        if name not in own:
            raise BadSetting(f"--pod {name}: there are only {', '.join(own)}")
        own[name] |= settings
    return [
        _pod(options, name, number, common | settings)
        for number, (name, settings) in enumerate(own.items())
    ]


def _pod(options: Namespace, name: str, number: int, texts: Mapping[str, str]) -> Pod:
    settings = read_settings(texts, f"--pod {name}: ")
    settings = msgspec.structs.replace(settings, seed=settings.seed + number)
    try:
        address = ip_address(options.address) + number
    except ValueError as error:
        raise BadSetting(f"--address {options.address}: {error}") from None
    return Pod(name, str(address), options.port, settings)


async def run(
    options: Namespace, *, task_status: TaskStatus[list[Pod]] = TASK_STATUS_IGNORED
) -> int:
    """Serve the pods that *options* describe until cancelled; 2 when they cannot be served.

    Its start, for those who wait for it, is when all pods listen; they come with their ports.
    """
    try:
        async with AsyncExitStack() as stack:
            bound = [await _listen(pod, stack) for pod in plan(options)]
            pods = [pod for pod, _listener in bound]
            if options.endpoints_file is not None:
                write_endpoints(options.endpoints_file, pods)
            _announce(pods, options.endpoints_file)
            task_status.started(pods)
            await serve_fleet(bound, speed=options.speed)
    except BadSetting as error:
        print(f"pointsman sim: {error}", file=sys.stderr)
        return 2
    return 0


async def serve_fleet(pods: Sequence[tuple[Pod, TcpListener]], *, speed: float) -> None:
    """Let every pod answer on its listener, until cancelled."""
    async with anyio.create_task_group() as tasks:
        for pod, listener in pods:
            server = ModelServer(pod, speed)
            tasks.start_soon(server.run, name=pod.name)
            tasks.start_soon(serve, listener, server.handle, name=f"{pod.name} http")


def write_endpoints(path: Path, pods: Sequence[Pod]) -> None:
    """Write the file that file discovery reads; readers see the old one or the new one.

    Raises:
        BadSetting: it cannot be written.
    """
    content = msgspec.yaml.encode({"endpoints": [pod.endpoint() for pod in pods]})
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        raise BadSetting(f"--endpoints-file {path}: {error.strerror}") from None


async def _listen(pod: Pod, stack: AsyncExitStack) -> tuple[Pod, TcpListener]:
    """Bind the pod's address; the pod comes back with the port that it got."""
    try:
        listener = await anyio.create_tcp_listener(local_host=pod.address, local_port=pod.port)
    except OSError as error:
        where = f"{pod.address}:{pod.port}"
        raise BadSetting(f"{pod.name} cannot listen on {where}: {error.strerror}") from None
    await stack.enter_async_context(listener)
    return attrs.evolve(pod, port=listener.extra(SocketAttribute.local_port)), listener


def _announce(pods: Sequence[Pod], file: Path | None) -> None:
    for pod in pods:
        settings = pod.settings
        busy = f", background {settings.background}" if settings.background else ""
        where = f"{pod.address}:{pod.port}"
        print(f"{pod.name} {where} {settings.model}, {settings.max_num_seqs} slots{busy}")
    listed = f", listed in {file}" if file is not None else ""
    print(f"ready: {len(pods)} model servers{listed}", flush=True)
