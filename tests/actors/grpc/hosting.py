"""A server of ours on asyncio in a thread, and gRPC's own client beside it.

grpclib needs asyncio, so these few tests are not on trio; they wait for events, never for time.
"""

from __future__ import annotations

import queue
import ssl
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from random import Random
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from attrs import define, field
from tests.actors.scripts import BASE, Desk

from pointsman.actors.conversation import SessionSettings
from pointsman.actors.extproc_server import ExtProcServer, Listening
from pointsman.actors.figures import Figures
from pointsman.actors.reading import APART_FROM
from pointsman.actors.sim.processes import free_ports
from pointsman.kernel.channel import Latest
from pointsman.proto import (
    PROCESS,
    BodySendMode,
    HeaderMap,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
    decode,
    encode,
)

grpc: Any = import_module("grpc")
PATIENCE = 10.0  # seconds until a test that waits has failed


LEAN = ProtocolConfiguration(request_body_mode=BodySendMode.BUFFERED)
"""Of a proxy that shows nothing of the response."""


def opening(modes: ProtocolConfiguration | None = None, /, **more: str) -> ProcessingRequest:
    fields = {**BASE, **more}
    listed = [HeaderValue(key=k, raw_value=v.encode()) for k, v in fields.items()]
    headers = HttpHeaders(headers=HeaderMap(headers=listed))
    return ProcessingRequest(request_headers=headers, protocol_config=modes)


def body(data: bytes, *, end: bool = True) -> ProcessingRequest:
    return ProcessingRequest(request_body=HttpBody(body=data, end_of_stream=end))


def response_headers() -> ProcessingRequest:
    status = HeaderValue(key=":status", raw_value=b"200")
    return ProcessingRequest(response_headers=HttpHeaders(headers=HeaderMap(headers=[status])))


def response_body(data: bytes, *, end: bool = False) -> ProcessingRequest:
    return ProcessingRequest(response_body=HttpBody(body=data, end_of_stream=end))


@define(eq=False)
class Conversation:
    """One ext_proc stream as gRPC's own client sees it."""

    channel: Any
    _outbox: queue.SimpleQueue[ProcessingRequest | None] = field(
        factory=queue.SimpleQueue[ProcessingRequest | None], init=False
    )
    call: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        process = self.channel.stream_stream(
            PROCESS, request_serializer=encode, response_deserializer=_response
        )
        self.call = process(self._requests(), timeout=PATIENCE)

    def _requests(self) -> Iterator[ProcessingRequest]:
        return iter(self._outbox.get, None)

    def say(self, *messages: ProcessingRequest) -> None:
        for message in messages:
            self._outbox.put(message)

    def hang_up(self) -> None:
        """End our side of the stream."""
        self._outbox.put(None)

    def hear(self, count: int = 1) -> list[ProcessingResponse]:
        return [next(self.call) for _ in range(count)]

    def rest(self) -> list[ProcessingResponse]:
        """Everything until the server ends the stream."""
        return list(self.call)

    @property
    def code(self) -> Any:
        return self.call.code()


def _response(data: bytes) -> ProcessingResponse:
    return decode(ProcessingResponse, data)


@define(eq=False)
class Host:
    """A running server."""

    server: ExtProcServer
    desk: Desk
    portal: BlockingPortal
    port: int
    channel: Any

    def conversation(self) -> Conversation:
        return Conversation(self.channel)

    def until_open(self, streams: int) -> None:
        """Wait until that many streams are open."""
        self.portal.call(_until, self.server.open_streams, streams)


async def _until(open_streams: Latest[int], streams: int) -> None:
    with anyio.fail_after(PATIENCE):
        await open_streams.until(streams)


@contextmanager
def hosted(
    desk: Desk,
    *,
    plain: bool = False,
    body_limit: int = 64 << 20,
    read_apart_from: int = APART_FROM,
    response_figures: bool = True,
    options: Iterable[Any] = (),
    tls: ssl.SSLContext | None = None,
) -> Generator[Host]:
    """Serve *desk*'s pool on loopback."""
    (port,) = free_ports(1)
    listening = Listening(
        host="127.0.0.1",
        port=port,
        tls=tls,
        plain=plain,
        sessions=SessionSettings(body_limit=body_limit, read_apart_from=read_apart_from),
        response_figures=response_figures,
    )
    server = ExtProcServer(listening, Latest(desk.wiring), desk.datastore, Figures(), Random(1))
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with start_blocking_portal("asyncio") as portal:
        serving, _ = portal.start_task(server.run)
        reading = portal.start_task_soon(server.reader.run)
        try:
            target = f"127.0.0.1:{port}"
            with grpc.insecure_channel(target, options=[*sizes, *options]) as channel:
                yield Host(server, desk, portal, port, channel)
        finally:
            serving.cancel()
            reading.cancel()
