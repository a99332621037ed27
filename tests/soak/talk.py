"""One play on one stream, and the connections that carry them: faults concern a stream alone."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from attrs import define, field
from tests.bench.connection import Connection
from tests.bench.stream import Stream

from .plays import Play


@define(eq=False)
class Talk:
    """How far a play is."""

    play: Play
    line: Line
    opened: float
    """When, by the monotonic clock."""
    touched: Callable[[Talk], None]
    """Told when there is something to do about this talk."""
    stream: Stream | None = field(default=None, init=False)
    act: int = field(default=0, init=False)
    """The one that is played."""
    heard: float | None = field(default=None, init=False)
    """When the server last said something, or was asked; None while it is our turn."""
    played: bool = field(default=False, init=False)
    """The current act is over."""
    hung_up: bool = field(default=False, init=False)
    """We have half-closed the stream."""
    judged: bool = field(default=False, init=False)
    over: bool = field(default=False, init=False)
    status: str | None = field(default=None, init=False)
    """With which the server has ended the stream."""
    fault: str = field(default="", init=False)
    """What the server did that no play allows."""
    asleep: bool = field(default=False, init=False)
    """Nothing is read."""

    def decided(self, due: float) -> None:
        """No figure is taken of that."""

    def finished(self) -> None:
        self.played = True
        self.touched(self)

    def ended(self, status: str) -> None:
        self.status = status
        self.touched(self)

    def failed(self, fault: str) -> None:
        self.fault = self.fault or fault
        self.touched(self)

    def __str__(self) -> str:
        of = f"{self.play.kind!r}, act {self.act + 1} of {len(self.play.acts)}"
        return f"{of}, {self.stream}" if self.stream else of


@define(eq=False)
class Line(Connection):
    """A connection that goes on when a stream does not go as planned."""

    talks: dict[int, Talk] = field(factory=dict[int, Talk], init=False)
    """By the stream's number, while it is open."""
    awake: float = field(default=0.0, init=False)
    """Until then nothing is read from the socket."""

    def begin(self, talk: Talk) -> None:
        number = self._next
        self.talks[number] = talk
        talk.asleep = talk.play.slow
        talk.stream = self.open(talk.play.acts[0], talk, talk.opened, keep=True)

    def wake(self, talk: Talk) -> None:
        """Let the server go on that waits for this talk's window."""
        talk.asleep = False
        if talk.stream is not None and not talk.over:
            self._acknowledge_on(talk.stream, 0)

    def close(self, talk: Talk) -> None:
        """Nothing of this talk is listened to any more; the stream is reset if it is open."""
        if talk.stream is None:
            return
        if talk.stream.number in self.streams:
            self.reset(talk.stream)
        self.talks.pop(talk.stream.number, None)

    def _acknowledge_on(self, stream: Stream, size: int) -> None:
        if self.talks[stream.number].asleep:
            stream.unacknowledged += size
        else:
            super()._acknowledge_on(stream, size)

    def _replied(self, stream: Stream, replies: int) -> None:
        talk = self.talks[stream.number]
        if replies > stream.awaited:
            if talk.play.judge is not None:
                talk.failed(f"{replies - stream.awaited} replies more than awaited")
            return
        stream.awaited -= replies
        talk.heard = monotonic()
        if stream.awaited == 0:
            stream.backlog = ()  # a refusal may come before all is sent
            self._advance(stream)

    def _ended(self, stream: Stream) -> None:
        status = self._status(stream.number)
        del self.streams[stream.number]
        self.talks[stream.number].ended(status.get("grpc-status", "none"))

    def _reset(self, number: int, code: int) -> None:
        stream = self.streams.pop(number, None)
        if stream is not None:
            self.talks[number].failed(f"the server reset it with code {code}")

    def abort(self) -> None:
        """Drop the connection, as a network does."""
        self.sock.close()
        self.streams.clear()
        self.talks.clear()
