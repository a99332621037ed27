"""The servers that are measured, each as a process that lives as long as its ``with`` block."""

from __future__ import annotations

import http.client
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
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
        return int(get(self.hosts[0], self.port, "/scrapes"))

    def misbehave(self, number: int, fault: str) -> None:
        """Let the server of that number do *fault* to whoever scrapes it; empty: nothing."""
        get(self.hosts[0], self.port, f"/fault/{number}/{fault}")


@frozen
class Pointsman:
    """How the daemon is started."""

    arguments: str = ""
    """Further arguments of ``serve``, as in a shell."""
    profile: Sequence[str] = PROFILE
    """The plugins of its one profile."""
    name: str = field(default="pointsman", init=False)

    @contextmanager
    def start(self, models: Models) -> Generator[Server]:
        """The daemon with *models* as its endpoints file, once it says that it is ready."""
        with TemporaryDirectory() as made:
            folder = Path(made)
            config = _write_config(folder, models, self.profile)
            with daemon(folder, config, shlex.split(self.arguments)) as started:
                yield Server(self.name, started.process.pid, started.grpc)


@frozen
class Daemon:
    """A daemon that runs, with all that can be asked of it."""

    process: subprocess.Popen[str]
    grpc: int
    metrics: int
    said: Path
    """Where its log goes."""

    def page(self, path: str) -> str:
        """What it answers on its port for operators. Raises HTTPException or OSError."""
        return get("127.0.0.1", self.metrics, path, timeout=10.0)


@contextmanager
def daemon(folder: Path, config: Path, arguments: Sequence[str]) -> Generator[Daemon]:
    """A daemon of this checkout, from when it says that it is ready to the end of the block."""
    grpc, health, metrics = _free_ports(3)
    flags = [
        *("--grpc-port", str(grpc)),
        *("--grpc-health-port", str(health)),
        *("--metrics-port", str(metrics)),
        "--secure-serving=false",
        *("--config-file", str(config)),
        *arguments,
    ]
    command = [sys.executable, "-m", "pointsman", "serve", *flags]
    with _process(command, folder, cwd=folder, piped=False) as process:
        _wait_ready(process, folder, lambda: _serves(grpc, metrics))
        yield Daemon(process, grpc, metrics, folder / "said")


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


def endpoints_file(models: Models, numbers: Iterable[int]) -> str:
    """The text of an endpoints file that lists those of *models*."""
    # JSON is YAML too.
    listed = [
        {"name": f"model-{number}", "address": models.hosts[number], "port": str(models.port)}
        for number in numbers
    ]
    return json.dumps({"endpoints": listed})


def _write_config(folder: Path, models: Models, profile: Sequence[str]) -> Path:
    endpoints = folder / "endpoints.yaml"
    endpoints.write_text(endpoints_file(models, range(len(models.hosts))))
    discovery = {"type": "file-discovery", "parameters": {"path": str(endpoints)}}
    config = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [*({"type": name} for name in profile), discovery],
        "schedulingProfiles": [
            {"name": "default", "plugins": [{"pluginRef": name} for name in profile]}
        ],
        "dataLayer": {"discovery": {"pluginRef": "file-discovery"}},
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(config))
    return path


@contextmanager
def background(module: str, *arguments: str) -> Generator[None]:
    """A module of this checkout that is at work when the block begins, and ends with it."""
    with _python(module, *arguments):
        yield


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
        get("127.0.0.1", metrics, "/readyz")
        socket.create_connection(("127.0.0.1", grpc), timeout=1.0).close()
    except (OSError, http.client.HTTPException):
        return False
    return True


def get(host: str, port: int, path: str, *, timeout: float = 1.0) -> str:
    """The body of a 200; anything else raises HTTPException or OSError."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
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
