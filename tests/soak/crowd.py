"""The clients: so many streams open at a time, each at another point of another play.

One thread, no task per stream: an agenda says what is due when, and what the server says comes
in by the connections. Every answer is judged when its play is over.
"""

from __future__ import annotations

import heapq
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import count
from random import Random
from time import monotonic
from typing import Final

from attrs import define, field
from tests.bench import wire
from tests.bench.checks import WrongReplyError
from tests.bench.connection import dial, introduce
from tests.bench.stream import Ending, LoadError

from .plays import Play
from .talk import Line, Talk

LINES: Final = 6  # connections
PATIENCE: Final = 20.0  # seconds within which the server has to say something
CHECK: Final = 0.5  # seconds from one look for silence to the next
LAG: Final = 5.0  # seconds in which a change of the endpoints may reach the daemon
AT_ONCE: Final = 10  # streams that are opened between two looks at the sockets, at most
TURN: Final = 0.05  # seconds until the next look at the agenda, at most
NAP: Final = 2.0  # seconds for which a slow reader reads nothing
SHORT: Final = 0.2  # seconds between two parts of a response, at most
SHOWN: Final = 20  # wrong answers that are told in full


@define(eq=False)
class Crowd:
    """Keeps *target* streams open on the daemon at *port*."""

    port: int
    plays: Iterator[Play]
    random: Random
    endpoints: Callable[[float], Collection[str]]
    """All that there were since some moment of the monotonic clock."""
    target: int
    hold: float
    """Seconds for which a stream waits in the middle of a play, on the average."""
    rate: float
    """Streams that are opened in a second, at most."""
    lines: list[Line] = field(factory=list[Line], init=False)
    done: Counter[str] = field(factory=Counter[str], init=False)
    """Plays that went right, by kind."""
    dropped: int = field(default=0, init=False)
    """Streams that were open when we dropped their connection."""
    wrong: list[str] = field(factory=list[str], init=False)
    faults: Counter[str] = field(factory=Counter[str], init=False)
    """Wrong answers by kind of play."""
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(
        factory=list[tuple[float, int, Callable[[], None]]], init=False
    )
    _order: Iterator[int] = field(factory=count, init=False)
    _touched: list[Talk] = field(factory=list[Talk], init=False)
    _next_check: float = field(default=0.0, init=False)
    _next_open: float = field(default=0.0, init=False)

    @property
    def open(self) -> int:
        return sum(len(line.talks) for line in self.lines)

    def turn(self) -> None:
        """Do what is due, open what is missing, and take in what came."""
        now = monotonic()
        self._keep_connected()
        while self._agenda and self._agenda[0][0] <= now:
            heapq.heappop(self._agenda)[2]()
        self._open(now)
        self._exchange(now)
        self._look_at_touched()
        if now >= self._next_check:
            self._next_check = now + CHECK
            self._look_for_silence(now)

    def end_all(self) -> None:
        """Reset whatever is open; nothing is opened any more."""
        self.target = 0
        self._agenda.clear()
        for line in self.lines:
            for talk in tuple(line.talks.values()):
                self._close(talk)

    def close(self) -> None:
        for line in self.lines:
            line.abort()

    # -- what a network does ------------------------------------------------------------------

    def mishap(self) -> None:
        """Something goes wrong with a connection."""
        self.random.choice([self.drop_a_line, self.fall_asleep, self.talk_nonsense])()

    def drop_a_line(self) -> None:
        """Lose a connection, with a reset or without."""
        line = self.random.choice(self.lines)
        if self.random.random() < 0.5:
            linger = struct.pack("ii", 1, 0)
            line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._forget(line)

    def fall_asleep(self) -> None:
        """Read nothing from one connection for a while."""
        self.random.choice(self.lines).awake = monotonic() + self.random.uniform(0.1, NAP)

    def talk_nonsense(self) -> None:
        """Connect and say what is no HTTP/2, with a greeting or without."""
        greeting = wire.PREFACE if self.random.random() < 0.5 else b""
        try:
            with dial(self.port) as sock:
                sock.sendall(greeting + self.random.randbytes(self.random.randint(1, 400)))
        except OSError:
            pass  # it may hang up before it has heard all

    # -- streams ------------------------------------------------------------------------------

    def _open(self, now: float) -> None:
        """Open what is missing, at the rate that is allowed."""
        self._next_open = max(self._next_open, now - AT_ONCE / self.rate)
        missing = self.target - self.open
        while missing > 0 and self._next_open <= now:
            self._next_open += 1 / self.rate
            self._begin(now)
            missing -= 1

    def _begin(self, now: float) -> None:
        play = next(self.plays)
        line = min(self.lines, key=lambda each: len(each.talks))
        talk = Talk(play, line, now, self._touched.append)
        talk.heard = now
        line.begin(talk)
        if play.slow:
            self._later(NAP, partial(line.wake, talk))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (monotonic() + seconds, next(self._order), action))

    def _look_at_touched(self) -> None:
        while self._touched:
            talk = self._touched.pop()
            if not talk.over:
                self._look_at(talk)

    def _look_at(self, talk: Talk) -> None:
        """Something happened to *talk*: what follows?"""
        if talk.fault:
            self._fail(talk, talk.fault)
        elif talk.status is not None:
            self._server_ended(talk, talk.status)
        elif talk.played:
            talk.played = False
            self._go_on(talk)

    def _go_on(self, talk: Talk) -> None:
        """An act is over: pause, and play the next one, or end."""
        last = talk.act == len(talk.play.acts) - 1
        if last and not self._judge(talk):
            return
        talk.heard = None
        pause = self._pause(talk)
        if not last:
            self._later(pause, partial(self._next_act, talk))
        elif talk.play.ending is Ending.SERVER:
            talk.heard = monotonic()
        else:
            self._later(pause, partial(self._end, talk))

    def _pause(self, talk: Talk) -> float:
        if talk.act == talk.play.held:
            return min(self.random.expovariate(1 / self.hold), 4 * self.hold)
        return self.random.choice([0.0, self.random.uniform(0.0, SHORT)])

    def _next_act(self, talk: Talk) -> None:
        if talk.over or talk.stream is None:
            return
        talk.act += 1
        talk.heard = monotonic()
        talk.line.resume(talk.stream, talk.play.acts[talk.act])

    def _end(self, talk: Talk) -> None:
        if talk.over or talk.stream is None:
            return
        if talk.play.ending is Ending.HALF_CLOSE:
            talk.hung_up = True
            talk.heard = monotonic()
            talk.line.half_close(talk.stream)
        else:
            self._succeed(talk)

    def _server_ended(self, talk: Talk, status: str) -> None:
        play = talk.play
        last = talk.act == len(play.acts) - 1
        due = talk.hung_up or play.ending is Ending.SERVER
        if play.judge is None:
            self._succeed(talk)
        elif not (last and due and status == play.status):
            self._fail(talk, f"the server ended it with status {status}")
        elif self._judge(talk):
            self._succeed(talk)

    # -- answers ------------------------------------------------------------------------------

    def _judge(self, talk: Talk) -> bool:
        """Whether all that was said so far is right; what is not, ends the talk."""
        judge, stream = talk.play.judge, talk.stream
        if talk.judged or judge is None or stream is None:
            return True
        talk.judged = True
        try:
            judge(wire.messages(stream.kept or b""), self.endpoints(talk.opened - LAG))
        except (WrongReplyError, ValueError, LookupError) as error:
            self._fail(talk, f"{type(error).__name__}: {error}")
            return False
        stream.kept = bytearray()
        return True

    def _look_for_silence(self, now: float) -> None:
        for line in self.lines:
            for talk in tuple(line.talks.values()):
                if talk.heard is not None and talk.heard < now - PATIENCE:
                    room = f"with room for {line.window:,} bytes on the connection"
                    self._fail(talk, f"nothing came for {PATIENCE:.0f} s, {room}")

    def _succeed(self, talk: Talk) -> None:
        self.done[talk.play.kind] += 1
        self._close(talk)

    def _fail(self, talk: Talk, why: str) -> None:
        self._note(talk.play.kind, f"{talk}: {why}")
        self._close(talk)

    def _note(self, kind: str, text: str) -> None:
        self.faults[kind] += 1
        if len(self.wrong) < SHOWN:
            self.wrong.append(text)

    def _close(self, talk: Talk) -> None:
        talk.over = True
        talk.line.close(talk)

    # -- connections --------------------------------------------------------------------------

    def _keep_connected(self) -> None:
        while self.target and len(self.lines) < LINES:
            line = Line(dial(self.port))
            introduce(line)
            self.lines.append(line)

    def _exchange(self, now: float) -> None:
        """Send and receive, on every connection that is awake."""
        for line in tuple(self.lines):
            self._try(line, line.flush)
        awake = [line for line in self.lines if line.awake <= now]
        unsent = [line for line in self.lines if line.unsent]
        readable, _, _ = select.select(awake, unsent, [], self._wait(now))
        for line in readable:
            self._try(line, line.receive)

    def _wait(self, now: float) -> float:
        due = self._agenda[0][0] if self._agenda else now + TURN
        if self.open < self.target:
            due = min(due, self._next_open)
        return min(TURN, max(0.0, due - now))

    def _try(self, line: Line, step: Callable[[], None]) -> None:
        try:
            step()
        except LoadError as error:
            self._note("connection", str(error))
            self._forget(line)

    def _forget(self, line: Line) -> None:
        for talk in line.talks.values():
            talk.over = True
        self.dropped += len(line.talks)
        self.lines.remove(line)
        line.abort()
