"""Conversations as scripts: what the proxy says, and what it is told.

P-xx and B-xx are the field reports whose fault a test keeps away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from pointsman.actors.conversation import (
    BodyMode,
    Chunk,
    Command,
    Continue,
    Decide,
    Modes,
    Part,
    Refuse,
    RequestBody,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    SendTo,
    SessionSettings,
)
from pointsman.actors.session import Session
from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    REQUEST_BODY,
    RESPONSE_USAGE,
    EndCause,
    Endpoint,
    RequestEnd,
    SchedulingResult,
    Usage,
)

from .scripts import (
    BASE,
    BUFFERED,
    CHAT,
    LIMIT,
    LOAD_ONLY,
    Desk,
    body,
    chat,
    destination,
    headers,
    only,
    opening,
    passed_on,
    pieces,
    refusal,
    say,
    wired,
)

LOWEST = "10.0.0.2:8000"


@pytest.fixture
def desk() -> Desk:
    """The second endpoint has the shorter queue."""
    made = Desk()
    made.queue(5, 1)
    return made


# -- request, full duplex -----------------------------------------------------------------------


def test_nothing_is_said_before_the_decision(desk: Desk) -> None:
    session = desk.session()
    assert session.handle(opening()) == []
    assert session.handle(RequestBody(body()[:10], end=False)) == []


def test_the_decision_comes_first_and_the_body_after_it(desk: Desk) -> None:
    data = body()
    commands = desk.talk(opening(), RequestBody(data, end=False), RequestBody(b"", end=True))
    assert isinstance(commands[0], SendTo)
    assert commands[0].part is Part.REQUEST_HEADERS
    assert commands[0].route.destination == LOWEST
    assert commands[1:] == [Chunk(Part.REQUEST_BODY, data, end=True)]


@pytest.mark.parametrize("size", [1, 61_999, 62_000, 62_001, 200_000])
@pytest.mark.parametrize("last_empty", [True, False])
def test_p06_large_bodies_are_passed_on_in_pieces_of_62000(
    desk: Desk, size: int, last_empty: bool
) -> None:
    data = body(padding="x" * size)
    commands = desk.talk(opening(), *pieces(data, 16_384, last_empty=last_empty))
    chunks = [c for c in commands if isinstance(c, Chunk)]
    assert passed_on(commands) == data
    assert max(len(chunk.data) for chunk in chunks) <= 62_000
    assert chunks[-1].end


def test_p06_an_empty_body_is_one_last_piece() -> None:
    desk = Desk(wired("requestHandler: {parsers: [{pluginRef: passthrough-parser}]}"))
    commands = desk.talk(opening(), RequestBody(b"", end=True))
    assert commands[1:] == [Chunk(Part.REQUEST_BODY, b"", end=True)]


def test_p07_an_error_is_the_first_and_only_message(desk: Desk) -> None:
    commands = desk.talk(opening(), RequestBody(b'{"model":', end=True))
    assert refusal(commands).status == 400


def test_after_an_error_nothing_is_answered(desk: Desk) -> None:
    session = desk.session()
    say(session, opening(), RequestBody(b"{", end=True))
    assert session.over
    assert say(session, RequestTrailers(), ResponseHeaders(headers({}), end=True)) == []


def test_a_body_that_ends_with_trailers_is_decided_then(desk: Desk) -> None:
    commands = desk.talk(opening(), RequestBody(body(), end=False), RequestTrailers())
    assert destination(commands) == LOWEST
    assert commands[1:] == [
        Chunk(Part.REQUEST_BODY, body(), end=False),
        Continue(Part.REQUEST_TRAILERS),
    ]


def test_b14_pieces_may_be_cut_inside_a_character(desk: Desk) -> None:
    data = '{"model":"m","prompt":"明月几时有"}'.encode()
    assert passed_on(desk.talk(opening(), *pieces(data, 1))) == data


# -- requests without a body --------------------------------------------------------------------


def test_p09_a_request_without_a_body_is_decided_on_its_headers(desk: Desk) -> None:
    get = {":method": "GET", ":path": "/v1/models"}
    assert destination(desk.talk(opening(get, end=True))) == LOWEST


def test_p09_an_empty_pool_is_a_503_for_them_too(desk: Desk) -> None:
    desk.pool()
    answer = refusal(desk.talk(opening({":method": "GET", ":path": "/v1/models"}, end=True)))
    assert answer.status == 503
    assert answer.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


def test_p09_the_subset_hint_holds_for_them_too(desk: Desk) -> None:
    event = opening({":path": "/v1/models"}, end=True, subset=["10.0.0.1:8000"])
    assert destination(desk.talk(event)) == "10.0.0.1:8000"


# -- other modes --------------------------------------------------------------------------------


def test_a_buffered_body_is_waited_for_and_carries_the_decision(desk: Desk) -> None:
    session = desk.session()
    assert session.handle(opening(modes=BUFFERED)) == [Continue(Part.REQUEST_HEADERS)]
    command = only(session.handle(RequestBody(body(), end=True)))
    assert isinstance(command, SendTo)
    assert (command.part, command.route.destination) == (Part.REQUEST_BODY, LOWEST)


def test_a_buffered_body_with_trailers_to_come_is_whole(desk: Desk) -> None:
    commands = desk.talk(opening(modes=BUFFERED), RequestBody(body(), end=False))
    assert destination(commands[1:]) == LOWEST


def test_a_body_that_the_proxy_cut_off_is_decided_by_load(desk: Desk) -> None:
    modes = Modes(BodyMode.BUFFERED_PARTIAL, BodyMode.NONE)
    commands = desk.talk(opening(modes=modes), RequestBody(b'{"model": "m", "pro', end=False))
    assert destination(commands[1:]) == LOWEST


@pytest.mark.parametrize("mode", [BodyMode.STREAMED, BodyMode.NONE])
def test_a_body_that_passes_by_is_decided_on_the_headers(desk: Desk, mode: BodyMode) -> None:
    session = desk.session()
    assert destination(session.handle(opening(modes=Modes(mode, mode)))) == LOWEST
    assert session.handle(RequestBody(b"x", end=True)) == [Continue(Part.REQUEST_BODY)]


def test_a_buffered_request_of_trailers_alone_is_refused(desk: Desk) -> None:
    commands = desk.talk(opening(modes=BUFFERED), RequestTrailers())
    assert isinstance(commands[-1], Refuse)
    assert commands[-1].status == 400


@pytest.mark.parametrize("modes", [Modes(), Modes(BodyMode.FULL_DUPLEX, BodyMode.NONE)])
def test_p10_whatever_the_proxy_announces_is_only_information(desk: Desk, modes: Modes) -> None:
    commands = desk.talk(opening(modes=modes), RequestBody(body(), end=True))
    assert destination(commands) == LOWEST


# -- bodies -------------------------------------------------------------------------------------

PARTS = [
    {"role": "system", "content": "s"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "mystery", "x": 1},
            "bare",
        ],
    },
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]},
    {"role": "tool", "tool_call_id": "1", "content": ""},
]


def test_b01_message_content_may_have_any_shape(desk: Desk) -> None:
    data = chat(messages=PARTS)
    commands = desk.talk(opening(CHAT), RequestBody(data, end=True))
    assert destination(commands) == LOWEST
    assert passed_on(commands) == data


@pytest.mark.parametrize("messages", [[], "x", [None], None, {}])
def test_b01_messages_must_be_messages(desk: Desk, messages: object) -> None:
    commands = desk.talk(opening(CHAT), RequestBody(chat(messages=messages), end=True))
    assert refusal(commands).status == 400


@pytest.mark.parametrize("prompt", ["x", ["a", "b"], [1, 2, 3], [[1, 2], [3]]])
def test_b02_prompts_may_be_texts_or_token_ids(desk: Desk, prompt: object) -> None:
    commands = desk.talk(opening(), RequestBody(body(prompt=prompt), end=True))
    assert destination(commands) == LOWEST


@pytest.mark.parametrize("prompt", [[], "", ["a", 1], [1.5], [-1], {}, None, [[]]])
def test_b02_other_prompts_are_refused(desk: Desk, prompt: object) -> None:
    commands = desk.talk(opening(), RequestBody(body(prompt=prompt), end=True))
    assert refusal(commands).status == 400


HOSTILE = {
    "cut": b'{"model":"m"',
    "no text": b"\xff",
    "list": b"[]",
    "null": b"null",
    "text": b'"x"',
    "empty": b"",
    "deep": b"[" * 2_000,
    "deeper": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "not a number": b'{"model":"m","prompt":"x","temperature":NaN}',
    "byte order mark": b"\xef\xbb\xbf" + body(),
    "utf-16": body().decode().encode("utf-16"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_b03_what_is_no_json_object_is_a_400(desk: Desk, name: str) -> None:
    commands = desk.talk(opening(), RequestBody(HOSTILE[name], end=True))
    assert refusal(commands).status == 400


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"m","prompt":"x","seed":' + b"1" * 5_000 + b"}",
        b'{"model":"m","prompt":"\\ud83d"}',
    ],
)
def test_b03_what_only_python_stumbles_over_passes_or_is_a_400(desk: Desk, data: bytes) -> None:
    commands = desk.talk(opening(), RequestBody(data, end=True))
    if isinstance(commands[0], Refuse):
        assert commands[0].status == 400
    else:
        assert passed_on(commands) == data


@pytest.mark.parametrize("model", ["", None, 5, ["m"], {"a": 1}])
def test_b04_a_model_must_be_named(desk: Desk, model: object) -> None:
    commands = desk.talk(opening(), RequestBody(body(model=model), end=True))
    assert refusal(commands).status == 400


def test_b04_the_model_is_missed_even_without_endpoints(desk: Desk) -> None:
    desk.pool()
    answer = refusal(desk.talk(opening(), RequestBody(b'{"prompt":"x"}', end=True)))
    assert (answer.status, answer.message) == (400, "model not found in request body")


def test_b05_bodies_that_nobody_reads_pass_by_byte_for_byte(desk: Desk) -> None:
    form = {":path": "/v1/audio/transcriptions", "content-type": "multipart/form-data; boundary=B"}
    data = b'--B\r\nname="model"\r\n\r\nm\r\n--B\r\n\x00\xff--B--'
    session = desk.session()
    assert destination(session.handle(opening(form))) == LOWEST
    assert passed_on(say(session, *pieces(data, 7))) == data


def test_p14_a_body_of_six_mebibytes_is_taken(desk: Desk) -> None:
    session = desk.session()
    session.settings = SessionSettings()
    data = body(prompt="x" * (6 << 20))
    assert passed_on(say(session, opening(), *pieces(data, 1 << 20))) == data


def test_p14_a_body_above_the_limit_is_a_413_and_is_let_go(desk: Desk) -> None:
    session = desk.session()
    commands = say(session, opening(), *pieces(b"x" * (LIMIT + 1), 100_000))
    assert refusal(commands).status == 413
    assert session._pieces == []


# -- headers ------------------------------------------------------------------------------------


def test_p12_query_and_fragment_do_not_matter(desk: Desk) -> None:
    event = opening({**BASE, ":path": "/v1/completions?beta=true#x"})
    assert refusal(desk.talk(event, RequestBody(b"{", end=True))).status == 400


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/v1/chat/completions", True),
        ("/v1/chat/completions/", True),
        ("/v1/projects/p/locations/l/endpoints/e/chat/completions", True),
        ("/foochat/completions", True),  # a completion: whole segments match
        ("/foo?x=/v1/completions", False),
        ("/v1/xcompletions", False),
    ],
)
def test_p12_paths_match_by_whole_segments(desk: Desk, path: str, read: bool) -> None:
    commands = desk.talk(opening({**BASE, ":path": path}))
    assert (commands == []) is read


ONLY_OPENAI = (
    "plugins: [{type: queue-scorer}]\nrequestHandler: {parsers: [{pluginRef: openai-parser}]}"
)


def test_p12_a_path_that_no_parser_takes_is_a_400_unless_it_has_no_body() -> None:
    desk = Desk(wired(ONLY_OPENAI))
    unknown = {**BASE, ":path": "/v1/models"}
    assert refusal(desk.talk(opening(unknown))).status == 400
    assert destination(desk.talk(opening({**unknown, ":method": "GET"}, end=True)))


def test_z02_control_headers_of_the_client_are_taken_away(desk: Desk) -> None:
    event = opening(
        BASE, x_gateway_inference_objective="o", X_LLM_D_Inference_Fairness_Id="f", x_other="1"
    )
    command = desk.talk(event, RequestBody(body(), end=True))[0]
    assert isinstance(command, SendTo)
    assert set(command.route.remove_headers) == {
        "x-gateway-inference-objective",
        "x-llm-d-inference-fairness-id",
    }


class Sidecar:
    """Tells a sidecar where the prompt was computed."""

    type_name: ClassVar = "sidecar"

    def before_request(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        return {"x-prefiller-host-port": "10.0.0.9:8000"}


def test_z02_only_the_picker_talks_to_the_sidecar_of_a_model_server() -> None:
    forged = opening(BASE, x_prefiller_host_port="evil:1", x_encoder_hosts_ports="evil:2")
    request = (forged, RequestBody(body(), end=True))
    plain, telling = Desk(), Desk(wired("plugins: [{type: sidecar}]", Sidecar))
    first = [desk.talk(*request)[0] for desk in (plain, telling)]
    routes = [command.route for command in first if isinstance(command, SendTo)]
    taken = [set(route.remove_headers) for route in routes]
    assert taken == [{"x-prefiller-host-port", "x-encoder-hosts-ports"}] * 2
    assert [dict(route.set_headers) for route in routes] == [
        {},
        {"x-prefiller-host-port": "10.0.0.9:8000"},
    ]


def test_s08_the_hint_may_come_with_the_body(desk: Desk) -> None:
    hint = frozenset({"10.0.0.1"})
    assert destination(desk.talk(opening(), RequestBody(body(), True, hint))) == "10.0.0.1:8000"


@pytest.mark.parametrize("hint", [[], ["10.9.9.9:8000"], ["10.0.0.1:9"]])
def test_s08_a_hint_without_overlap_is_a_503(desk: Desk, hint: Sequence[str]) -> None:
    commands = desk.talk(opening(subset=hint), RequestBody(body(), end=True))
    assert refusal(commands).status == 503


def test_a_hint_may_be_ignored() -> None:
    desk = Desk(settings=SessionSettings(heeds_subset=False))
    desk.queue(5, 1)
    hint = frozenset({"10.0.0.1"})
    events = (opening(subset=["10.0.0.1"]), RequestBody(body(), True, hint))
    assert destination(desk.talk(*events)) == LOWEST


def test_the_proxy_may_be_told_how_every_candidate_scored() -> None:
    desk = Desk(settings=SessionSettings(emits_scores=True))
    desk.queue(5, 1)
    command = desk.talk(opening(), RequestBody(body(), end=True))[0]
    assert isinstance(command, SendTo)
    assert command.route.scores == {"10.0.0.1:8000": 0.0, LOWEST: 1.0}


def test_an_error_quotes_the_requests_number(desk: Desk) -> None:
    commands = desk.talk(opening(x_request_id="n" * 200), RequestBody(b"no", end=True))
    assert refusal(commands).headers["x-request-id"] == "n" * 128


# -- response -----------------------------------------------------------------------------------


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


def test_responses_pass_by_untouched(desk: Desk) -> None:
    session = asked(desk)
    assert session.handle(OK_HEADERS) == [Continue(Part.RESPONSE_HEADERS)]
    assert session.handle(ResponseBody(b"x", end=False)) == [
        Chunk(Part.RESPONSE_BODY, b"x", end=False)
    ]
    assert session.handle(ResponseBody(b"", end=True)) == [Chunk(Part.RESPONSE_BODY, b"", end=True)]
    assert session.over


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


# -- what the plan asks for ---------------------------------------------------------------------


class Reader:
    """Wants the whole body, to show that it arrives."""

    type_name: ClassVar = "reader"
    consumes: ClassVar = Consumes(REQUEST_BODY)
    seen: ClassVar[list[object]] = []

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        self.seen.append(data[REQUEST_BODY])
        raise Refusal(418, "seen")


def test_a_plugin_that_consumes_the_body_gets_it() -> None:
    desk = Desk(wired("plugins: [{type: reader}]", Reader))
    data = body(prompt="hello")
    commands = desk.talk(opening(), RequestBody(data, end=True))
    assert refusal(commands).status == 418
    assert Reader.seen == [json.loads(data)]


def test_a_body_that_no_parser_reads_is_neither_held_nor_read() -> None:
    desk = Desk(wired("requestHandler: {parsers: [{pluginRef: passthrough-parser}]}"))
    session = desk.session()
    assert isinstance(session.handle(opening())[0], SendTo)
    data = b"not json"
    assert session.handle(RequestBody(data, end=True)) == [Chunk(Part.REQUEST_BODY, data, end=True)]


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


class Waiting:
    """A producer that may wait for I/O."""

    type_name: ClassVar = "waiting"

    async def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...


async def test_a_plugin_that_waits_makes_the_driver_wait() -> None:
    desk = Desk(wired(f"{LOAD_ONLY[:-1]}, {{type: waiting}}]", Waiting))
    session = desk.session()
    command = only(say(session, opening(), RequestBody(body(), end=True)))
    assert isinstance(command, Decide)
    director = session.wiring.director
    outcome = await director.decide(command.request, command.parsed, desk.datastore.snapshot)
    commands: list[Command] = session.decided(outcome)
    assert destination(commands) in ("10.0.0.1:8000", LOWEST)
    assert passed_on(commands) == body()
