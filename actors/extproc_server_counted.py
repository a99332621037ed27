"""Streams that are counted by how they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final, final

import anyio
from attrs import define, field
from grpclib.const import Status

from pointsman.proto import ProcessingRequest

from .extproc_server_lane import Lane
from .stream_figures import StreamFigures

if TYPE_CHECKING:
    from .extproc_server import Link

CANCELED: Final = "Canceled"
NAMES: Final = {
    Status.OK: "OK",
    Status.INVALID_ARGUMENT: "InvalidArgument",
    Status.INTERNAL: "Internal",
}
"""In the spelling of Go, as in the reference system."""


@final
@define(eq=False)
class CountedLink:
    """A link that is told when its handler is done with it."""

    link: Link
    figures: StreamFigures
    lane: Lane | None
    """The link's, if it has one."""
    _code: str = field(default=CANCELED, init=False)
    """What it is unless it is finished: the handler was cancelled."""
    _since: float = field(factory=perf_counter, init=False)

    async def receive(self) -> Sequence[ProcessingRequest]:
        return await self.link.receive()

    async def send(self, replies: Iterable[bytes]) -> None:
        await self.link.send(replies)

    async def finish(self, status: Status, message: str = "") -> None:
        # Without a lane, the end of a stream would have cancelled the handler.
        if self.lane is None or not self.lane.closed:
            self._code = NAMES.get(status, "Unknown")
        await self.link.finish(status, message)

    def leave(self) -> None:
        self._code = NAMES[Status.OK]
        self.link.leave()

    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None:
        self.link.cancel_on_close(scope)

    def ended(self) -> None:
        self.figures.ended(self._code, perf_counter() - self._since)
