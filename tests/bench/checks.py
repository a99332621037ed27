"""What the replies to an exchange must say; read with the official protobuf runtime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from .messages import protos
from .scenarios import CHUNK, Exchange

DESTINATION: Final = "x-gateway-destination-endpoint"
OVERWRITE: Final = 2  # OVERWRITE_IF_EXISTS_OR_ADD

# The classes are made at run time, so no type checker knows the fields of a message.
Message = Any


class WrongReplyError(Exception):
    """A reply is not what the exchange calls for; the text says which and why."""


def check(exchange: Exchange, replies: Sequence[bytes], endpoints: Collection[str]) -> None:
    """Read all *replies* to one play of *exchange*; the destination must be in *endpoints*.

    Raises:
        WrongReplyError: a reply is missing, surplus or does not say what it has to.
    """
    if len(replies) != exchange.replies:
        raise WrongReplyError(f"{len(replies)} replies in place of {exchange.replies}")
    read = [protos().ProcessingResponse.FromString(reply) for reply in replies]
    if exchange.buffered:
        _check_buffered(read, endpoints)
    else:
        _check_duplex(exchange, read, endpoints)


def _check_buffered(replies: list[Message], endpoints: Collection[str]) -> None:
    headers, body = replies
    _expect(headers, "request_headers")
    if headers.request_headers.ByteSize() > len(b"\x0a\x00"):
        raise WrongReplyError("the headers' reply is not an empty CONTINUE")
    _expect(body, "request_body")
    _check_decision(body, body.request_body.response, endpoints)
    if body.request_body.response.HasField("body_mutation"):
        raise WrongReplyError("a body that nobody renamed anything in is changed")


def _check_duplex(exchange: Exchange, replies: list[Message], endpoints: Collection[str]) -> None:
    first, *rest = replies
    _expect(first, "request_headers")
    _check_decision(first, first.request_headers.response, endpoints)
    parts = exchange.steps[0].replies - 1
    if exchange.body:
        _check_bodies("request_body", rest[:parts], exchange.body)
    if rest[parts:]:
        _expect(rest[parts], "response_headers")
    if exchange.response:
        _check_bodies("response_body", rest[parts + 1 :], b"".join(exchange.response))


def _check_decision(reply: Message, common: Message, endpoints: Collection[str]) -> None:
    named = destination(common)
    if not set(named.split(",")) <= set(endpoints):
        raise WrongReplyError(f"{named!r} is not among the endpoints")
    if not common.clear_route_cache:
        raise WrongReplyError("the route cache is not cleared")
    _check_metadata(reply, named)


def destination(common: Message) -> str:
    """Where a reply sends the request.

    Raises:
        WrongReplyError: it does not say so once, and over whatever the client said.
    """
    options = common.header_mutation.set_headers
    named = [option for option in options if option.header.key == DESTINATION]
    if len(named) != 1 or named[0].append_action != OVERWRITE:
        raise WrongReplyError(f"{DESTINATION} is not set once, by an explicit overwrite")
    header = named[0].header
    value: str = header.raw_value.decode() or header.value
    return value


def _check_metadata(reply: Message, destination: str) -> None:
    values = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    said = values[DESTINATION].string_value
    if said != destination:
        raise WrongReplyError(f"the header says {destination!r}, the metadata {said!r}")


def _check_bodies(kind: str, replies: list[Message], body: bytes) -> None:
    for reply in replies:
        _expect(reply, kind)
    parts = [getattr(reply, kind).response.body_mutation.streamed_response for reply in replies]
    if b"".join(part.body for part in parts) != body:
        raise WrongReplyError(f"the {kind} parts do not join to what was sent")
    if [part.end_of_stream for part in parts] != [False] * (len(parts) - 1) + [True]:
        raise WrongReplyError(f"not exactly the last {kind} part ends the stream")
    if max(len(part.body) for part in parts) > CHUNK:
        raise WrongReplyError(f"a {kind} part has more than {CHUNK} bytes")


def _expect(reply: Message, kind: str) -> None:
    found = reply.WhichOneof("response")
    if found != kind:
        raise WrongReplyError(f"{found} in place of {kind}: {str(reply)[:200]}")
