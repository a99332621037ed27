"""Reads large bodies in a process of its own, where no pick waits for it.

Reading JSON holds the interpreter's lock from the first byte to the last, so what takes as long
as dozens of picks has to happen in another interpreter. One is started when the first such body
comes, which does not wait for it unless it is very large, and ends some time after the last.
Bodies go there and come back in threads, in which copying is done without the lock.
"""

from __future__ import annotations

import logging
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol, final
from weakref import WeakKeyDictionary

import anyio
from anyio import CapacityLimiter, create_task_group, to_thread
from anyio.abc import TaskGroup
from attrs import define, evolve, field

from pointsman.kernel.errors import Refusal
from pointsman.kernel.installed import where_raised
from pointsman.kernel.model import Parsed
from pointsman.kernel.parsing import Origin
from pointsman.kernel.rewriting import NamePlace

from .conversation import Read
from .reading_wire import Gone, receive, send, unpack

logger = logging.getLogger(__name__)

APART_FROM: Final = 1 << 20
"""Bytes of a body that takes longer to be read than others should wait: about 5 ms."""
MOST: Final = 2  # processes at once; further bodies wait for their turn
KEPT: Final = 300.0  # seconds for which a process without work is kept, at least
SOON: Final = 8 << 20
"""Bytes that are rather read here, which takes up to 40 ms, than wait 0.7 s for a process."""
PATIENCE: Final = 60  # seconds for which a body is waited for; none that may be sent takes one
LOST: Final = (Gone, OSError, pickle.UnpicklingError)
"""What asking a process raises that is not there any more, or out of its mind."""
ARGUMENTS: Final = (sys.executable, "-m", "pointsman.actors.reading_process")


class ReadingFailed(Exception):
    """A parser raised what it must not: its kind and its place."""


class Process(Protocol):
    """What there is to do about a process."""

    def kill(self) -> None: ...
    def wait(self) -> object: ...


@final
@define(eq=False)
class Child:
    """A process that reads, and our end of the line to it."""

    line: socket.socket
    process: Process
    rested: bool = field(default=False, init=False)
    """Nothing was asked of it since the last look."""

    @classmethod
    def start(cls) -> Child:
        """Raises OSError when there can be no process."""
        ours, its = socket.socketpair()
        with its:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE, 0))
            try:
                return cls(ours, subprocess.Popen(ARGUMENTS, stdin=its.fileno()))
            except OSError:
                ours.close()
                raise

    def ask(self, origin: bytes, wanted: Read) -> Any:
        """What it made of a body. Raises Gone, OSError."""
        send(self.line, (origin, b"\x01" if wanted.renaming else b"", wanted.body))
        return unpack(receive(self.line))

    def end(self) -> None:
        """It holds nothing that would be lost."""
        self.line.close()
        self.process.kill()
        self.process.wait()


@final
@define(eq=False)
class BodyReader:
    """Has bodies read elsewhere, as long as it runs."""

    start: Callable[[], Child] = Child.start
    _turn: CapacityLimiter = field(factory=lambda: CapacityLimiter(MOST), init=False)
    _idle: list[Child] = field(factory=list[Child], init=False)
    _origins: WeakKeyDictionary[Origin, bytes | None] = field(
        factory=WeakKeyDictionary[Origin, "bytes | None"], init=False
    )
    """How readers are called there; None for those that only we can have."""
    _failing: bool = field(default=False, init=False)
    _tasks: TaskGroup | None = field(default=None, init=False)
    _starting: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Start processes, and end those that have nothing to do; until cancelled, then all."""
        try:
            async with create_task_group() as self._tasks:
                await self._end_idle()
        finally:
            self._tasks = None
            while self._idle:
                self._idle.pop().end()

    async def _end_idle(self) -> None:
        while True:
            await anyio.sleep(KEPT)
            for child in [child for child in self._idle if child.rested]:
                self._idle.remove(child)
                child.end()
            for child in self._idle:
                child.rested = True

    async def read(self, wanted: Read) -> tuple[Parsed, NamePlace | None]:
        """What is made of a body, and where its model is named, as far as that was asked.

        Raises:
            Refusal: the parser's; 503 when the process was lost on the way.
            ReadingFailed: the parser failed in another way.
        """
        origin = wanted.route.origin
        called = None if origin is None else self._called(origin)
        if origin is None or called is None or self._comes_too_soon(called, wanted):
            return _read_here(wanted)
        try:
            answer = await to_thread.run_sync(self._ask, called, wanted, limiter=self._turn)
        except LOST as exc:
            self._note_failure(exc)
            raise Refusal(503, "the request body could not be read") from None
        if answer is None:
            return _read_here(wanted)
        self._failing = False
        return self._understood(origin, wanted, answer)

    def _comes_too_soon(self, called: bytes, wanted: Read) -> bool:
        """Whether there is no process yet, and the body should not wait for one to start."""
        if self._idle or self._tasks is None or len(wanted.body) > SOON:
            return False
        if not self._starting and self._turn.available_tokens:
            self._starting = True
            self._tasks.start_soon(self._warm_up, called, evolve(wanted, body=b""))
        return self._starting

    async def _warm_up(self, called: bytes, nothing: Read) -> None:
        """Have a process that has read once: then all it needs is there."""
        try:
            await to_thread.run_sync(self._ask, called, nothing, limiter=self._turn)
        except LOST as exc:
            self._note_failure(exc)
        finally:
            self._starting = False

    def _called(self, origin: Origin) -> bytes | None:
        if origin not in self._origins:
            names = tuple(key.name for key in origin.wanted)
            try:
                called = pickle.dumps((origin.parser, origin.claim, names))
            except Exception as exc:  # whatever a parser of somebody else's holds
                self._keep_here(origin, where_raised(exc))
            else:
                self._origins[origin] = called
        return self._origins[origin]

    def _keep_here(self, origin: Origin, reason: str) -> None:
        self._origins[origin] = None
        kind = type(origin.parser).__name__
        logger.warning("large bodies of %s are read between picks: %s", kind, reason)

    def _ask(self, called: bytes, wanted: Read) -> Any:
        """In a thread. None when no process can be started."""
        try:
            child = self._idle.pop() if self._idle else self.start()
        except OSError as exc:
            self._note_failure(exc)
            return None
        try:
            answer = child.ask(called, wanted)
        except BaseException:
            child.end()
            raise
        child.rested = False
        self._idle.append(child)
        return answer

    def _understood(
        self, origin: Origin, wanted: Read, answer: tuple[Any, ...]
    ) -> tuple[Parsed, NamePlace | None]:
        match answer:
            case ("read", model, values, place):
                keys = {key.name: key for key in origin.parser.produces}
                return Parsed(model, {keys[name]: value for name, value in values.items()}), place
            case ("refused", status, message, reason, retry_after):
                raise Refusal(status, message, reason=reason, retry_after=retry_after)
            case ("unknown", reason):
                self._keep_here(origin, reason)
                return _read_here(wanted)
            case _:
                raise ReadingFailed(*answer[1:])

    def _note_failure(self, exc: Exception) -> None:
        """Once, until it works again."""
        level = logging.DEBUG if self._failing else logging.WARNING
        self._failing = True
        logger.log(level, "the process that reads large bodies fails: %s", type(exc).__name__)


def _read_here(wanted: Read) -> tuple[Parsed, None]:
    if wanted.route.read is None:
        raise AssertionError("a body is only held when somebody reads it")
    return wanted.route.read(bytes(wanted.body)), None
