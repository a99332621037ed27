"""What requests leave behind is collected, unless they are alive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import anyio
import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.reaper import Reaper
from pointsman.kernel.channel import Latest
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import make_request, wired
from pointsman.kernel.wiring import Wiring

NOTE = StateKey("note", str)
CONFIG = "plugins: [{type: keeper}]"


class Keeper:
    """A plugin with state; it may be collected after ten seconds."""

    type_name: ClassVar = "keeper"
    state_idle_seconds: ClassVar = 10.0

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        return [0.0] * len(endpoints)


@pytest.fixture
def wiring(nursery: trio.Nursery) -> Latest[Wiring]:
    cell = Latest(wired(CONFIG, Keeper))
    nursery.start_soon(Reaper(cell, every=5.0).run)
    return cell


async def test_state_of_a_lost_request_is_collected_after_the_plugins_threshold(
    wiring: Latest[Wiring], autojump_clock: MockClock
) -> None:
    state = wiring.value.installed["keeper"].state
    request = make_request()
    state.write(request, NOTE, "x")
    request.ended = True  # and nobody dropped what was kept for it
    await anyio.sleep(9)
    assert len(state) == 1
    await anyio.sleep(12)
    assert (len(state), state.reaped) == (0, 1)


async def test_g03_a_request_that_is_silent_for_an_hour_is_never_collected(
    wiring: Latest[Wiring], autojump_clock: MockClock
) -> None:
    state = wiring.value.installed["keeper"].state
    request = make_request()
    state.write(request, NOTE, "x")
    await anyio.sleep(3600)
    assert state.read(request, NOTE) == "x"
    request.end()
    assert len(state) == 0


async def test_state_of_a_plugin_that_was_replaced_is_still_looked_after(
    wiring: Latest[Wiring], autojump_clock: MockClock
) -> None:
    state = wiring.value.installed["keeper"].state
    state.write(make_request(), NOTE, "the request object is gone at once")
    await anyio.sleep(6)
    wiring.set(wired("plugins: []", Keeper))
    await anyio.sleep(30)
    assert len(state) == 0
