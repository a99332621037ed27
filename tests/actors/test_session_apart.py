"""Conversations whose bodies are so large that they are read elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve
from tests.actors.test_session_renaming import rewriting, rule
from tests.plugins.parsers.grpc_messages import GenerateRequest

from pointsman.actors.conversation import (
    Chunk,
    Command,
    Event,
    Modes,
    Read,
    Refuse,
    RequestBody,
    RequestTrailers,
    SendTo,
)
from pointsman.actors.session import Session
from pointsman.kernel.model import Parsed
from pointsman.kernel.rewriting import NamePlace, model_place
from pointsman.plugins.parsers import VllmGrpcParser

from .scripts import BASE, BUFFERED, DUPLEX, Desk, body, opening, pieces, wired

APART = 1000
GRPC = """
plugins: [{type: vllmgrpc-parser}]
requestHandler: {parsers: [{pluginRef: vllmgrpc-parser}]}
"""
LARGE = body(prompt="x" * 200_000)
TRAILERS = [*pieces(LARGE, 70_000, last_empty=False)[:-1], *pieces(LARGE[140_000:], 70_000)[:1]]
"""The body in pieces, of which none is the last."""


def apart(desk: Desk) -> Desk:
    desk.settings = evolve(desk.settings, read_apart_from=APART)
    return desk


def through(session: Session, events: Sequence[Event], *, placed: bool = True) -> list[Command]:
    """All commands, with a driver that reads as it should; *placed* says where names stand."""
    commands: list[Command] = []
    for event in events:
        commands += session.handle(event)
        if commands and isinstance(wanted := commands[-1], Read):
            commands.pop()
            commands += session.was_read(wanted.body, *read(wanted, placed=placed))
    return commands


def read(wanted: Read, *, placed: bool) -> tuple[Parsed, NamePlace | None]:
    assert wanted.route.read is not None
    whole = bytes(wanted.body)
    return wanted.route.read(whole), model_place(whole) if wanted.renaming and placed else None


def joined(commands: Sequence[Command]) -> list[Command | bytes]:
    """Commands with neighbouring pieces of a body put together."""
    told: list[Command | bytes] = []
    for command in commands:
        if not isinstance(command, Chunk):
            told.append(command)
        elif told and isinstance(told[-1], bytes):
            told[-1] += bytes(command.data)
        else:
            told.append(bytes(command.data))
    return told


@pytest.mark.parametrize("modes", [DUPLEX, BUFFERED])
@pytest.mark.parametrize("size", [70_000, 1 << 20])
@pytest.mark.parametrize("placed", [False, True])
@pytest.mark.parametrize("renamed", [False, True])
def test_the_proxy_is_told_what_it_would_be_otherwise(
    modes: Modes, size: int, placed: bool, renamed: bool
) -> None:
    rules = [rule("n", "m")] if renamed else []
    sent = pieces(LARGE, size, last_empty=False)
    if modes is BUFFERED:
        sent = sent if len(sent) == 1 else pieces(LARGE, len(LARGE), last_empty=False)
    first = opening(modes=modes, content_length=str(len(LARGE)))
    events: list[Event] = [first, *sent]
    here = through(rewriting(*rules).session(), events)
    there = through(apart(rewriting(*rules)).session(), events, placed=placed)
    assert joined(there) == joined(here)
    ends = [command.end for command in there if isinstance(command, Chunk)]
    assert ends == ([False] * (len(ends) - 1) + [True] if modes is DUPLEX else [])


def test_trailers_end_a_body_too() -> None:
    events: list[Event] = [opening(), *TRAILERS, RequestTrailers()]
    here, there = (through(desk.session(), events) for desk in (Desk(), apart(Desk())))
    assert joined(there) == joined(here)


def test_the_length_decides() -> None:
    session = apart(Desk()).session()
    small = body(prompt="x" * (APART - len(body(prompt="")) - 1))
    assert len(small) == APART - 1
    (command, *_) = through(session, [opening(), *pieces(small, APART)])
    assert isinstance(command, SendTo)
    session = apart(Desk()).session()
    assert session.handle(opening()) == []
    commands = [session.handle(event) for event in pieces(small + b" ", APART, last_empty=False)]
    ((wanted,),) = commands
    assert isinstance(wanted, Read)
    assert not wanted.renaming


def test_what_is_wrong_with_it_is_answered_as_ever() -> None:
    nameless = body(model="", prompt="x" * APART)
    (answer,) = through(apart(Desk()).session(), [opening(), *pieces(nameless, APART)])
    assert isinstance(answer, Refuse)
    assert (answer.status, answer.message) == (400, "model not found in request body")


def test_large_pieces_are_not_copied_on_their_way() -> None:
    there = through(apart(Desk()).session(), [opening(), *pieces(LARGE, 70_000)])
    views = [command.data for command in there if isinstance(command, Chunk)]
    assert all(isinstance(view, memoryview) for view in views)
    assert len({id(view.obj) for view in views if isinstance(view, memoryview)}) == 1


@pytest.mark.parametrize(("more", "apart"), [(-1, False), (0, True)])
def test_a_parser_may_say_what_is_large_for_it(more: int, apart: bool) -> None:
    desk = Desk(wired(GRPC))
    desk.settings = evolve(desk.settings, read_apart_from=1 << 20)
    size = VllmGrpcParser.bytes_at_once + more
    text = GenerateRequest(text="x" * (size - 5 - 4))  # behind a frame's head, tag and length
    message = bytes(text)
    sent = b"\0" + len(message).to_bytes(4, "big") + message
    assert len(sent) == size
    session = desk.session()
    session.handle(opening({**BASE, ":path": f"/{VllmGrpcParser.paths[0]}"}))
    *_, last = session.handle(RequestBody(sent, end=True))
    assert isinstance(last, Read) is apart
