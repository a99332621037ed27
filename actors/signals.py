"""Watches for signals that cannot work: said in the log once, and shown while they last.

A scorer whose data never come looks like one that finds everybody equal. So what no endpoint
reports is said for all plugins that read it, and plugins say themselves what else they miss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final, final

import anyio
from attrs import define, field, frozen

from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import Snapshot
from pointsman.kernel.model import FRESHNESS, Freshness
from pointsman.kernel.plugin import Role
from pointsman.kernel.wiring import Wiring

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 5.0  # seconds


@final
@frozen
class Dead:
    """A signal that cannot work, and whom that concerns."""

    plugin: str
    signal: str


@final
@define(eq=False)
class Signals:
    """Looks from time to time, beside the requests."""

    wiring: Latest[Wiring]
    snapshot: Callable[[], Snapshot]
    every: float = LOOK_EVERY
    dead: Mapping[Dead, str] = field(factory=dict[Dead, str], init=False)
    """What is dead now, with the reason."""

    async def run(self) -> None:
        while True:
            await anyio.sleep(self.every)
            self.look()

    def look(self) -> None:
        """Find out what is dead now, and say what changed."""
        found = dict(self._find())
        for dead in found.keys() - self.dead.keys():
            logger.warning("plugin %s: no %s: %s", dead.plugin, dead.signal, found[dead])
        for dead in self.dead.keys() - found.keys():
            logger.info("plugin %s: %s is there", dead.plugin, dead.signal)
        self.dead = found

    def _find(self) -> Iterator[tuple[Dead, str]]:
        wiring = self.wiring.value
        missing = _reported_by_nobody(wiring, self.snapshot())
        for edge in wiring.plan.edges:
            if edge.key in missing:
                yield Dead(edge.consumer, edge.key), "no endpoint reports it"
        for name, installed in wiring.installed.items():
            tell = getattr(installed.plugin, "dead_signals", None)
            if tell is None:
                continue
            try:
                told: Mapping[str, str] = dict(tell())
            except Exception as exc:
                installed.failed(Role.REPORTER, exc)
                continue
            for signal, reason in told.items():
                yield Dead(name, signal), reason


def _reported_by_nobody(wiring: Wiring, snapshot: Snapshot) -> frozenset[str]:
    """What is asked of endpoints and missing in the reports of all that do report."""
    freshness = snapshot.columns.get(FRESHNESS.name, ())
    fresh = [row for row, one in enumerate(freshness) if one is Freshness.FRESH]
    if not fresh:
        return frozenset()
    return frozenset(
        name
        for name in wiring.processing.endpoint_values & snapshot.columns.keys()
        if all(snapshot.columns[name][row] is None for row in fresh)
    )
