"""What sessions make of requests; `conversations` has what is said in every mode.

P-xx and B-xx are the field reports whose fault a test keeps away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from pointsman.actors.conversation import (
    Command,
    Decide,
    Refuse,
    RequestBody,
    RequestTrailers,
    ResponseHeaders,
    SendTo,
    SessionSettings,
)
from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    REQUEST_BODY,
    Endpoint,
    SchedulingResult,
)

from .scripts import (
    BASE,
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


# -- requests -----------------------------------------------------------------------------------


def test_after_an_error_nothing_is_answered(desk: Desk) -> None:
    session = desk.session()
    say(session, opening(), RequestBody(b"{", end=True))
    assert session.over
    assert say(session, RequestTrailers(), ResponseHeaders(headers({}), end=True)) == []


def test_p09_the_subset_hint_holds_for_requests_without_a_body_too(desk: Desk) -> None:
    event = opening({":path": "/v1/models"}, end=True, subset=["10.0.0.1:8000"])
    assert destination(desk.talk(event)) == "10.0.0.1:8000"


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
    assert not session._held


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
