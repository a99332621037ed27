"""Requests for one model that are served by another: what changes, and what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import pytest

from pointsman.actors.conversation import (
    BodyMode,
    Chunk,
    Command,
    Continue,
    Modes,
    Part,
    Replace,
    RequestBody,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    SendTo,
)
from pointsman.actors.session import Session
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import MODEL_NAME, REQUEST_PRIORITY, Endpoint
from pointsman.kernel.pool import (
    ModelRewrite,
    Objective,
    RewriteRule,
    RewriteTarget,
    SetObjectives,
    SetRewrites,
)

from .scripts import (
    BASE,
    BUFFERED,
    DUPLEX,
    Desk,
    body,
    headers,
    opening,
    passed_on,
    refusal,
    say,
    wired,
)


def rule(target: str, *models: str) -> RewriteRule:
    return RewriteRule(models=frozenset(models), targets=(RewriteTarget(target),))


def rewriting(*rules: RewriteRule) -> Desk:
    desk = Desk()
    made = ModelRewrite(name="r", created="2026-01-01T00:00:00Z", rules=rules)
    desk.datastore.apply(SetRewrites([made]))
    return desk


@pytest.fixture
def desk() -> Desk:
    return rewriting(rule("int", "pub"))


def decision(commands: Sequence[Command]) -> SendTo:
    (found,) = (command for command in commands if isinstance(command, SendTo))
    return found


def test_b06_a_request_that_no_rule_speaks_of_stays_as_it_was(desk: Desk) -> None:
    data = b'{ "model" : "other" ,  "prompt" : "hi" }'
    assert passed_on(desk.talk(opening(), RequestBody(data, end=True))) == data


def test_p01_the_length_is_that_of_the_body_that_is_sent() -> None:
    target = "meta-llama/Llama-3.1-8B-Instruct"
    desk = rewriting(rule(target, "food"))
    data = b'{ "model" : "food" ,  "prompt" : "hi" }'
    commands = desk.talk(opening(content_length="39"), RequestBody(data, end=True))
    sent = passed_on(commands)
    assert sent == data.replace(b"food", target.encode())
    assert decision(commands).route.set_headers == {"content-length": str(len(sent))}


def test_p01_no_length_is_added_where_the_client_sent_none(desk: Desk) -> None:
    commands = desk.talk(
        opening(transfer_encoding="chunked"), RequestBody(body(model="pub"), end=True)
    )
    assert decision(commands).route.set_headers == {}


def test_a_buffered_body_is_replaced_as_a_whole(desk: Desk) -> None:
    data = body(model="pub")
    event = opening(modes=BUFFERED, content_length=str(len(data)))
    sent = decision(desk.talk(event, RequestBody(data, end=True)))
    assert sent.body == data.replace(b'"pub"', b'"int"')
    assert sent.route.set_headers == {"content-length": str(len(sent.body or b""))}


def test_the_rewrite_header_names_the_model_where_no_rule_does(desk: Desk) -> None:
    event = opening(x_llm_d_model_name_rewrite="wanted")
    assert passed_on(desk.talk(event, RequestBody(body(model="m"), end=True))) == body(
        model="wanted"
    )
    assert passed_on(desk.talk(event, RequestBody(body(model="pub"), end=True))) == body(
        model="int"
    )


def test_b04_a_rule_for_every_model_also_names_a_missing_one() -> None:
    desk = rewriting(rule("base"), rule("special", "s"))
    for data in (b'{"prompt":"x"}', b'{"prompt":"x","model":null}', b'{"prompt":"x","model":""}'):
        assert b'"base"' in passed_on(desk.talk(opening(), RequestBody(data, end=True)))
    exact = passed_on(desk.talk(opening(), RequestBody(body(model="s"), end=True)))
    assert exact == body(model="special")


def test_a_rule_without_targets_leaves_no_model() -> None:
    desk = rewriting(RewriteRule(models=frozenset({"m"})))
    assert refusal(desk.talk(opening(), RequestBody(body(model="m"), end=True))).status == 400


class Witness:
    """Notes the model and the priority that plugins see."""

    type_name: ClassVar = "witness"
    consumes: ClassVar = Consumes(MODEL_NAME, REQUEST_PRIORITY)
    saw: ClassVar[list[tuple[str, int]]] = []

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        self.saw.append((data[MODEL_NAME], data[REQUEST_PRIORITY]))


@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({"x_llm_d_inference_objective": "urgent"}, 10),
        ({"x_gateway_inference_objective": "urgent"}, 10),
        ({"x_llm_d_inference_objective": "unknown"}, 0),
        ({}, 0),
    ],
)
def test_plugins_see_the_target_and_the_objectives_priority(
    fields: dict[str, str], priority: int
) -> None:
    Witness.saw.clear()
    desk = Desk(wired("plugins: [{type: witness}]", Witness))
    desk.datastore.apply(SetObjectives({"urgent": Objective("urgent", 10)}))
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    desk.talk(opening({**BASE, **named}), RequestBody(body(model="m"), end=True))
    assert Witness.saw == [("m", priority)]


def answered(
    desk: Desk, fields: Mapping[str, str], modes: Modes = DUPLEX
) -> tuple[Session, Command]:
    """A session whose request was rewritten, and what was said to the response's headers."""
    session = desk.session()
    say(session, opening(modes=modes), RequestBody(body(model="pub"), end=True))
    event = ResponseHeaders(headers({":status": "200", **fields}), end=False)
    (reply,) = session.handle(event)
    return session, reply


JSON = {"content-type": "application/json", "content-length": "40"}
ANSWER = b'{"model": "int","choices":[{"text":"say \\"model\\":\\"int\\""}]}'
RESTORED = ANSWER.replace(b'"int"', b'"pub"', 1)


def test_b13_the_answer_names_the_model_that_was_asked_for(desk: Desk) -> None:
    session, reply = answered(desk, JSON)
    assert reply == Continue(Part.RESPONSE_HEADERS, {}, ("content-length",))
    commands = say(
        session, ResponseBody(ANSWER[:12], end=False), ResponseBody(ANSWER[12:], end=True)
    )
    assert passed_on(commands, Part.RESPONSE_BODY) == RESTORED


def test_b13_so_does_a_stream(desk: Desk) -> None:
    session, _ = answered(desk, {"content-type": "Text/Event-Stream; charset=utf-8"})
    commands = say(
        session,
        ResponseBody(b'data: {"model":"in', end=False),
        ResponseBody(b't"}\n\n', end=False),
        ResponseBody(b"", end=True),
    )
    assert passed_on(commands, Part.RESPONSE_BODY) == b'data: {"model":"pub"}\n\n'


def test_what_is_held_back_comes_before_the_trailers(desk: Desk) -> None:
    session, _ = answered(desk, {"content-type": "text/event-stream"})
    commands = say(session, ResponseBody(b'data: {"model":"int"}', end=False), ResponseTrailers())
    assert commands[-2:] == [
        Chunk(Part.RESPONSE_BODY, b'data: {"model":"pub"}', end=False),
        Continue(Part.RESPONSE_TRAILERS),
    ]


@pytest.mark.parametrize("mode", [BodyMode.BUFFERED, BodyMode.STREAMED])
def test_in_other_modes_the_piece_is_replaced(desk: Desk, mode: BodyMode) -> None:
    session, _ = answered(desk, JSON, Modes(BodyMode.BUFFERED, mode))
    assert session.handle(ResponseBody(ANSWER, end=True)) == [Replace(Part.RESPONSE_BODY, RESTORED)]


@pytest.mark.parametrize(
    "fields", [{"content-type": "text/plain"}, {**JSON, "content-encoding": "gzip"}, {}]
)
def test_answers_that_cannot_be_read_pass_as_they_are(desk: Desk, fields: dict[str, str]) -> None:
    session, reply = answered(desk, fields)
    assert reply == Continue(Part.RESPONSE_HEADERS)
    commands = session.handle(ResponseBody(ANSWER, end=True))
    assert passed_on(commands, Part.RESPONSE_BODY) == ANSWER
