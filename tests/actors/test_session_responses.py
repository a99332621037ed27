"""What sessions make of responses, and of the ends of requests.

P-xx and G-xx are the field reports whose fault a test keeps away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from pointsman.actors.conversation import (
    Chunk,
    Continue,
    Part,
    RequestBody,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
)
from pointsman.actors.session import Session
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    RESPONSE_USAGE,
    EndCause,
    RequestEnd,
    SchedulingResult,
    Usage,
)

from .scripts import (
    BUFFERED,
    LOAD_ONLY,
    Desk,
    body,
    headers,
    only,
    opening,
    passed_on,
    refusal,
    say,
    wired,
)


@pytest.fixture
def desk() -> Desk:
    """The second endpoint has the shorter queue."""
    made = Desk()
    made.queue(5, 1)
    return made


class Ears:
    """Hears of the end of requests, and of the beginning of responses."""

    type_name: ClassVar = "ears"
    heard: ClassVar[list[RequestEnd]] = []
    began: ClassVar[list[str]] = []

    def on_response_headers(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        self.began.append(result.target.name)
        return {"x-served-by": result.target.name}

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        self.heard.append(end)


@pytest.fixture
def hearing() -> Desk:
    Ears.heard.clear()
    Ears.began.clear()
    made = Desk(wired("plugins: [{type: queue-scorer}, {type: ears}]", Ears))
    made.queue(5, 1)
    return made


def asked(desk: Desk) -> Session:
    """A session whose request has gone."""
    session = desk.session()
    say(session, opening(), RequestBody(body(), end=True))
    return session


OK_HEADERS = ResponseHeaders(headers({":status": "200"}), end=False)


def test_p02_no_header_of_the_response_is_echoed(desk: Desk) -> None:
    noisy = {"transfer-encoding": "chunked", "connection": "keep-alive", "server": "uvicorn"}
    event = ResponseHeaders(headers({":status": "200", "x-foo": "1", **noisy}), end=False)
    assert asked(desk).handle(event) == [Continue(Part.RESPONSE_HEADERS)]


def test_p19_an_error_page_passes_by_as_it_is(desk: Desk) -> None:
    session = asked(desk)
    event = ResponseHeaders(headers({":status": "503", "content-type": "text/plain"}), end=False)
    commands = say(session, event, ResponseBody(b"no healthy upstream", end=True))
    assert passed_on(commands, Part.RESPONSE_BODY) == b"no healthy upstream"


def test_a_plugin_may_add_headers_to_the_response(hearing: Desk) -> None:
    command = only(asked(hearing).handle(OK_HEADERS))
    assert command == Continue(Part.RESPONSE_HEADERS, {"x-served-by": "pod-1"})


@pytest.mark.parametrize(
    ("events", "cause"),
    [
        ([ResponseBody(b"x", end=False), ResponseBody(b"", end=True)], EndCause.NATURAL),
        ([ResponseBody(b"x", end=True), ResponseTrailers()], EndCause.NATURAL),
        ([ResponseBody(b"x", end=False), ResponseTrailers()], EndCause.NATURAL),
        ([ResponseBody(b"x", end=False)], EndCause.CLIENT_DISCONNECT),
        ([], EndCause.CLIENT_DISCONNECT),
    ],
)
def test_p11_the_end_is_heard_of_exactly_once(
    hearing: Desk, events: Sequence[ResponseBody | ResponseTrailers], cause: EndCause
) -> None:
    session = asked(hearing)
    commands = say(session, OK_HEADERS, *events)
    session.close()
    session.close(broken=True)
    assert Ears.heard == [RequestEnd(cause, 200)]
    if ResponseTrailers() in events:
        assert commands[-1] == Continue(Part.RESPONSE_TRAILERS)


def test_a_response_that_nobody_shows_us_ends_naturally(hearing: Desk) -> None:
    session = hearing.session()
    say(session, opening(modes=BUFFERED), RequestBody(body(), end=True))
    assert session.close() is EndCause.NATURAL
    assert Ears.heard == [RequestEnd(EndCause.NATURAL)]


def test_a_response_without_a_body_is_complete(hearing: Desk) -> None:
    session = asked(hearing)
    say(session, ResponseHeaders(headers({":status": "204"}), end=True))
    assert session.close() is EndCause.NATURAL


def test_g02_a_request_that_was_never_scheduled_ends_nothing(hearing: Desk) -> None:
    session = hearing.session()
    say(session, opening())
    session.close()
    assert Ears.heard == []
    assert session.request is not None
    assert session.request.ended


@pytest.mark.parametrize("events", [[], [RequestBody(body(), end=True)]])
def test_a_second_request_on_one_stream_is_refused(
    desk: Desk, events: Sequence[RequestBody]
) -> None:
    session = desk.session()
    say(session, opening(), *events)
    first = session.request
    assert refusal(session.handle(opening())).status == 400
    session.close()
    assert first is not None
    assert first.ended


def test_a_stream_that_begins_with_the_response_is_answered(hearing: Desk) -> None:
    session = hearing.session()
    commands = say(session, OK_HEADERS, ResponseBody(b"x", end=True))
    session.close()
    assert [type(command) for command in commands] == [Continue, Chunk]
    assert Ears.heard == []


class Accountant:
    """Wants to know what a response cost."""

    type_name: ClassVar = "accountant"
    consumes: ClassVar = Consumes(optional=[RESPONSE_USAGE])
    bills: ClassVar[list[Usage | None]] = []

    def on_response_end(self, data: DataView, end: RequestEnd) -> None:
        self.bills.append(data.get(RESPONSE_USAGE))


@pytest.mark.parametrize(("encoding", "usage"), [("identity", Usage(5, 2)), ("gzip", None)])
def test_usage_reaches_who_consumes_it(encoding: str, usage: Usage | None) -> None:
    Accountant.bills.clear()
    desk = Desk(wired(f"{LOAD_ONLY[:-1]}, {{type: accountant}}]", Accountant))
    assert desk.wiring.processing.response
    session = asked(desk)
    told = {":status": "200", "content-encoding": encoding}
    text = b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}'
    cut = [ResponseBody(text[:20], end=False), ResponseBody(text[20:], end=True)]
    commands = say(session, ResponseHeaders(headers(told), end=False), *cut)
    session.close()
    assert passed_on(commands, Part.RESPONSE_BODY) == text
    assert Accountant.bills == [usage]


def test_a_response_without_usage_leaves_it_absent() -> None:
    Accountant.bills.clear()
    session = asked(Desk(wired(f"{LOAD_ONLY[:-1]}, {{type: accountant}}]", Accountant)))
    say(session, OK_HEADERS, ResponseBody(b"[]", end=True))
    session.close()
    assert Accountant.bills == [None]
