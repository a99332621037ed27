"""One play of a script on a connection: what is sent, what is awaited, how it ends."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from attrs import define, evolve, field, frozen

from .wire import Burst, Framing


class LoadError(Exception):
    """The server did not do its part of an exchange; the text says which part."""


class Ending(Enum):
    """What the client does once it has all replies."""

    RESET = "a reset, as Envoy does"
    HALF_CLOSE = "no more messages; wait for the status"
    SERVER = "nothing; wait for the status"
    HOLD = "nothing; the stream stays open"


@frozen
class Script:
    """An exchange as frames, and how its streams end."""

    bursts: tuple[Burst, ...]
    ending: Ending = Ending.RESET

    def ending_by(self, ending: Ending) -> Script:
        return evolve(self, ending=ending)


class Tally(Protocol):
    """Told what becomes of the streams of a connection."""

    def decided(self, due: float) -> None:
        """The first step of a stream that was due at *due* is answered."""

    def finished(self) -> None:
        """A stream has played its whole script."""


@define(eq=False)
class Stream:
    """One play of a script."""

    number: int
    script: Script
    tally: Tally
    due: float
    window: int
    key: bytes
    """The number as it stands in a frame."""
    awaited: int = 0
    """Replies until the next step."""
    step: int = -1
    unacknowledged: int = 0
    """Bytes that came since the last update of the stream's window."""
    backlog: tuple[bytes, ...] = ()
    """DATA payloads that wait for a window."""
    framing: Framing = field(factory=Framing)
    kept: bytearray | None = None

    @property
    def answered(self) -> bool:
        return self.step >= len(self.script.bursts)

    def __str__(self) -> str:
        if self.answered:
            return f"stream {self.number}, which has all its replies"
        at = f"step {self.step + 1} of {len(self.script.bursts)}"
        return f"stream {self.number}, {at}, which awaits {self.awaited} more replies"
