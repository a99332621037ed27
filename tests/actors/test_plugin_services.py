"""Plugins with work of their own run, are restarted, survive reloads, and are stopped."""

from __future__ import annotations

from typing import ClassVar

import anyio
import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.plugin_services import PluginServices
from pointsman.kernel.channel import Latest
from pointsman.kernel.config import read_config
from pointsman.kernel.errors import RoleError
from pointsman.kernel.plugin import Role, roles_of
from pointsman.kernel.testing import surroundings, wired
from pointsman.kernel.wiring import wire


class Worker:
    """Counts its starts and ends; crashes when it is told to."""

    type_name: ClassVar = "worker"

    def __init__(self) -> None:
        self.starts = 0
        self.ends = 0
        self.trouble = anyio.Event()

    async def run(self) -> None:
        self.starts += 1
        try:
            await self.trouble.wait()
            self.trouble = anyio.Event()
            raise RuntimeError("trouble")
        finally:
            self.ends += 1


CONFIG = "plugins: [{type: worker}]"


async def test_it_runs_and_is_started_again_after_a_crash(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    wiring = Latest(wired(CONFIG, Worker))
    worker = wiring.value.installed["worker"].plugin
    nursery.start_soon(PluginServices(wiring).run)
    await anyio.sleep(1.5)
    assert (worker.starts, worker.ends) == (1, 0)
    worker.trouble.set()
    await anyio.sleep(3)
    assert (worker.starts, worker.ends) == (2, 1)


async def test_a_reload_disturbs_only_who_leaves(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    around = surroundings(Worker)
    two = "plugins: [{type: worker}, {type: worker, name: other}]"
    cell = Latest(wire(read_config(two, "test"), around))
    staying, leaving = (cell.value.installed[name].plugin for name in ("worker", "other"))
    nursery.start_soon(PluginServices(cell).run)
    await anyio.sleep(1.5)
    cell.set(wire(read_config(CONFIG, "test"), around, cell.value))
    await anyio.sleep(1.5)
    assert (staying.starts, staying.ends) == (1, 0)
    assert (leaving.starts, leaving.ends) == (1, 1)


def test_a_service_is_async() -> None:
    def run(self: object) -> None: ...

    with pytest.raises(RoleError, match="must be async"):
        roles_of(type("Now", (), {"run": run}), "now")
    assert roles_of(Worker, "worker") == {Role.SERVICE}
