"""Child processes that end with the block that started them (Linux: it knows how to promise that).

The output of a child goes to a file, never to a pipe: nobody has to keep reading for the child to
go on, and the last lines are there when it fails.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import BinaryIO, Final, final

import anyio
import httpx
from attrs import define, frozen

POLL: Final = 0.02  # seconds between two looks at a child that is not ready yet
SHOWN_LINES: Final = 20  # of a failed child's output
BELOW_EPHEMERAL: Final = range(15_000, 32_000)
PR_SET_PDEATHSIG: Final = 1

Ready = re.Pattern[str] | Callable[[], Awaitable[bool]]
"""A pattern to find in the output, or a question to ask until the answer is yes."""


class ProcessError(Exception):
    """Base of what can go wrong with a child process; the text is meant for the user."""


class ChildFailed(ProcessError):
    """A child could not be started, ended too early or was not ready in time."""

    def __init__(self, name: str, argv: Sequence[str], problem: str, output: str = "") -> None:
        super().__init__(name, tuple(argv), problem, output)
        self.name = name
        self.argv = tuple(argv)
        self.problem = problem
        self.output = output

    def __str__(self) -> str:
        lines = self.output.splitlines()[-SHOWN_LINES:] or ["(nothing)"]
        said = "\n".join(f"    {line}" for line in lines)
        return f"{self.name} {self.problem}\n  command: {shlex.join(self.argv)}\n  output:\n{said}"


@frozen
class _Log:
    """Where the output of one child goes."""

    file: BinaryIO
    start: int
    """Offset of the child's first byte: the file may hold the output of earlier ones."""

    def text(self) -> str:
        size = os.fstat(self.file.fileno()).st_size - self.start
        return os.pread(self.file.fileno(), size, self.start).decode(errors="replace")


@final
@define(eq=False)
class Process:
    """A running child, as the block that started it sees it."""

    name: str
    argv: tuple[str, ...]
    _popen: subprocess.Popen[bytes]
    _log: _Log

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; minus the number of the signal that ended it."""
        return self._popen.poll()

    @property
    def output(self) -> str:
        """All that the child wrote to its standard output and error, to be read in its block."""
        return self._log.text()

    def terminate(self) -> None:
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def send(self, signal_number: signal.Signals) -> None:
        """Send a signal; nothing happens if the child is gone."""
        self._popen.send_signal(signal_number)

    async def wait(self) -> int:
        """Wait until the child has ended and return its `returncode`."""
        while (code := self._popen.poll()) is None:
            await _ended(self.pid)
        return code


@asynccontextmanager
async def child(
    name: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    ready: Ready | None = None,
    ready_within: float = 10.0,
    log_to: Path | None = None,
    grace: float = 5.0,
) -> AsyncGenerator[Process]:
    """Run a program for as long as the block runs; the block begins when it is ready.

    The child gets a process group of its own, so Ctrl-C reaches only us and children end in the
    order of the blocks. It dies with the thread that opened the block, however that ends.

    Args:
        env: variables added to our own.
        ready_within: seconds until a child that is not ready counts as failed.
        log_to: file that the output is appended to; without it a temporary one.
        grace: seconds between SIGTERM and SIGKILL at the end of the block.

    Raises:
        ChildFailed: it cannot be started, ended before it was ready, or was not ready in time.
    """
    with _open_log(log_to) as log:
        process = _spawn(name, argv, env or {}, log)
        try:
            if ready is not None:
                await _become_ready(process, ready, ready_within)
            yield process
        finally:
            await _end(process, grace)


def answers(url: str) -> Callable[[], Awaitable[bool]]:
    """Make the question "does a GET of *url* succeed?", for `child(ready=...)`."""

    async def ask() -> bool:
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=1.0) as client:
            try:
                return (await client.get(url)).is_success
            except httpx.TransportError:
                return False

    return ask


def free_ports(count: int, host: str = "127.0.0.1", random: Random | None = None) -> list[int]:
    """Find *count* different TCP ports that nobody listens on.

    They lie below the range of outgoing connections: none of those can take a port before its
    user binds it, or while its user restarts.
    """
    candidates = (random or Random()).sample(BELOW_EPHEMERAL, len(BELOW_EPHEMERAL))
    with ExitStack() as held:
        free = (port for port in candidates if _hold(held, host, port))
        return [next(free) for _ in range(count)]


def _hold(held: ExitStack, host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = held.enter_context(socket.socket(family, socket.SOCK_STREAM))
    try:
        sock.bind((host, port))
    except OSError:
        return False
    return True


@contextmanager
def _open_log(path: Path | None) -> Generator[_Log]:
    with tempfile.TemporaryFile() if path is None else path.open("ab+") as file:
        yield _Log(file, os.fstat(file.fileno()).st_size)


def _spawn(name: str, argv: Sequence[str], env: Mapping[str, str], log: _Log) -> Process:
    try:
        popen = subprocess.Popen(
            argv,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log.file,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_die_with(os.getpid()),
        )
    except OSError as exc:
        raise ChildFailed(name, argv, f"cannot be started: {exc.strerror}") from exc
    return Process(name, tuple(argv), popen, log)


def _die_with(parent: int) -> Callable[[], None]:
    """Make what the forked child runs before its program: ask Linux to be killed with *parent*."""
    prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec little is allowed

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it died before we could ask
            os._exit(1)

    return ask


async def _become_ready(process: Process, ready: Ready, within: float) -> None:
    with anyio.move_on_after(within):
        while process.returncode is None:
            if await _is_ready(process, ready):
                return
            await anyio.sleep(POLL)
    code = process.returncode
    late = f"was not ready within {within:g} s"
    problem = late if code is None else f"ended with status {code} before it was ready"
    raise ChildFailed(process.name, process.argv, problem, process.output)


async def _is_ready(process: Process, ready: Ready) -> bool:
    if isinstance(ready, re.Pattern):
        return ready.search(process.output) is not None
    return await ready()


async def _end(process: Process, grace: float) -> None:
    process.terminate()
    with anyio.move_on_after(grace, shield=True):
        await process.wait()
    process.kill()
    with anyio.CancelScope(shield=True):
        await process.wait()


async def _ended(pid: int) -> None:
    """Wait until a child that nobody has reaped yet has ended."""
    pidfd = os.pidfd_open(pid)
    try:
        await anyio.wait_readable(pidfd)
    finally:
        os.close(pidfd)
