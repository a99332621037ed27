"""What is right to hear at the end of a play, given the endpoints that there were meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from tests.bench.checks import WrongReplyError, check, destination
from tests.bench.messages import protos
from tests.bench.scenarios import Exchange

Judge = Callable[[Sequence[bytes], Collection[str]], None]
"""Raises WrongReplyError."""


def routed(exchange: Exchange) -> Judge:
    """The request goes to one of the endpoints, and no byte of a body is another."""
    return lambda replies, endpoints: check(exchange, replies, endpoints)


def refused(status: int, *, after: int = 0) -> Judge:
    """An error of that HTTP status in OpenAI's shape, *after* so many replies of another kind."""

    def judge(replies: Sequence[bytes], endpoints: Collection[str]) -> None:
        if len(replies) != after + 1:
            raise WrongReplyError(f"{len(replies)} replies, the refusal is to be number {after}")
        read = protos().ProcessingResponse.FromString(replies[-1])
        refusal = read.immediate_response
        if refusal.status.code != status:
            raise WrongReplyError(f"not refused with {status}: {str(read)[:300]}")
        error = json.loads(refusal.body)["error"]
        if set(error) != {"message", "type", "code"} or error["code"] != status:
            raise WrongReplyError(f"an error of another shape: {error}")

    return judge


def silent(*, after: int = 0) -> Judge:
    """Nothing is said beyond so many replies."""

    def judge(replies: Sequence[bytes], endpoints: Collection[str]) -> None:
        if len(replies) != after:
            raise WrongReplyError(f"{len(replies)} replies in place of {after}")

    return judge


def trailed(body: bytes) -> Judge:
    """A decision, the body without an end of its own, and trailers."""

    def judge(replies: Sequence[bytes], endpoints: Collection[str]) -> None:
        read = [protos().ProcessingResponse.FromString(reply) for reply in replies]
        kinds = [reply.WhichOneof("response") for reply in read]
        if kinds != ["request_headers", *["request_body"] * (len(read) - 2), "request_trailers"]:
            raise WrongReplyError(f"replies of other kinds: {kinds}")
        if (named := destination(read[0].request_headers.response)) not in endpoints:
            raise WrongReplyError(f"{named!r} is not among the endpoints")
        streamed = [each.request_body.response.body_mutation.streamed_response for each in read]
        if b"".join(part.body for part in streamed) != body:
            raise WrongReplyError("the parts of the body do not join to what was sent")
        if any(part.end_of_stream for part in streamed):
            raise WrongReplyError("the body ends before its trailers")

    return judge
