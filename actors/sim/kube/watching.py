"""A watch as a stream of lines: it waits for the store, and for the time to pass."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Final, NoReturn, final

import anyio
import msgspec
from attrs import define, field

from pointsman.kernel.channel import Latest

from .calls import Call
from .cursors import Change, Cursor
from .failures import ApiError, too_old
from .faults import Fault, Faults
from .kinds import Kinds
from .objects import Object

BOOKMARK_EVERY: Final = 60.0  # seconds
LAST_BOOKMARK: Final = 2.0  # seconds before the end
_GARBAGE: Final = b'{"type":"MODIFIED","object":\x00\xff}\n'


class _End(Exception):
    """The watch ends as a watch does whose time is over."""


@final
@define(eq=False)
class Watch:
    """One open watch."""

    call: Call
    cursor: Cursor
    kinds: Kinds
    faults: Faults
    pulse: Latest[int]
    """Changes with the store and with the faults."""
    timeout: float
    """Seconds after which the watch ends."""
    bookmarks: bool
    shown: Callable[[Object], Object]
    """An object as the client wants to see it."""
    _told: int = field(default=0, init=False)
    _epoch: int = field(init=False)
    _ends: float = field(default=math.inf, init=False)
    _due: float = field(default=math.inf, init=False)
    """When the next bookmark is."""

    def __attrs_post_init__(self) -> None:
        self._epoch = self.faults.disconnections

    async def lines(self) -> AsyncIterator[bytes]:
        """The JSON lines of the watch, each as soon as there is something to tell.

        Raises BrokenResourceError for a connection that is to break without an end.
        """
        self._ends = anyio.current_time() + self.timeout
        self._schedule_bookmark()
        try:
            while anyio.current_time() < self._ends:
                seen = self.pulse.version
                await self._strike(None)
                for change in self.cursor.read():
                    line = self._line(change)
                    fault = await self._strike(line)
                    yield line if fault is None else _spoiled(line, fault)
                    if fault is not None and fault.action == "truncate":
                        _break()
                    self._told += 1
                    await self._strike(None)
                if not self._is_served():
                    return
                if self._bookmark_is_due() and (bookmark := self.cursor.bookmark) is not None:
                    yield self._line(bookmark)
                with anyio.move_on_at(min(self._ends, self._due)):
                    await self.pulse.newer(seen)
        except _End:
            return
        except ApiError as error:
            yield _encode({"type": "ERROR", "object": error.status})

    def _line(self, change: Change) -> bytes:
        return _encode({"type": change.type, "object": self.shown(change.object)})

    def _is_served(self) -> bool:
        kind = self.cursor.kind
        return self.kinds.get(kind.group, kind.version, kind.plural) is not None

    async def _strike(self, line: bytes | None) -> Fault | None:
        """Let a fault strike; the one that is returned spoils *line*."""
        self._break_if_disconnected()
        fault = self.faults.of_stream(self.call, self._told, telling=line is not None)
        match fault.action if fault is not None else "":
            case "break":
                _break()
            case "end":
                raise _End
            case "expire":
                raise too_old(self.cursor.revision, self.cursor.log.revision)
            case "silence":
                await self._stay_silent()
            case _:
                pass
        return fault

    async def _stay_silent(self) -> NoReturn:
        """Tell nothing more and do not end, as a server that hangs."""
        while True:
            seen = self.pulse.version
            self._break_if_disconnected()
            await self.pulse.newer(seen)

    def _break_if_disconnected(self) -> None:
        if self._epoch < self.faults.disconnections:
            _break()

    def _bookmark_is_due(self) -> bool:
        if anyio.current_time() < self._due:
            return False
        self._schedule_bookmark()
        return True

    def _schedule_bookmark(self) -> None:
        if not self.bookmarks:
            return
        now, last = anyio.current_time(), self._ends - LAST_BOOKMARK
        self._due = min(now + BOOKMARK_EVERY, last) if now < last else math.inf


def _break() -> NoReturn:
    raise anyio.BrokenResourceError


def _spoiled(line: bytes, fault: Fault) -> bytes:
    return line[: len(line) // 2] if fault.action == "truncate" else _GARBAGE


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value) + b"\n"
