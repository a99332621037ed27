"""R-05: a plugin that takes its time over a response holds up no piece of it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from random import Random
from typing import Any, ClassVar

import anyio
import pytest
from attrs import define
from grpclib.const import Status
from tests.actors.scripts import Desk, wired
from tests.actors.scripts import body as completion

from pointsman.actors.extproc_server import ExtProcServer, Listening
from pointsman.actors.figures import Figures
from pointsman.kernel.channel import Latest
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import EndCause, RequestEnd
from pointsman.proto import ProcessingRequest, ProcessingResponse, decode

from .hosting import PATIENCE, Host, body, grpc, hosted, opening, response_body, response_headers

pytestmark = pytest.mark.long

CONFIG = "plugins: [{type: thorough}]"


class Thorough:
    """Does not let go of a piece, or of the end, before the client has it."""

    type_name: ClassVar = "thorough"
    saw: ClassVar[list[object]] = []
    allowed: ClassVar = threading.Semaphore(0)

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None:
        self.saw.append(chunk)
        assert self.allowed.acquire(timeout=PATIENCE / 2)

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        self.saw.append(end.cause)
        assert self.allowed.acquire(timeout=PATIENCE / 2)


@pytest.fixture(params=["fast", "plain"])
def host(request: pytest.FixtureRequest) -> Generator[Host]:
    Thorough.saw.clear()
    Thorough.allowed = threading.Semaphore(0)
    with hosted(Desk(wired(CONFIG, Thorough)), plain=request.param == "plain") as running:
        yield running
        Thorough.allowed.release(100)


def piece(reply: ProcessingResponse) -> bytes:
    answer: Any = reply.response_body
    sent: bytes = answer.response.body_mutation.streamed_response.body
    return sent


def test_r_05_each_piece_is_with_the_client_before_a_plugin_has_done_with_it(host: Host) -> None:
    talk = host.conversation()
    talk.say(opening(), body(completion()))
    talk.hear(2)
    talk.say(response_headers())
    talk.hear()
    pieces = [b"%d" % number for number in range(20)]
    for data in pieces:
        talk.say(response_body(data))
        assert piece(*talk.hear()) == data
        Thorough.allowed.release()
    talk.say(response_body(b"end", end=True))
    assert [piece(reply) for reply in talk.rest()] == [b"end"]
    assert talk.code is grpc.StatusCode.OK
    Thorough.allowed.release(2)
    host.until_open(0)
    assert Thorough.saw == [*pieces, b"end", EndCause.NATURAL]
    assert host.desk.wiring.installed["thorough"].failures == 0


@define(eq=False)
class Batches:
    """A proxy that says several things at a time; it breaks down when its words have run out."""

    batches: list[list[ProcessingRequest]]
    heard: list[object]
    breaks: bool = False

    async def receive(self) -> Sequence[ProcessingRequest]:
        if not self.batches and self.breaks:
            raise ConnectionError
        return self.batches.pop(0) if self.batches else []

    async def send(self, replies: Iterable[bytes]) -> None:
        answers = [decode(ProcessingResponse, reply) for reply in replies]
        self.heard += [piece(answer) for answer in answers if answer.response_body]
        if self.breaks and not self.batches:
            raise ConnectionError

    async def finish(self, status: Status, message: str = "") -> None:
        self.heard.append(status)

    def leave(self) -> None: ...
    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None: ...


class Noting:
    """Notes the pieces among what the proxy has heard."""

    type_name: ClassVar = "thorough"
    heard: ClassVar[list[object]] = []

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None:
        self.heard.append(f"saw {chunk.decode()}")

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        self.heard.append(end.cause)


ONE, TWO, THREE = (response_body(data) for data in (b"1", b"2", b"3"))
REQUEST = [opening(), body(completion()), response_headers()]


async def heard(*batches: list[ProcessingRequest], breaks: bool = False) -> list[object]:
    """What was sent and what was seen, in its order."""
    Noting.heard.clear()
    desk = Desk(wired(CONFIG, Noting))
    where = Listening(host=None, port=0)
    server = ExtProcServer(where, Latest(desk.wiring), desk.datastore, Figures(), Random(1))
    await server._converse(Batches([[*REQUEST], *batches], Noting.heard, breaks))
    return Noting.heard


async def test_r_05_what_came_together_is_sent_together_before_it_is_seen() -> None:
    told = await heard([ONE, TWO], [THREE])
    assert told[:6] == [b"1", b"2", "saw 1", "saw 2", b"3", "saw 3"]
    assert told[6:] == [Status.OK, EndCause.CLIENT_DISCONNECT]


async def test_r_05_the_end_is_sent_before_the_last_piece_is_seen() -> None:
    told = await heard([ONE, response_body(b"2", end=True)])
    assert told == [b"1", b"2", Status.OK, "saw 1", "saw 2", EndCause.NATURAL]


async def test_r_05_a_piece_that_could_not_be_sent_is_seen_once_all_the_same() -> None:
    told = await heard([ONE], [TWO, THREE], breaks=True)
    assert [one for one in told if isinstance(one, str)] == ["saw 1", "saw 2", "saw 3"]
    assert told[-1] is EndCause.ERROR
