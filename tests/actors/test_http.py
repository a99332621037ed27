"""The HTTP server, over real loopback sockets."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import anyio
import pytest
import trio
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup
from attrs import define, field
from trio.testing import MockClock

from pointsman.actors.http import (
    Handler,
    HangUp,
    Limits,
    Request,
    Response,
    json_response,
    serve,
    text_response,
)

from .raw_http import GET, Client, served


async def echo(request: Request) -> Response:
    return json_response(
        {
            "method": request.method,
            "path": request.path,
            "query": dict(request.query),
            "body": request.body.decode(),
            "x": request.headers.get("x-tag", ""),
        }
    )


async def test_a_handler_sees_the_whole_request() -> None:
    async with served(echo) as server, server.client() as client:
        status, body = await client.ask(
            b"POST /a%20b?c=1&d=%2F HTTP/1.1\r\nhost: x\r\nX-Tag: one\r\nX-Tag: two\r\n"
            b"content-length: 5\r\n\r\nhello"
        )
    expected = (
        b'{"method":"POST","path":"/a b","query":{"c":"1","d":"/"},"body":"hello","x":"one, two"}'
    )
    assert (status, body) == (200, expected)


async def test_a_connection_serves_one_request_after_another() -> None:
    async with served(echo) as server, server.client() as client:
        assert [(await client.ask())[0] for _ in range(3)] == [200, 200, 200]


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def path(request: Request) -> Response:
        await anyio.lowlevel.checkpoint()
        return text_response(request.path)

    async with served(path) as server, server.client() as client:
        await client.send(GET + GET.replace(b"/a", b"/b") + GET.replace(b"/a", b"/c"))
        assert [await client.answer() for _ in range(3)] == [
            (200, b"/a"),
            (200, b"/b"),
            (200, b"/c"),
        ]


@pytest.mark.long
async def test_more_can_be_pipelined_than_the_server_reads_ahead() -> None:
    many = 5000  # 130 kB

    async with (
        served(echo) as server,
        server.client() as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.send, GET * many)
        assert [(await client.answer())[0] for _ in range(many)] == [200] * many


async def test_a_chunk_is_sent_as_soon_as_it_is_there() -> None:
    seen = anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        await seen.wait()
        yield b"second"

    async def handler(_request: Request) -> Response:
        return Response(200, chunks())

    async with served(handler) as server, server.client() as client:
        await client.send(GET)
        status, headers = await client.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        assert await client.chunk() == b"first"
        seen.set()
        assert [await client.chunk(), await client.chunk()] == [b"second", b""]
        await client.send(GET)
        assert (await client.head())[0] == 200


async def test_head_is_answered_without_a_body() -> None:
    async with served(echo) as server, server.client() as client:
        await client.send(GET.replace(b"GET", b"HEAD"))
        status, headers = await client.head()
        assert (status, int(headers["content-length"]) > 0) == (200, True)
        assert (await client.ask())[0] == 200


async def test_an_old_client_gets_its_answer_and_the_end_of_the_connection() -> None:
    async with served(echo) as server, server.client() as client:
        assert (await client.ask(b"GET /a HTTP/1.0\r\n\r\n"))[0] == 200
        assert await client.at_end()


async def test_a_client_may_ask_before_it_sends_a_body() -> None:
    async with served(echo) as server, server.client() as client:
        await client.send(
            b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
        )
        assert (await client.head())[0] == 100
        assert (await client.ask(b"hi"))[0] == 200


async def test_a_body_that_is_announced_too_large_is_not_waited_for() -> None:
    async with served(echo, Limits(body=10)) as server, server.client() as client:
        await client.send(
            b"POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n"
        )
        assert await client.answer() == (413, b'{"detail":"Request Entity Too Large"}')
        assert await client.at_end()


async def test_a_body_that_grows_too_large_is_refused() -> None:
    async with served(echo, Limits(body=10)) as server, server.client() as client:
        await client.send(b"POST /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.send(b"8\r\n12345678\r\n" * 2)
        assert (await client.answer())[0] == 413


async def test_a_refusal_reaches_a_client_who_is_still_sending() -> None:
    async with served(echo, Limits(body=10)) as server, server.client() as client:
        await client.send(b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3000000\r\n\r\n")
        await client.send(b"x" * 3_000_000)
        assert (await client.answer())[0] == 413


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\n\r\n", 400),  # no host
        (b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 20_000 + b"\r\n\r\n", 431),
    ],
)
async def test_a_malformed_request_is_refused_and_the_connection_ended(
    data: bytes, status: int
) -> None:
    async with served(echo) as server, server.client() as client:
        assert (await client.ask(data))[0] == status
        assert await client.at_end()


async def test_noise_does_no_harm_to_others() -> None:
    random = Random(7)
    async with served(echo) as server, server.client() as other:
        for _ in range(20):
            async with server.client() as client:
                await client.send(random.randbytes(random.randint(1, 3000)))
                await client.stream.send_eof()
                while not await client.at_end():
                    pass
            assert (await other.ask())[0] == 200


async def test_a_failing_handler_is_logged_once_and_tells_the_client_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(request: Request) -> Response:
        if request.path == "/a":
            raise RuntimeError("secret")
        return text_response("fine")

    async with served(fails) as server, server.client() as client:
        assert await client.ask() == (500, b'{"detail":"Internal Server Error"}')
        assert await client.ask(GET.replace(b"/a", b"/b")) == (200, b"fine")
    assert [(each.levelno, each.message) for each in caplog.records] == [
        (logging.ERROR, "GET /a failed")
    ]


async def test_an_answer_that_breaks_off_does_not_look_complete(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("secret")

    async def handler(_request: Request) -> Response:
        return Response(200, chunks())

    async with served(handler) as server, server.client() as client:
        await client.send(GET)
        await client.head()
        assert await client.chunk() == b"first"
        assert await client.at_end()
    assert [each.message for each in caplog.records] == ["the answer to GET /a broke off"]


async def test_an_answer_that_cannot_be_sent_ends_only_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, b"", (("x-bad", "a\nb"),) if request.path == "/a" else ())

    async with served(handler) as server, server.client() as client, server.client() as other:
        await client.send(GET)
        assert await client.at_end()
        assert await other.ask(GET.replace(b"/a", b"/b")) == (200, b"")
    assert [each.message for each in caplog.records] == ["a connection ended with an error"]


async def test_a_handler_may_hang_up() -> None:
    async def handler(_request: Request) -> Response:
        raise HangUp

    async with served(handler) as server, server.client() as client:
        await client.send(GET)
        assert await client.at_end()


@define(eq=False)
class Waiting:
    """A handler that never answers, and knows when it is stopped."""

    started: anyio.Event = field(factory=anyio.Event)
    stopped: anyio.Event = field(factory=anyio.Event)

    async def answer(self, _request: Request) -> Response:
        await self._wait()
        return Response()

    async def stream(self, _request: Request) -> Response:
        return Response(200, self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        yield b"first"
        await self._wait()

    async def _wait(self) -> None:
        self.started.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.stopped.set()


@pytest.mark.parametrize("name", ["answer", "stream"])
async def test_a_client_who_leaves_stops_the_work_on_the_answer(name: str) -> None:
    waiting = Waiting()
    handler: Handler = getattr(waiting, name)
    async with served(handler) as server:
        async with server.client() as client:
            await client.send(GET)
            await waiting.started.wait()
        await waiting.stopped.wait()


async def test_an_answer_is_done_even_if_no_chunk_was_ever_asked_for() -> None:
    left, done = anyio.Event(), anyio.Event()

    async def chunks() -> AsyncIterator[bytes]:
        raise AssertionError("nobody is there to read it")
        yield b""

    async def handler(_request: Request) -> Response:
        with anyio.CancelScope(shield=True):
            await left.wait()
        return Response(200, chunks(), on_done=done.set)

    async with served(handler) as server:
        async with server.client() as client:
            await client.send(GET)
        left.set()
        await done.wait()


async def test_an_idle_connection_is_closed(autojump_clock: MockClock) -> None:
    async with served(echo, Limits(idle=5)) as server, server.client() as client:
        started = trio.current_time()
        assert await client.at_end()
        assert trio.current_time() - started >= 5


async def test_a_request_that_never_ends_is_not_waited_for(autojump_clock: MockClock) -> None:
    async with served(echo, Limits(idle=5)) as server, server.client() as client:
        await client.send(GET[:-2])
        assert await client.at_end()


async def test_a_long_answer_is_not_idle(autojump_clock: MockClock) -> None:
    async def slow(_request: Request) -> Response:
        await anyio.sleep(8)
        return text_response("late")

    async with served(slow, Limits(idle=5)) as server, server.client() as client:
        assert await client.ask() == (200, b"late")


async def test_a_connection_too_many_is_turned_away() -> None:
    async with served(echo, Limits(connections=1)) as server, server.client() as first:
        assert (await first.ask())[0] == 200
        async with server.client() as second:
            assert (await second.answer())[0] == 503
            assert await second.at_end()
        assert (await first.ask())[0] == 200


async def test_cancelling_ends_the_server_and_its_connections() -> None:
    async with served(echo) as server, server.client() as client:
        assert (await client.ask())[0] == 200
        server.scope.cancel()
        with anyio.CancelScope(shield=True):
            assert await client.at_end()


@define(eq=False)
class Exhausted(Listener[SocketStream]):
    """Cannot accept the first time it is asked, as when the system is out of descriptors."""

    listener: Listener[SocketStream]
    failures: int = 1

    async def serve(
        self, handler: Callable[[SocketStream], Any], task_group: TaskGroup | None = None
    ) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(24, "Too many open files")
        await self.listener.serve(handler, task_group)

    async def aclose(self) -> None:
        await self.listener.aclose()


async def test_running_out_of_descriptors_is_survived(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    real = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = real.extra(SocketAttribute.local_port)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, Exhausted(real), echo)
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            assert (await Client(stream).ask())[0] == 200
        tasks.cancel_scope.cancel()
    assert "Too many open files" in caplog.text


def test_it_is_the_same_on_the_backend_of_production() -> None:
    async def conversation() -> None:
        waiting = Waiting()
        async with served(echo) as server, server.client() as client:
            assert [(await client.ask())[0] for _ in range(3)] == [200, 200, 200]
            assert (await client.ask(b"nonsense\r\n\r\n"))[0] == 400
        async with served(waiting.stream) as server:
            async with server.client() as client:
                await client.send(GET)
                assert (await client.head())[0] == 200
                await waiting.started.wait()
            await waiting.stopped.wait()

    anyio.run(conversation, backend="asyncio")
