"""The yardstick: a grpc.aio server that answers the bench's exchanges with protobuf's own runtime.

It does what a picker cannot do without (reads the model name, chooses the next of the endpoints in
turn, answers every message) and nothing else: no metrics, no scores, no logs.

    python -m tests.bench.baseline ENDPOINT...        prints "ready PORT" and serves until a signal
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any, Final

import grpc
from attrs import define, field
from grpc import aio

from .checks import DESTINATION, OVERWRITE
from .messages import protos
from .scenarios import CHUNK

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
BUFFERED: Final = 2
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", 10_000),
    ("grpc.so_reuseport", 0),
)

# The classes are made at run time, so no type checker knows the fields of a message.
Message = Any


@define(eq=False)
class Picker:
    """Chooses the endpoints in turn."""

    endpoints: Iterator[str]

    async def process(
        self, requests: AsyncIterator[Message], context: object
    ) -> AsyncIterator[Message]:
        """One ext_proc conversation."""
        conversation = Conversation(self.endpoints)
        async for request in requests:
            for reply in conversation.answer(request):
                yield reply


@define(eq=False)
class Conversation:
    """The replies to the messages of one stream."""

    endpoints: Iterator[str]
    _buffered: bool = field(default=False, init=False)
    _body: list[bytes] = field(factory=list[bytes], init=False)

    def answer(self, request: Message) -> Iterable[Message]:
        """The replies that *request* calls for; none while more of the body is to come."""
        match request.WhichOneof("request"):
            case "request_headers":
                return self._headers(request)
            case "request_body":
                return self._request_body(request.request_body)
            case "response_headers":
                return (_empty("response_headers"),)
            case "response_body":
                part = request.response_body
                return (_streamed("response_body", part.body, end=part.end_of_stream),)
            case trailers:
                return (_empty(trailers),)

    def _headers(self, request: Message) -> Iterable[Message]:
        self._buffered = request.protocol_config.request_body_mode == BUFFERED
        return (_empty("request_headers"),) if self._buffered else ()

    def _request_body(self, part: Message) -> Iterable[Message]:
        self._body.append(part.body)
        if not part.end_of_stream:
            return ()
        body = b"".join(self._body)
        json.loads(body)["model"]
        endpoint = next(self.endpoints)
        if self._buffered:
            return (_decision("request_body", endpoint),)
        return (_decision("request_headers", endpoint), *_echo(body))


def _empty(kind: str) -> Message:
    reply = protos().ProcessingResponse()
    getattr(reply, kind).SetInParent()
    return reply


def _decision(kind: str, endpoint: str) -> Message:
    reply = protos().ProcessingResponse()
    common = getattr(reply, kind).response
    header = common.header_mutation.set_headers.add(append_action=OVERWRITE).header
    header.key, header.raw_value = DESTINATION, endpoint.encode()
    common.clear_route_cache = True
    values = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    values[DESTINATION].string_value = endpoint
    return reply


def _echo(body: bytes) -> Iterable[Message]:
    ends = range(CHUNK, len(body) + CHUNK, CHUNK)
    return (
        _streamed("request_body", body[end - CHUNK : end], end=end >= len(body)) for end in ends
    )


def _streamed(kind: str, body: bytes, *, end: bool) -> Message:
    reply = protos().ProcessingResponse()
    streamed = getattr(reply, kind).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = body, end
    return reply


async def start(endpoints: Sequence[str]) -> tuple[aio.Server, int]:
    """A server on a free port of this machine, and that port."""
    server = aio.server(options=OPTIONS)
    method = grpc.stream_stream_rpc_method_handler(
        Picker(cycle(endpoints)).process,
        request_deserializer=protos().ProcessingRequest.FromString,
        response_serializer=protos().ProcessingResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(SERVICE, {"Process": method})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def main(endpoints: Sequence[str]) -> None:
    server, port = await start(endpoints)
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    print("ready", port, flush=True)
    await stop.wait()
    await server.stop(grace=0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
