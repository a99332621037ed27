"""Collects what requests left behind that ended without saying so.

Live requests are never touched, however long they are silent; what is found here is a fault of
ours, so it is counted and said.
"""

from __future__ import annotations

import logging
from typing import Final, final

import anyio
from attrs import define, field

from pointsman.kernel.channel import Latest
from pointsman.kernel.state import PluginState
from pointsman.kernel.wiring import Wiring

logger = logging.getLogger(__name__)

SWEEP_EVERY: Final = 60.0  # seconds


@final
@define(eq=False)
class Reaper:
    """Sweeps every plugin's state, also of plugins that a reload has replaced."""

    wiring: Latest[Wiring]
    every: float = SWEEP_EVERY
    _states: dict[int, PluginState] = field(factory=dict[int, PluginState], init=False)

    async def run(self) -> None:
        while True:
            await anyio.sleep(self.every)
            self.sweep(anyio.current_time())

    def sweep(self, now: float) -> int:
        """Look once; how many requests' state was collected."""
        current = {id(one.state): one.state for one in self.wiring.value.installed.values()}
        retired = {number: state for number, state in self._states.items() if len(state)}
        self._states = {**retired, **current}
        collected = 0
        for state in self._states.values():
            found = state.sweep(now)
            collected += found
            if found:
                logger.warning("plugin %s: state of %d lost requests", state.plugin, found)
        return collected
