"""A peer with a backlog has its messages handled before more of it is taken in."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from attrs import define

from pointsman.actors.extproc_server_edge import MUCH
from pointsman.actors.extproc_server_lane import DATA, frame

from .edges import Pair, Wire, message

pytestmark = pytest.mark.long


@define(eq=False)
class Gate(Wire):
    """A wire that can be told to read nothing."""

    reading: bool = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


@pytest.mark.parametrize("much", [True, False])
def test_a_connection_waits_a_turn_after_much_was_read(much: bool) -> None:
    gate = Gate()
    size = MUCH if much else MUCH // 2
    piece = frame(DATA, 0, 1, message(b"x" * 8_000))
    count = -(-size // len(piece))

    async def run() -> None:
        pair = Pair(wire=gate)
        lane = pair.call()
        pair.edge.data_received(piece * count)
        assert gate.reading is not much
        await anyio.lowlevel.checkpoint()
        assert gate.reading
        assert await lane.receive() == [b"x" * 8_000] * count

    anyio.run(run)
