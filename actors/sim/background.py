"""Load that a server has of its own: clients who ask again as soon as they were answered."""

from __future__ import annotations

from random import Random
from typing import final

from attrs import define, field

from .engine import Engine
from .work import Generation, QueueFull, Work


@final
@define(eq=False)
class Background:
    """Keeps *clients* synthetic requests going: more of them than slots means a queue.

    Their prompts share nothing with anyone's, so all they leave in the prefix cache is less room.
    """

    random: Random
    clients: int = 0
    prompt_tokens: int = 1024
    output_tokens: int = 256
    """On average; every request draws its own, so that they do not end together."""
    _open: set[Generation] = field(factory=set[Generation], init=False, repr=False)

    def keep_up(self, engine: Engine, now: float) -> None:
        """Submit what is missing, cancel what is too much."""
        self._open = {each for each in self._open if each.ended is None}
        while len(self._open) > self.clients:
            engine.cancel(self._open.pop(), now)
        try:
            while len(self._open) < self.clients:
                self._open.add(engine.submit(self._work(), now))
        except QueueFull:
            return  # as many as the server takes is busy enough

    def _work(self) -> Work:
        spread = self.output_tokens // 2
        output = self.random.randint(self.output_tokens - spread, self.output_tokens + spread)
        return Work(prompt_tokens=self.prompt_tokens, output_tokens=output)
