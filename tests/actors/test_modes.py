"""What a mode shows, what is asked for besides, and when the picker may leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from pointsman.actors.conversation import (
    BodyMode,
    Command,
    Continue,
    Event,
    Modes,
    RequestBody,
    RequestTrailers,
    ResponseHeaders,
    SendTo,
)
from pointsman.actors.modes import name_of, remarks, to_ask_for
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import (
    Headers,
    RequestEnd,
)
from pointsman.kernel.pool import ModelRewrite, RewriteRule, RewriteTarget, SetRewrites
from pointsman.kernel.wiring import Wiring

from .conversations.setups import Meter
from .scripts import BUFFERED, Desk, body, opening, say, wired

FULL = Modes(BodyMode.FULL_DUPLEX, BodyMode.FULL_DUPLEX)
LEAN_DUPLEX = Modes(BodyMode.FULL_DUPLEX, BodyMode.NONE)
HEADERS_ONLY = Modes(BodyMode.NONE, BodyMode.NONE)
STREAMED = Modes(BodyMode.STREAMED, BodyMode.NONE)


class Marker:
    """Adds a header to responses."""

    type_name: ClassVar = "marker"

    def on_response_headers(self, data: DataView, headers: Headers) -> dict[str, str]:
        return {"x-marked": "1"}


class Counter:
    """Hears of ends, as whoever counts what is in flight."""

    type_name: ClassVar = "counter"

    def on_response_end(self, data: DataView, end: RequestEnd) -> None: ...


def wiring(*types: type[Any]) -> Wiring:
    names = ["queue-scorer", *(each.type_name for each in types)]
    return wired(f"plugins: [{', '.join(f'{{type: {name}}}' for name in names)}]", *types)


PLAIN = wiring()


@pytest.mark.parametrize(
    ("modes", "name"),
    [
        (FULL, "full-duplex"),
        (LEAN_DUPLEX, "lean-duplex"),
        (BUFFERED, "lean-buffered"),
        (Modes(BodyMode.BUFFERED_PARTIAL, BodyMode.NONE), "lean-buffered"),
        (Modes(BodyMode.BUFFERED, BodyMode.STREAMED), "buffered"),
        (STREAMED, "streamed"),
        (HEADERS_ONLY, "headers-only"),
    ],
)
def test_modes_have_the_names_of_the_documentation(modes: Modes, name: str) -> None:
    assert name_of(modes) == name


# -- what the proxy is asked for ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "plan", "asked"),
    [
        (BUFFERED, PLAIN, None),
        (BUFFERED, wiring(Counter), None),
        (BUFFERED, wiring(Meter), Modes(BodyMode.BUFFERED, BodyMode.STREAMED)),
        (BUFFERED, wiring(Marker), BUFFERED),
        (BUFFERED, wiring(Marker, Meter), Modes(BodyMode.BUFFERED, BodyMode.STREAMED)),
        (STREAMED, wiring(Meter), Modes(BodyMode.STREAMED, BodyMode.STREAMED)),
        (Modes(BodyMode.BUFFERED, BodyMode.STREAMED), wiring(Meter), None),
        (FULL, wiring(Meter), None),
        (LEAN_DUPLEX, wiring(Meter), None),
    ],
)
def test_a_response_is_asked_for_where_a_plugin_wants_it_and_the_mode_hides_it(
    modes: Modes, plan: Wiring, asked: Modes | None
) -> None:
    assert to_ask_for(modes, plan.processing, may_rename=lambda: False) == asked
    reply = Desk(plan).talk(opening(modes=modes, end=True))[0]
    assert isinstance(reply, SendTo)
    assert reply.ask == asked


def test_a_buffered_request_is_asked_for_its_response_before_its_body_is_there() -> None:
    asked = Modes(BodyMode.BUFFERED, BodyMode.STREAMED)
    session = Desk(wiring(Meter)).session()
    first, second = say(session, opening(modes=BUFFERED), RequestBody(body(), end=True))
    assert isinstance(first, Continue)
    assert isinstance(second, SendTo)
    assert (first.ask, second.ask) == (asked, None)


def test_responses_are_asked_for_where_models_may_be_rewritten() -> None:
    """Their bodies name the model that served, and clients asked for another."""
    asked = Modes(BodyMode.BUFFERED, BodyMode.STREAMED)
    desk = Desk()
    (named,) = desk.talk(opening(modes=BUFFERED, x_llm_d_model_name_rewrite="other"))
    assert isinstance(named, Continue)
    rule = RewriteRule(models=frozenset({"m"}), targets=(RewriteTarget("other"),))
    made = ModelRewrite(name="r", created="2026-01-01T00:00:00Z", rules=(rule,))
    desk.datastore.apply(SetRewrites([made]))
    (ruled,) = desk.talk(opening(modes=BUFFERED))
    assert isinstance(ruled, Continue)
    assert named.ask == ruled.ask == asked


# -- what an operator is told ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "plan", "said"),
    [
        (BUFFERED, PLAIN, []),
        (BUFFERED, wiring(Counter), []),
        (BUFFERED, wiring(Meter), ["response-usage can be observed only where the proxy has"]),
        (BUFFERED, wiring(Marker), ["response-headers can be observed only where"]),
        (LEAN_DUPLEX, wiring(Marker), []),
        (LEAN_DUPLEX, wiring(Meter), ["response-usage cannot be observed"]),
        (FULL, wiring(Meter), []),
        (FULL, wiring(Counter), ["no plugin looks at them"]),
        (FULL, PLAIN, ["no plugin looks at them", "see --response-figures"]),
        (HEADERS_ONLY, PLAIN, ["request bodies are not seen before the decision"]),
    ],
)
def test_what_a_mode_cannot_show_or_shows_in_vain_is_said(
    modes: Modes, plan: Wiring, said: Sequence[str]
) -> None:
    found = list(remarks(modes, plan, figures=True))
    assert len(found) == len(said)
    assert all(part in remark for part, remark in zip(said, found, strict=True))


# -- leaving --------------------------------------------------------------------------------------

REQUEST: Sequence[Event] = (RequestBody(body(), end=True),)


def over(modes: Modes, plan: Wiring, *events: Event, awaits_end: bool = False) -> list[bool]:
    """Whether the conversation was over, after each event."""
    session = Desk(plan).session(lambda session: awaits_end)
    seen: list[bool] = []
    for event in (opening(modes=modes), *events):
        session.handle(event)
        seen.append(session.over)
    return seen


@pytest.mark.parametrize("modes", [FULL, LEAN_DUPLEX, BUFFERED])
@pytest.mark.parametrize("plan", [PLAIN, wiring(Counter)])
def test_the_picker_leaves_after_the_decision_when_nobody_waits_for_the_response(
    modes: Modes, plan: Wiring
) -> None:
    assert over(modes, plan, *REQUEST) == [False, True]
    assert over(modes, plan, *REQUEST, awaits_end=True) == [False, False]


@pytest.mark.parametrize("plan", [wiring(Meter), wiring(Marker)])
def test_it_stays_while_a_plugin_looks_at_the_response(plan: Wiring) -> None:
    assert over(FULL, plan, *REQUEST) == [False, False]


def test_it_stays_until_nothing_of_the_request_is_to_come() -> None:
    unread = wired("plugins: [{type: queue-scorer}]\nrequestHandler: {parsers: "
                   "[{pluginRef: passthrough-parser}]}")  # fmt: skip
    pieces = (RequestBody(b"a", end=False), RequestBody(b"b", end=True))
    assert over(FULL, unread, *pieces) == [False, False, True]
    trailers = (RequestBody(body(), end=False), RequestTrailers())
    assert over(FULL, PLAIN, *trailers) == [False, False, True]
    assert over(BUFFERED, PLAIN, *trailers) == [False, False, True]
    assert over(HEADERS_ONLY, PLAIN) == [True]


def test_it_stays_once_the_response_has_begun() -> None:
    """A piece may be on its way to the picker, and would be lost."""
    session = Desk().session(lambda session: waits)
    waits = True
    say(session, opening(), *REQUEST, ResponseHeaders(Headers({":status": b"200"}), end=False))
    waits = False
    assert not session.over


def test_it_stays_to_give_a_response_its_models_name_back() -> None:
    session = Desk().session(lambda session: False)
    commands: list[Command] = say(session, opening(x_llm_d_model_name_rewrite="other"), *REQUEST)
    assert isinstance(commands[0], SendTo)
    assert not session.over
