"""An edge on a transport that is a list, and the peer that talks to it, which is h2 itself.

The event loop only turns where the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import anyio
from attrs import define, field
from grpclib.config import Configuration
from grpclib.protocol import AbstractHandler, Stream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, Event

from pointsman.actors.extproc_server_edge import EdgeProtocol
from pointsman.actors.extproc_server_lane import Lane
from pointsman.proto import PROCESS

CALL = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PROCESS),
    (":authority", "picker"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]
LIMIT = 1_000_000


def message(data: bytes) -> bytes:
    """A gRPC message."""
    return b"\x00" + len(data).to_bytes(4, "big") + data


@define(eq=False)
class Wire:
    """A transport that keeps what is written."""

    writes: list[bytes] = field(factory=list[bytes])
    closed: bool = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

    def take(self) -> bytes:
        taken = b"".join(self.writes)
        self.writes.clear()
        return taken


@define(eq=False)
class Grpclib(AbstractHandler):
    """Stands for grpclib's own handling: notes which streams come to it."""

    streams: list[Stream] = field(factory=list[Stream])

    def accept(self, stream: Stream, headers: Any, release_stream: Callable[[], None]) -> None:
        self.streams.append(stream)

    def cancel(self, stream: Stream) -> None: ...

    def close(self) -> None: ...


@define(eq=False)
class Pair:
    """An edge and the peer that talks to it."""

    wire: Wire = field(factory=Wire)
    grpclib: Grpclib = field(factory=Grpclib)
    lanes: list[Lane] = field(factory=list[Lane])
    made: list[object] = field(factory=list[object])
    lost: list[object] = field(factory=list[object])
    peer: H2Connection = field(init=False)
    edge: EdgeProtocol = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.peer = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self.edge = EdgeProtocol(
            self.grpclib,
            Configuration().__for_server__(),
            H2Configuration(client_side=False, header_encoding="ascii"),
            self.made.append,
            self.lost.append,
            path=PROCESS,
            open_lane=self.lanes.append,
            message_limit=LIMIT,
        )
        self.edge.connection_made(cast("asyncio.Transport", self.wire))
        self.peer.initiate_connection()
        self.send()

    def send(self, extra: bytes = b"") -> None:
        """Let the edge have what the peer wants to say, and *extra*."""
        self.edge.data_received(self.peer.data_to_send() + extra)

    def call(self, stream: int = 1) -> Lane:
        """Open a stream to the lanes' method."""
        self.peer.send_headers(stream, CALL)
        self.send()
        return self.lanes[-1]

    async def heard(self) -> list[Event]:
        """What the edge has said since, as the peer understands it."""
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        events = self.peer.receive_data(self.wire.take())
        for event in events:
            if isinstance(event, DataReceived):
                size = event.flow_controlled_length
                self.peer.acknowledge_received_data(size or 0, event.stream_id or 0)
        return events


Scenario = Callable[[Pair], Coroutine[Any, Any, None]]


def on_asyncio(scenario: Scenario) -> Callable[[], None]:
    """Run a scenario as a test of its own, on the loop that grpclib needs."""

    def test() -> None:
        async def run() -> None:
            await scenario(Pair())

        anyio.run(run)

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


def data_of(events: list[Event]) -> bytes:
    return b"".join(event.data or b"" for event in events if isinstance(event, DataReceived))
