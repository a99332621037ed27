"""Bodies that are read in a process of their own."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
from collections.abc import Callable
from typing import Any, ClassVar, Final

import anyio
import pytest
import trio
import trio.lowlevel
from anyio import to_thread
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.parsers.grpc_messages import GenerateRequest, TokenizedInput
from tests.plugins.parsers.reading import ALL, json_of
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.actors.conversation import Read
from pointsman.actors.held import HeldBody
from pointsman.actors.reading import KEPT, SOON, BodyReader, Child, ReadingFailed
from pointsman.actors.reading_wire import APART, Gone, pack, receive, send, unpack
from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Keys, keys
from pointsman.kernel.model import MODEL_NAME, Parsed
from pointsman.kernel.parsing import Route, make_routes
from pointsman.plugins.parsers import (
    AnthropicParser,
    OpenAIParser,
    SglangHttpParser,
    VllmGrpcParser,
    VllmHttpParser,
)

from .reading_threads import Threads

LIMIT: Final = 10_000_000
LONG: Final = "x" * (2 * APART)
CHAT: Final = {"model": "m", "messages": [{"role": "user", "content": LONG}], "max_tokens": 3}
GRPC: Final = bytes(GenerateRequest(tokenized=TokenizedInput(input_ids=list(range(9)))))
BODIES: Final[dict[tuple[type[Any], str], bytes]] = {
    (OpenAIParser, "chat/completions"): json_of(CHAT),
    (OpenAIParser, "completions"): json_of({"model": "é", "prompt": [[1, 2], [3]]}),
    (AnthropicParser, "messages"): json_of(CHAT),
    (VllmHttpParser, "inference/v1/generate"): json_of(
        {"model": "m", "token_ids": [1, 2, 3], "sampling_params": {}}
    ),
    (SglangHttpParser, "generate"): json_of({"input_ids": [1, 2]}),
    (VllmGrpcParser, VllmGrpcParser.paths[0]): b"\0" + len(GRPC).to_bytes(4, "big") + GRPC,
}
PARSED: Final = json_of({"model": "m", "prompt": "hi"})


class Picky:
    """Does with a body what the body says."""

    type_name: ClassVar = "picky-parser"
    paths: ClassVar = ("picky",)
    produces: ClassVar = keys(MODEL_NAME)

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        def read(body: bytes) -> Parsed:
            if body == b"refuse":
                raise Refusal(418, "no", reason="tea", retry_after=7)
            if body == b"fail":
                raise ZeroDivisionError
            return Parsed(body.decode())

        return read


class Stuck(Picky):
    """Cannot be taken elsewhere."""

    def __reduce__(self) -> str:
        raise TypeError("no")


class Homesick(Picky):
    """Can be taken elsewhere, and does not arrive."""

    def __setstate__(self, state: object) -> None:
        raise LookupError

    def __getstate__(self) -> dict[str, int]:
        return {"some": 1}


def route(parser: Any, path: str = "picky") -> Route:
    return make_routes([("parser", parser)], ALL).find(path)


async def end(reader: BodyReader) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await reader.run()


# -- what is read -------------------------------------------------------------------------------


@pytest.mark.parametrize(("parser", "path"), BODIES)
@pytest.mark.parametrize("kind", [bytes, memoryview])
async def test_it_is_read_as_it_would_be_here(
    parser: type[Any], path: str, kind: Callable[[bytes], bytes | memoryview]
) -> None:
    body, reader = BODIES[parser, path], BodyReader(Threads.at_once().start)
    way = route(parser(), path)
    assert way.read is not None
    assert await reader.read(Read(way, kind(body), renaming=False)) == (way.read(body), None)
    await end(reader)


async def test_the_place_of_the_name_comes_with_it_if_that_is_wanted() -> None:
    reader, way = BodyReader(Threads.at_once().start), route(OpenAIParser(), "completions")
    parsed, place = await reader.read(Read(way, PARSED, renaming=True))
    assert parsed.model == "m"
    assert place is not None
    assert b"".join(place.filled(PARSED, "n")) == PARSED.replace(b'"m"', b'"n"')
    nameless = Read(route(SglangHttpParser(), "generate"), b'{"input_ids":[1]}', renaming=True)
    assert (await reader.read(nameless))[1] is None
    await end(reader)


async def test_a_refusal_is_the_parsers() -> None:
    reader = BodyReader(Threads.at_once().start)
    with pytest.raises(Refusal) as refused:
        await reader.read(Read(route(Picky()), b"refuse", renaming=False))
    assert (refused.value.status, refused.value.message) == (418, "no")
    assert (refused.value.reason, refused.value.retry_after) == ("tea", 7)
    await end(reader)


async def test_a_parser_that_fails_is_named_by_kind_and_place() -> None:
    threads = Threads.at_once()
    reader = BodyReader(threads.start)
    with pytest.raises(ReadingFailed, match=r"ZeroDivisionError at test_reading\.py:\d+"):
        await reader.read(Read(route(Picky()), b"fail", renaming=False))
    assert (await reader.read(Read(route(Picky()), b"m", renaming=False)))[0] == Parsed("m")
    assert len(threads.started) == 1  # nothing happened to it
    await end(reader)


# -- what cannot be read there ------------------------------------------------------------------


@pytest.mark.parametrize("parser", [Stuck, Homesick])
async def test_a_parser_that_cannot_go_there_reads_here_and_says_so_once(
    parser: type[Picky], caplog: pytest.LogCaptureFixture
) -> None:
    reader, way = BodyReader(Threads.at_once().start), route(parser())
    for _ in range(2):
        assert (await reader.read(Read(way, memoryview(b"m"), renaming=True)))[0] == Parsed("m")
    (said,) = [record.message for record in caplog.records]
    assert parser.__name__ in said
    await end(reader)


async def test_where_no_process_can_be_started_it_is_read_here(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def start() -> Child:
        raise BlockingIOError("no more processes")

    reader = BodyReader(start)
    for _ in range(2):
        assert (await reader.read(Read(route(Picky()), b"m", renaming=True)))[0] == Parsed("m")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_process_that_is_lost_costs_the_request_that_it_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = Threads.at_once()
    lost = True

    def start() -> Child:
        child = threads.start()
        if lost:
            child.line.shutdown(socket.SHUT_RDWR)
        return child

    reader, wanted = BodyReader(start), Read(route(Picky()), b"m", renaming=False)
    for _ in range(2):
        with pytest.raises(Refusal, match="could not be read") as refused:
            await reader.read(wanted)
        assert refused.value.status == 503
    assert [record.levelno for record in caplog.records] == [logging.WARNING]  # said once
    lost = False
    assert (await reader.read(wanted))[0] == Parsed("m")
    assert len(threads.started) == 3
    lost = True
    threads.started[-1].line.shutdown(socket.SHUT_RDWR)
    with pytest.raises(Refusal):
        await reader.read(wanted)
    assert len(caplog.records) == 2  # it had worked in between


# -- processes come and go ----------------------------------------------------------------------


async def test_one_without_work_is_ended_and_one_with_work_is_not(mock_clock: MockClock) -> None:
    async def later() -> None:
        await wait_all_tasks_blocked()
        mock_clock.jump(KEPT)
        await wait_all_tasks_blocked()

    threads = Threads.at_once()
    reader = BodyReader(threads.start)
    wanted = Read(route(Picky()), b"x" * (SOON + 1), renaming=False)
    await reader.read(wanted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        await later()
        await reader.read(wanted)
        await later()  # it did not rest all the time
        assert (len(threads.started), threads.ended) == (1, 0)
        await later()
        assert threads.ended == 1
        await reader.read(wanted)
        assert (len(threads.started), threads.ended) == (2, 1)
        tasks.cancel_scope.cancel()
    assert threads.ended == 2


async def test_none_but_the_largest_wait_for_a_process_to_start(mock_clock: MockClock) -> None:
    threads = Threads()
    reader, small = BodyReader(threads.start), Read(route(Picky()), b"m", renaming=True)
    large = evolve(small, body=b"x" * (SOON + 1))
    read: list[Parsed] = []

    async def ask(wanted: Read) -> None:
        read.append((await reader.read(wanted))[0])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        await wait_all_tasks_blocked()
        for _ in range(2):
            await ask(small)
        tasks.start_soon(ask, large)
        for _ in range(2):
            await to_thread.run_sync(threads.asked.acquire)
        assert (read, threads.started) == ([Parsed("m")] * 2, [])
        threads.may_start.set()
        while len(read) < 3 or reader._starting:
            await trio.lowlevel.checkpoint()
        assert len(threads.started) == 2
        for child in threads.started:
            child.rested = True
        await ask(small)
        assert sorted(child.rested for child in threads.started) == [False, True]  # by one of them
        tasks.cancel_scope.cancel()
    assert threads.ended == 2


async def test_a_process_that_cannot_start_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def start() -> Child:
        child = Threads.at_once().start()
        child.line.shutdown(socket.SHUT_RDWR)
        return child

    reader, small = BodyReader(start), Read(route(Picky()), b"m", renaming=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.run)
        await wait_all_tasks_blocked()
        assert (await reader.read(small))[0] == Parsed("m")
        while reader._starting:
            await trio.lowlevel.checkpoint()
        assert (await reader.read(small))[0] == Parsed("m")
        tasks.cancel_scope.cancel()
    assert [record.levelno for record in caplog.records][:1] == [logging.WARNING]


async def test_a_process_reads_survives_the_daemons_signals_and_ends_with_it() -> None:
    children: list[Child] = []

    def start() -> Child:
        children.append(Child.start())
        return children[-1]

    reader = BodyReader(start)
    wanted = Read(route(OpenAIParser(), "completions"), PARSED, renaming=True)
    first = await reader.read(wanted)
    process = children[0].process
    assert isinstance(process, subprocess.Popen)
    for number in (signal.SIGTERM, signal.SIGINT):  # what a service manager sends to all of them
        process.send_signal(number)
    assert await reader.read(wanted) == first
    (child,) = children
    child.line.close()  # as the kernel does when the daemon is killed
    assert await to_thread.run_sync(child.process.wait) == 0


# -- the line -----------------------------------------------------------------------------------


def test_large_byte_strings_are_not_copied_into_the_pickle() -> None:
    large, small = bytes(APART), bytes(APART - 1)
    parts = pack({"a": large, "b": [small, large]})
    assert list(map(len, parts[1:])) == [APART, APART]
    assert len(parts[0]) < APART + 1000
    assert unpack(parts) == {"a": large, "b": [small, large]}


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_what_is_sent_is_received(parts: list[bytes]) -> None:
    ours, its = socket.socketpair()
    with ours, its:
        send(ours, [memoryview(part) for part in parts])
        assert receive(its) == parts


def test_an_end_in_the_middle_is_noticed() -> None:
    ours, its = socket.socketpair()
    with its:
        with ours:
            ours.sendall((1).to_bytes(8, "little") + (9).to_bytes(8, "little") + b"part")
        with pytest.raises(Gone):
            receive(its)


# -- what is held -------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=50)))
def test_a_held_body_is_what_was_added(parts: list[bytes]) -> None:
    held = HeldBody()
    for part in parts:
        held.add(part, LIMIT)
    whole = b"".join(parts)
    assert (len(held), held.bytes(), bytes(held.view())) == (len(whole), whole, whole)
    held.clear()
    assert (len(held), held.view()) == (0, b"")


def test_one_piece_is_held_as_it_is() -> None:
    piece, held = json.dumps(CHAT).encode(), HeldBody()
    for part in (b"", piece, b""):
        held.add(part, LIMIT)
    assert held.bytes() is piece
    assert held.view() is piece
