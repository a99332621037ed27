"""The servers that are measured, each as a process that lives as long as its ``with`` block."""

from __future__ import annotations

import http.client
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Final

from attrs import field, frozen

from .model_servers import addresses

CHECKOUT: Final = Path(__file__).resolve().parents[2]
START: Final = 30.0  # seconds that a server may take to become ready
STOP: Final = 10.0  # seconds that it may take to end
PROFILE: Final = ("queue-scorer", "kv-cache-utilization-scorer", "max-score-picker")


class ServerError(Exception):
    """A server did not start; the text holds the end of what it said."""


@frozen
class Server:
    """A running server under load."""

    name: str
    pid: int
    port: int


@frozen
class Models:
    """The model servers behind the pickers."""

    hosts: Sequence[str]
    port: int

    @property
    def endpoints(self) -> list[str]:
        return [f"{host}:{self.port}" for host in self.hosts]

    def scrapes(self) -> int:
        """How many scrapes all of them have answered so far."""
        return int(_get(self.hosts[0], self.port, "/scrapes"))


@frozen
class Pointsman:
    """How the daemon is started."""

    arguments: str = ""
    """Further arguments of ``serve``, as in a shell."""
    name: str = field(default="pointsman", init=False)

    @contextmanager
    def start(self, models: Models) -> Generator[Server]:
        """The daemon with *models* as its endpoints file, once it says that it is ready."""
        grpc, health, metrics = _free_ports(3)
        with TemporaryDirectory() as made:
            folder = Path(made)
            flags = [
                *("--grpc-port", str(grpc)),
                *("--grpc-health-port", str(health)),
                *("--metrics-port", str(metrics)),
                "--secure-serving=false",
                *("--config-file", str(_write_config(folder, models))),
                *shlex.split(self.arguments),
            ]
            command = [sys.executable, "-m", "pointsman", "serve", *flags]
            with _process(command, folder, cwd=folder, piped=False) as process:
                _wait_ready(process, folder, lambda: _serves(grpc, metrics))
                yield Server(self.name, process.pid, grpc)


@frozen
class Baseline:
    """How the yardstick is started."""

    name: str = field(default="baseline", init=False)

    @contextmanager
    def start(self, models: Models) -> Generator[Server]:
        with _python("tests.bench.baseline", *models.endpoints) as (process, port):
            yield Server(self.name, process.pid, port)


Target = Pointsman | Baseline


@contextmanager
def model_servers(network: str, count: int, *, idle: bool = False) -> Generator[Models]:
    """*count* model servers on the first addresses of *network*."""
    state = "idle" if idle else "busy"
    with _python("tests.bench.model_servers", network, str(count), state) as (_, port):
        yield Models(addresses(network, count), port)


def _write_config(folder: Path, models: Models) -> Path:
    # JSON is YAML too.
    endpoints = folder / "endpoints.yaml"
    listed = [
        {"name": f"model-{number}", "address": host, "port": str(models.port)}
        for number, host in enumerate(models.hosts)
    ]
    endpoints.write_text(json.dumps({"endpoints": listed}))
    discovery = {"type": "file-discovery", "parameters": {"path": str(endpoints)}}
    config = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*({"type": name} for name in PROFILE), discovery],
        "schedulingProfiles": [
            {"name": "default", "plugins": [{"pluginRef": name} for name in PROFILE]}
        ],
        "dataLayer": {"discovery": {"pluginRef": "file-discovery"}},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def _python(module: str, *arguments: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """A module of this checkout that prints "ready PORT", and the port."""
    command = [sys.executable, "-m", module, *arguments]
    with (
        TemporaryDirectory() as folder,
        _process(command, Path(folder), cwd=CHECKOUT, piped=True) as process,
    ):
        line = _stdout(process).readline()
        if not line.startswith("ready "):
            process.wait(STOP)
            raise _failed(module, process, Path(folder))
        yield process, int(line.split()[1])


@contextmanager
def _process(
    command: Sequence[str], folder: Path, *, cwd: Path, piped: bool
) -> Generator[subprocess.Popen[str]]:
    """A process that is ended with the block. What it says goes to the file ``said`` in *folder*,
    its stdout to a pipe if *piped*."""
    with ExitStack() as stack:
        said = stack.enter_context((folder / "said").open("w"))
        stdout = subprocess.PIPE if piped else said
        process = subprocess.Popen(command, cwd=cwd, stdout=stdout, stderr=said, text=True)
        stack.enter_context(process)
        stack.callback(_end, process)
        yield process


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP)
    except subprocess.TimeoutExpired:
        process.kill()


def _stdout(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdout is None:
        raise ValueError("started without a pipe")
    return process.stdout


def _wait_ready(process: subprocess.Popen[str], folder: Path, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise _failed("pointsman", process, folder)
        time.sleep(0.05)


def _failed(name: str, process: subprocess.Popen[str], folder: Path) -> ServerError:
    code = process.poll()
    how = "is not ready in time" if code is None else f"ended with status {code}"
    said = (folder / "said").read_text()[-2000:].strip()
    return ServerError(f"{name} {how}: {said}")


def _serves(grpc: int, metrics: int) -> bool:
    try:
        _get("127.0.0.1", metrics, "/readyz")
        socket.create_connection(("127.0.0.1", grpc), timeout=1.0).close()
    except (OSError, http.client.HTTPException):
        return False
    return True


def _get(host: str, port: int, path: str) -> str:
    """The body of a 200; anything else raises HTTPException or OSError."""
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"{path} answers {response.status}")
        return response.read().decode()
    finally:
        connection.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
