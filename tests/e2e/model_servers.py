"""Model servers that a test holds in its hand: in its own process, with a response it can stop.

They show a picker the metrics of vLLM and never change them, so the best one is known beforehand.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress

import anyio
import h11
from anyio.abc import SocketStream, TaskStatus
from attrs import define, field, frozen

from pointsman.actors.sim.envoy_bootstrap import HostPort

MODEL = "tiny"
JSON = "application/json"
USAGE = {"prompt_tokens": 7, "completion_tokens": 64, "total_tokens": 71}


def _event(**fields: object) -> bytes:
    return f"data: {json.dumps({'model': MODEL, **fields})}\n\n".encode()


EVENTS = tuple(_event(choices=[{"delta": {"content": f"tökén {n} "}}]) for n in range(64))
DONE = b"".join((_event(choices=[], usage=USAGE), b"data: [DONE]\n\n"))
STREAM = b"".join((*EVENTS, DONE))


class ClientGone(Exception):
    """The other side closed its connection."""


@frozen
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@define(eq=False)
class ModelServer:
    """One pod. Streams pause after their first event while the server is held."""

    name: str
    address: HostPort
    waiting: int
    received: list[Received] = field(factory=list[Received], init=False)
    """Everything but scrapes."""
    scrapes: int = field(default=0, init=False)
    running: int = field(default=0, init=False)
    """Chats that have begun and neither ended nor lost their client."""
    _free: anyio.Event = field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.release()

    def hold(self) -> None:
        self._free = anyio.Event()

    def release(self) -> None:
        self._free.set()

    async def serve(self, stream: SocketStream) -> None:
        """Serve one connection until its client leaves."""
        async with stream:
            connection = _Connection(stream)
            try:
                while True:
                    await self._answer(await connection.request(), connection)
            except (ClientGone, h11.RemoteProtocolError):
                return

    async def _answer(self, request: Received, connection: _Connection) -> None:
        if request.path == "/metrics":
            self.scrapes += 1
            return await connection.reply(200, "text/plain; version=0.0.4", self._metrics())
        self.received.append(request)
        if request.path == "/v1/models":
            models = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
            return await connection.reply(200, JSON, models.encode(), pod=self.name)
        if request.path == "/v1/chat/completions":
            return await self._chat(request, connection)
        return await connection.reply(404, JSON, b'{"error": {"code": 404}}', pod=self.name)

    async def _chat(self, request: Received, connection: _Connection) -> None:
        chat = json.loads(request.body)
        self.running += 1
        try:
            if chat.get("stream"):
                await connection.reply_in_chunks("text/event-stream", self._events(), self.name)
            else:
                choice = {"index": 0, "message": chat["messages"][-1]}
                reply = json.dumps({"model": MODEL, "choices": [choice], "usage": USAGE})
                await connection.reply(200, JSON, reply.encode(), pod=self.name)
        finally:
            self.running -= 1

    async def _events(self) -> AsyncGenerator[bytes]:
        yield EVENTS[0]
        await self._free.wait()
        for event in EVENTS[1:]:
            yield event
        yield DONE

    def _metrics(self) -> bytes:
        labels = f'{{engine="0",model_name="{MODEL}"}}'
        values = {
            "vllm:num_requests_waiting": self.waiting,
            "vllm:num_requests_running": 1,
            "vllm:kv_cache_usage_perc": 0.25,
        }
        lines = [f"# TYPE {name} gauge\n{name}{labels} {v:.2f}\n" for name, v in values.items()]
        return "".join(lines).encode()


@define(eq=False)
class _Connection:
    """The server's end of one HTTP/1.1 connection."""

    stream: SocketStream
    _http: h11.Connection = field(factory=lambda: h11.Connection(h11.SERVER), init=False)

    async def request(self) -> Received:
        """Read the next request."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        head = await self._event()
        if not isinstance(head, h11.Request):
            raise ClientGone
        body = bytearray()
        while isinstance(data := await self._event(), h11.Data):
            body += data.data
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Received(head.method.decode(), head.target.decode(), headers, bytes(body))

    async def reply(self, status: int, content_type: str, body: bytes, pod: str = "") -> None:
        length = ("content-length", str(len(body)))
        headers = [("content-type", content_type), ("x-inference-pod", pod), length]
        response = h11.Response(status_code=status, headers=headers)
        await self._send(response, h11.Data(data=body), h11.EndOfMessage())

    async def reply_in_chunks(
        self, content_type: str, chunks: AsyncGenerator[bytes], pod: str
    ) -> None:
        """Send each chunk on its own, noticing at once when the client leaves."""
        headers = [("content-type", content_type), ("x-inference-pod", pod)]
        await self._send(h11.Response(status_code=200, headers=headers))
        async with _ends_with_client(self.stream), aclosing(chunks):
            async for chunk in chunks:
                await self._send(h11.Data(data=chunk))
        await self._send(h11.EndOfMessage())

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await _receive(self.stream))
        assert not isinstance(event, type) or event is h11.PAUSED
        return event

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        with suppress(anyio.BrokenResourceError):  # whoever reads next hears of it
            await self.stream.send(data)


async def _receive(stream: SocketStream) -> bytes:
    try:
        return await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return b""


@asynccontextmanager
async def _ends_with_client(stream: SocketStream) -> AsyncGenerator[None]:
    """Cut the block short, with ClientGone after it, when the client closes its connection."""

    async def watch() -> None:
        await _receive(stream)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        yield
        tasks.cancel_scope.cancel()
        return
    raise ClientGone


@asynccontextmanager
async def serving(*servers: ModelServer) -> AsyncGenerator[None]:
    """Serve from all *servers* for as long as the block runs."""
    async with anyio.create_task_group() as tasks:
        for server in servers:
            await tasks.start(_listen, server)
        yield
        tasks.cancel_scope.cancel()


async def _listen(server: ModelServer, *, task_status: TaskStatus[None]) -> None:
    async with await anyio.create_tcp_listener(
        local_host=server.address.host, local_port=server.address.port
    ) as listener:
        task_status.started()
        await listener.serve(server.serve)
