"""What a conversation holds while it waits: thousands do, for as long as a model thinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from weakref import ref

import anyio
import pytest
from attrs import define, field
from grpclib.const import Status
from tests.actors.scripts import LIMIT, Desk
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server import ExtProcServer, Listening
from pointsman.actors.figures import Figures
from pointsman.kernel.channel import Latest
from pointsman.proto import ProcessingRequest

from .hosting import LEAN, body, opening

pytestmark = pytest.mark.long


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


def server() -> ExtProcServer:
    desk = Desk()
    where = Listening(host=None, port=0, sessions=desk.settings)
    return ExtProcServer(where, Latest(desk.wiring), desk.datastore, Figures(), Random(1))


async def test_messages_are_let_go_before_the_next_one_is_awaited() -> None:
    link = OneByOne([opening(LEAN), body(completion())])
    await server()._converse(link)
    assert link.held == [0, 0, 0]


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("wrong", [b"[", b"{}", b"x" * (LIMIT + 1)])
async def test_a_body_that_is_refused_is_let_go_at_once(wrong: bytes) -> None:
    """Not with the next full collection, which may be a minute and many large bodies later."""
    link = OneByOne([opening(LEAN), body(wrong)])
    await server()._converse(link)
    assert [each() for each in link.said] == [None, None]
