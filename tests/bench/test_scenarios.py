from __future__ import annotations

import json

import pytest

from .messages import protos
from .rows import Row, exchanges
from .scenarios import KB, buffered, chat, chat_body, duplex, sse

pytestmark = pytest.mark.long

ROWS = {row.name: row for row in exchanges()}


@pytest.mark.parametrize("size", [2 * KB, 64 * KB, 400 * KB])
def test_a_chat_body_has_exactly_its_size_and_names_the_model(size: int) -> None:
    body = chat_body(size)
    assert len(body) == size
    assert json.loads(body)["model"] == "m"


def test_a_chat_body_cannot_be_smaller_than_its_envelope() -> None:
    with pytest.raises(ValueError, match="at least"):
        chat_body(20)


@pytest.mark.parametrize(
    ("name", "messages", "replies"),
    [
        ("chat 2 KB full duplex", 6, 5),
        ("chat 64 KB full duplex", 7, 6),
        ("chat 400 KB full duplex", 18, 11),
        ("lean buffered 2 KB", 2, 2),
        ("lean buffered 400 KB", 2, 2),
        ("request phase only, 2 KB", 3, 2),
        ("SSE 16 chunks", 22, 21),
        ("SSE 128 chunks", 134, 133),
    ],
)
def test_an_exchange_has_as_many_messages_as_recorded(
    name: str, messages: int, replies: int
) -> None:
    exchange = ROWS[name].exchange
    assert (exchange.messages, exchange.replies) == (messages, replies)


@pytest.mark.parametrize("row", exchanges(), ids=lambda row: row.name)
def test_the_body_parts_join_to_the_body(row: Row) -> None:
    sent = [message for step in row.exchange.steps for message in step.messages]
    read = [protos().ProcessingRequest.FromString(message) for message in sent]
    assert b"".join(message.request_body.body for message in read) == row.exchange.body


def test_full_duplex_ends_a_body_with_an_empty_message_as_recorded() -> None:
    last = duplex("d", chat_body(2 * KB)).steps[0].messages[-1]
    assert last == bytes.fromhex("220210014200")


def test_a_buffered_body_comes_in_one_message_that_ends_it() -> None:
    body = chat_body(400 * KB)
    (whole,) = buffered("b", body).steps[1].messages
    read = protos().ProcessingRequest.FromString(whole)
    assert (read.request_body.body, read.request_body.end_of_stream) == (body, True)


def test_the_headers_are_twelve_with_raw_values_and_say_the_mode() -> None:
    first = protos().ProcessingRequest.FromString(chat(2 * KB, "c").steps[0].messages[0])
    headers = first.request_headers.headers.headers
    assert len(headers) == 12
    assert all(header.raw_value and not header.value for header in headers)
    modes = first.protocol_config
    assert (modes.request_body_mode, modes.response_body_mode) == (4, 4)
    assert first.HasField("metadata_context")


def test_response_chunks_wait_for_one_another() -> None:
    steps = sse(16, "s").steps
    assert [len(step.messages) for step in steps] == [3, 2, *[1] * 15, 2]
    assert [step.replies for step in steps] == [2, 2, *[1] * 15, 2]
