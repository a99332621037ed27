"""Runs the plugins that have work of their own beside the requests."""

from __future__ import annotations

from typing import final

from attrs import define

from pointsman.kernel.channel import Latest
from pointsman.kernel.supervisor import Child, Crew, supervise
from pointsman.kernel.wiring import Wiring


@final
@define(eq=False)
class PluginServices:
    """A plugin that goes on over a reload is not disturbed; one that left is stopped."""

    wiring: Latest[Wiring]

    async def run(self) -> None:
        version = -1
        async with supervise() as supervisor:
            crew = Crew[int](supervisor)
            while True:
                version, wiring = await self.wiring.newer(version)
                wanted = {
                    id(one.plugin): Child(name=f"plugin {one.name}", run=one.plugin.run)
                    for one in wiring.services
                }
                await crew.become(wanted)
