"""Lets an engine run in real time, or as fast as it can, and tells requests how they do."""

from __future__ import annotations

from typing import final

import anyio
from anyio.lowlevel import checkpoint
from attrs import define, field

from pointsman.kernel.channel import Latest

from .background import Background
from .engine import Engine
from .work import Finished, Generation, Work


@final
@define(eq=False)
class Driver:
    """Advances one engine at *speed* times real time; 0 skips every wait.

    At speed 0 the engine's clock stands still while no request of a client is open: background
    load alone would run for ever without taking any time.
    """

    engine: Engine
    background: Background
    speed: float = 1.0
    _watched: dict[Generation, Latest[None]] = field(
        factory=dict[Generation, Latest[None]], init=False, repr=False
    )
    _changed: anyio.Event = field(factory=anyio.Event, init=False)
    _origin: float | None = field(default=None, init=False)
    """The real time at which the engine's clock was at 0."""

    @property
    def open(self) -> int:
        """Requests of clients that have not ended."""
        return len(self._watched)

    def now(self) -> float:
        """The engine's time, in seconds since the driver was first used."""
        if self.speed == 0:
            return self.engine.now
        if self._origin is None:
            self._origin = anyio.current_time()
        return (anyio.current_time() - self._origin) * self.speed

    def submit(self, work: Work, progress: Latest[None]) -> Generation:
        """Submit to the engine; *progress* is renewed whenever the request got further.

        Raises:
            QueueFull, NeverFits: as `Engine.submit` does.
        """
        generation = self.engine.submit(work, self.now())
        self._watched[generation] = progress
        self._changed.set()
        return generation

    def cancel(self, generation: Generation) -> None:
        """Give a request up; nobody is told, and one that has ended is left alone."""
        if self._watched.pop(generation, None) is not None:
            self.engine.cancel(generation, self.now())
            self._changed.set()

    def set_background(self, clients: int) -> None:
        self.background.clients = clients
        self.background.keep_up(self.engine, self.now())
        self._changed.set()

    async def run(self) -> None:
        self.background.keep_up(self.engine, self.now())
        while True:
            self._advance(await self._next_time())

    def catch_up(self) -> None:
        """Bring the engine to the present, for whoever reads its gauges."""
        self._advance(self.now())

    async def _next_time(self) -> float:
        """Wait until there is something to do; return the engine's time then."""
        self._changed = anyio.Event()
        due = self.engine.next_at()
        if due is None or (self.speed == 0 and not self._watched):
            await self._changed.wait()
            return self.now()
        if self.speed == 0:
            await checkpoint()
            return due
        with anyio.move_on_after((due - self.now()) / self.speed):
            await self._changed.wait()
            return self.now()
        return max(due, self.now())  # rounding must not let the clock stop just short of it

    def _advance(self, now: float) -> None:
        ended = False
        for event in self.engine.advance(now):
            generation = event.generation
            if (progress := self._watched.get(generation)) is not None:
                progress.set(None)
            if isinstance(event, Finished):
                self._watched.pop(generation, None)
                ended = True
        if ended:
            self.background.keep_up(self.engine, self.now())
