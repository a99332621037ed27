"""What a conversation holds while it waits: thousands do, for as long as a model thinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from weakref import ref

import anyio
from attrs import define, field
from grpclib.const import Status
from tests.actors.scripts import Desk
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server import ExtProcServer, Listening
from pointsman.actors.figures import Figures
from pointsman.kernel.channel import Latest
from pointsman.proto import ProcessingRequest

from .hosting import LEAN, body, opening


@define(eq=False)
class OneByOne:
    """A proxy that says the next thing when it has an answer, and notes what is still there."""

    messages: list[ProcessingRequest]
    said: list[ref[ProcessingRequest]] = field(factory=list[ref[ProcessingRequest]])
    held: list[int] = field(factory=list[int])
    """Before each message, how many of the earlier ones somebody holds."""

    async def receive(self) -> Sequence[ProcessingRequest]:
        self.held.append(sum(each() is not None for each in self.said))
        if not self.messages:
            return []
        self.said.append(ref(self.messages[0]))
        return [self.messages.pop(0)]

    async def send(self, replies: Iterable[bytes]) -> None: ...
    async def finish(self, status: Status, message: str = "") -> None: ...
    def leave(self) -> None: ...
    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None: ...


async def test_messages_are_let_go_before_the_next_one_is_awaited() -> None:
    desk, link = Desk(), OneByOne([opening(LEAN), body(completion())])
    where = Listening(host=None, port=0)
    server = ExtProcServer(where, Latest(desk.wiring), desk.datastore, Figures(), Random(1))
    await server._converse(link)
    assert link.held == [0, 0, 0]
