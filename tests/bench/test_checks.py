from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from .baseline import Conversation
from .checks import DESTINATION, WrongReplyError, check
from .messages import protos
from .scenarios import KB, Exchange, buffered, chat_body, sse

pytestmark = pytest.mark.long

ENDPOINTS = ["127.0.1.1:8000"]
DUPLEX = sse(3, "streamed")
BUFFERED = buffered("buffered", chat_body(2 * KB))


def answers(exchange: Exchange) -> list[Any]:
    """What the baseline replies to *exchange*."""
    conversation = Conversation(cycle(ENDPOINTS))
    sent = [message for step in exchange.steps for message in step.messages]
    read = map(protos().ProcessingRequest.FromString, sent)
    return [reply for message in read for reply in conversation.answer(message)]


def checked(exchange: Exchange, replies: list[Any]) -> None:
    check(exchange, [reply.SerializeToString() for reply in replies], ENDPOINTS)


@pytest.mark.parametrize("exchange", [DUPLEX, BUFFERED], ids=lambda exchange: exchange.name)
def test_right_replies_pass(exchange: Exchange) -> None:
    checked(exchange, answers(exchange))


def test_a_missing_reply_is_wrong() -> None:
    with pytest.raises(WrongReplyError, match="1 replies in place of 2"):
        checked(BUFFERED, answers(BUFFERED)[:1])


def _elsewhere(replies: list[Any]) -> None:
    common = replies[0].request_headers.response
    common.header_mutation.set_headers[0].header.raw_value = b"127.0.1.9:8000"


def _appended(replies: list[Any]) -> None:
    replies[0].request_headers.response.header_mutation.set_headers[0].append_action = 0


def _kept_route(replies: list[Any]) -> None:
    replies[0].request_headers.response.clear_route_cache = False


def _other_metadata(replies: list[Any]) -> None:
    values = replies[0].dynamic_metadata.fields["envoy.lb"].struct_value.fields
    values[DESTINATION].string_value = "127.0.1.9:8000"


def _changed_body(replies: list[Any]) -> None:
    replies[1].request_body.response.body_mutation.streamed_response.body += b"!"


def _no_end(replies: list[Any]) -> None:
    replies[-1].response_body.response.body_mutation.streamed_response.end_of_stream = False


def _out_of_order(replies: list[Any]) -> None:
    replies.reverse()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (_elsewhere, "not among the endpoints"),
        (_appended, "explicit overwrite"),
        (_kept_route, "route cache"),
        (_other_metadata, "the metadata '127.0.1.9:8000'"),
        (_changed_body, "do not join"),
        (_no_end, "last response_body part"),
        (_out_of_order, "in place of request_headers"),
    ],
)
def test_a_reply_that_says_something_else_is_wrong(
    spoil: Callable[[list[Any]], None], complaint: str
) -> None:
    replies = answers(DUPLEX)
    spoil(replies)
    with pytest.raises(WrongReplyError, match=complaint):
        checked(DUPLEX, replies)


def test_a_decision_before_the_buffered_body_is_wrong() -> None:
    headers, body = answers(BUFFERED)
    headers.request_headers.response.clear_route_cache = True
    with pytest.raises(WrongReplyError, match="empty CONTINUE"):
        checked(BUFFERED, [headers, body])
