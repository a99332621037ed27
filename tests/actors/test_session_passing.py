"""Pieces of a response that only pass by: noted like the others, without events and commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.conversation import (
    BodyMode,
    Event,
    Modes,
    Part,
    RequestBody,
    ResponseBody,
    ResponseHeaders,
)
from pointsman.actors.figures import Figures
from pointsman.actors.session import Session
from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import DataView
from pointsman.kernel.pool import ModelRewrite, RewriteRule, RewriteTarget, SetRewrites

from .scripts import CHAT, Desk, chat, headers, opening, passed_on, say, wired

EVENTS = {":status": "200", "content-type": "text/event-stream"}
BEGAN = ResponseHeaders(headers(EVENTS), end=False)
REQUEST = RequestBody(chat(), end=True)


class Ticks:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def talking(desk: Desk, *events: Event) -> tuple[Session, Figures]:
    figures = Figures(clock=Ticks())
    session = Session(
        desk.wiring,
        lambda: desk.datastore.snapshot,
        desk.settings,
        lambda: 0.0,
        figures.observe(),
        Random(1),
    )
    say(session, *events)
    return session, figures


class Watching:
    """Looks at every piece."""

    type_name: ClassVar = "watching"

    def on_response_chunk(self, data: DataView, chunk: bytes) -> None: ...


def renaming() -> Desk:
    desk = Desk()
    rule = RewriteRule(models=frozenset({"m"}), targets=(RewriteTarget("other"),))
    desk.datastore.apply(SetRewrites([ModelRewrite(name="r", created="", rules=(rule,))]))
    return desk


@pytest.mark.parametrize(
    ("make", "events"),
    [
        pytest.param(Desk, [opening(CHAT), REQUEST], id="no headers"),
        pytest.param(Desk, [BEGAN], id="no request"),
        pytest.param(Desk, [opening(CHAT), REQUEST, ResponseHeaders(headers(EVENTS), end=True)]),
        pytest.param(
            Desk,
            [opening(CHAT, modes=Modes(BodyMode.FULL_DUPLEX, BodyMode.STREAMED)), REQUEST, BEGAN],
            id="the proxy passes them on",
        ),
        pytest.param(
            lambda: Desk(wired("plugins: [{type: watching}]", Watching)),
            [opening(CHAT), REQUEST, BEGAN],
            id="a plugin looks at them",
        ),
        pytest.param(renaming, [opening(CHAT), REQUEST, BEGAN], id="the model's name changes"),
    ],
)
def test_what_has_to_be_handled_does_not_pass(
    make: Callable[[], Desk], events: Sequence[Event]
) -> None:
    session, _ = talking(make(), *events)
    assert session.passing is None


def test_after_a_refusal_nothing_passes() -> None:
    session, _ = talking(Desk(), opening(CHAT), REQUEST, BEGAN)
    assert session.passing is not None
    session.refuse(Refusal(500, "a mistake"))
    assert session.passing is None


PIECES = st.lists(
    st.sampled_from([b"", b"data: {}\n\n", b'{"usage":{"completion', b'_tokens":3}}', b'"usage"']),
    max_size=8,
)


@pytest.mark.parametrize("desk", [Desk()])
@given(PIECES, st.lists(st.booleans(), min_size=8, max_size=8))
def test_passing_and_being_handled_come_to_the_same(
    desk: Desk, pieces: list[bytes], handled: list[bool]
) -> None:
    mixed, mixed_figures = talking(desk, opening(CHAT), REQUEST, BEGAN)
    plain, plain_figures = talking(desk, opening(CHAT), REQUEST, BEGAN)
    heard = b""
    for piece, by_hand in zip(pieces, handled, strict=False):
        event = ResponseBody(piece, end=False)
        say(plain, event)
        if by_hand:
            heard += passed_on(say(mixed, event), Part.RESPONSE_BODY)
        else:
            assert mixed.passing is not None
            mixed.passing.note(piece)
            heard += piece
    for session in (mixed, plain):
        say(session, ResponseBody(b"", end=True))
        session.close()
    assert heard == b"".join(pieces)
    assert page(mixed_figures) == page(plain_figures)


def page(figures: Figures) -> list[str]:
    """All that was counted of requests."""
    return [str(family) for family in figures.requests.families()]
