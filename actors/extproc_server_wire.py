"""Between ext_proc's messages and the session's vocabulary.

Replies are bytes. Most requests get one of few replies: those are encoded once and kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from pointsman.kernel.model import Buffer, Headers, parse_subset
from pointsman.proto import (
    BodyMutation,
    BodyResponse,
    BodySendMode,
    CommonResponse,
    HeaderAppendAction,
    HeaderMutation,
    HeaderSendMode,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpHeaders,
    HttpStatus,
    ImmediateResponse,
    Json,
    Metadata,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
    StatusCode,
    Struct,
    TrailersResponse,
    encode,
    struct_of,
    values_of,
)
from pointsman.proto.wire import varint

from .conversation import (
    ASSUMED_MODES,
    BodyMode,
    Chunk,
    Command,
    Continue,
    Event,
    Modes,
    Part,
    Refuse,
    Replace,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    SendTo,
)

DESTINATION: Final = "x-gateway-destination-endpoint"
LB_NAMESPACE: Final = "envoy.lb"
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
SCORES_KEY: Final = f"{DESTINATION}-scores"
SERVED_KEY: Final = f"{DESTINATION}-served"
SUBSET_KEY: Final = "x-gateway-destination-endpoint-subset"
ERROR_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    412: "precondition_failed_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def event_of(message: ProcessingRequest) -> Event | None:
    """What a message says; None for one that says nothing."""
    if (body := message.request_body) is not None:
        subset = _subset(message.metadata_context)
        return RequestBody(body.body, body.end_of_stream, subset)
    if (body := message.response_body) is not None:
        return ResponseBody(body.body, body.end_of_stream)
    if (headers := message.request_headers) is not None:
        return RequestHeaders(
            _headers(headers),
            headers.end_of_stream,
            _modes(message.protocol_config),
            _subset(message.metadata_context),
        )
    if (headers := message.response_headers) is not None:
        served = partial(_served, message.metadata_context)
        modes = _modes(message.protocol_config)
        return ResponseHeaders(_headers(headers), headers.end_of_stream, served, modes)
    if message.request_trailers is not None:
        return RequestTrailers()
    if message.response_trailers is not None:
        return ResponseTrailers()
    return None


def piece_of(message: bytes) -> bytes | None:
    """What an encoded ProcessingRequest carries, if that is a piece of a response and no more.

    Read by hand, since these come most often. None for what is more than a frame holds, for a last
    piece, for all other messages, and for those that are none.
    """
    size = len(message)
    if not 8 <= size <= _FRAME or message[0] != _RESPONSE_BODY:
        return None
    # No length that fits into a frame takes more than two bytes.
    start, length = 2, message[1]
    if length > 127:
        start, length = 3, length - 128 + (message[2] << 7)
    end = start + length
    if end != size and message[end:] != _NO_METADATA:
        return None
    first, length = start + 2, message[start + 1]
    if length > 127:
        first, length = start + 3, length - 128 + (message[start + 2] << 7)
    return message[first:end] if message[start] == _BODY and first + length == end else None


def _headers(message: HttpHeaders) -> Headers:
    """Some proxies fill ``value``, Envoy fills ``raw_value``."""
    if message.headers is None:
        return Headers({})
    return Headers(
        {h.key.lower(): h.raw_value or h.value.encode() for h in message.headers.headers}
    )


def _modes(config: ProtocolConfiguration | None) -> Modes:
    if config is None:
        return ASSUMED_MODES
    return _modes_of(int(config.request_body_mode), int(config.response_body_mode))


@lru_cache(maxsize=64)
def _modes_of(request: int, response: int) -> Modes:
    return Modes(_mode(request), _mode(response))


def _mode(number: int) -> BodyMode:
    try:
        return BodyMode(number)
    except ValueError:  # a newer proxy's: all that is newer streams both ways
        return BodyMode.FULL_DUPLEX


def _served(metadata: Metadata | None) -> str | None:
    """Who answered; the proxy may have retried."""
    if metadata is None or (said := metadata.filter_metadata.get(LB_NAMESPACE)) is None:
        return None
    served = values_of(said).get(SERVED_KEY)
    return served if isinstance(served, str) else None


def _subset(metadata: Metadata | None) -> frozenset[str] | None:
    """The proxy's hint: a list of addresses, or one text with commas."""
    if metadata is None or (hint := metadata.filter_metadata.get(SUBSET_NAMESPACE)) is None:
        return None
    allowed: Json = values_of(hint).get(SUBSET_KEY)
    if isinstance(allowed, str):
        return parse_subset(token for token in allowed.split(",") if token.strip())
    return parse_subset(allowed) if isinstance(allowed, list) else None


def reply_of(command: Command) -> bytes:
    """The encoded ProcessingResponse that carries out *command*."""
    match command:
        case Chunk(part, data, end):
            return chunk_reply(part, data, end)
        case Continue(part, set_headers, remove_headers, ask):
            if not set_headers and not remove_headers and ask is None:
                return _CONTINUES[part]
            return _continue(part, tuple(set_headers.items()), remove_headers, ask)
        case SendTo(part, route, body, ask):
            added = tuple(route.set_headers.items())
            if body is None and route.scores is None:
                return _send_to(part, route.destination, added, route.remove_headers, ask)
            message = _decision(part, route.destination, added, route.remove_headers, ask)
            if route.scores is not None:
                message.dynamic_metadata = _metadata(route)
            return encode(message if body is None else _with_body(message, body))
        case Replace(part, data):
            return encode(_with_body(_about(part, CommonResponse()), data))
        case Refuse():
            return _refuse(command)
        case _:
            raise AssertionError("a decision to wait for is no reply")


Pairs = tuple[tuple[str, str], ...]


def _set_headers(pairs: Sequence[tuple[str, str]]) -> list[HeaderValueOption]:
    """The overwriting is explicit: not every proxy's default is Envoy's."""
    action = HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    return [
        HeaderValueOption(
            header=HeaderValue(key=key, raw_value=value.encode("utf-8", "surrogateescape")),
            append_action=action,
        )
        for key, value in pairs
    ]


def _about(part: Part, response: CommonResponse) -> ProcessingResponse:
    match part:
        case Part.REQUEST_HEADERS:
            return ProcessingResponse(request_headers=HeadersResponse(response=response))
        case Part.REQUEST_BODY:
            return ProcessingResponse(request_body=BodyResponse(response=response))
        case Part.RESPONSE_HEADERS:
            return ProcessingResponse(response_headers=HeadersResponse(response=response))
        case Part.RESPONSE_BODY:
            return ProcessingResponse(response_body=BodyResponse(response=response))
        case Part.REQUEST_TRAILERS:
            return ProcessingResponse(request_trailers=TrailersResponse())
        case Part.RESPONSE_TRAILERS:
            return ProcessingResponse(response_trailers=TrailersResponse())


@lru_cache(maxsize=64)
def _override(ask: Modes) -> ProcessingMode:
    """The whole of the modes: what is left out of an override is taken for its default."""
    return ProcessingMode(
        request_body_mode=BodySendMode(ask.request),
        response_header_mode=HeaderSendMode.SEND,
        response_body_mode=BodySendMode(ask.response),
    )


@lru_cache(maxsize=1024)
def _continue(
    part: Part, set_headers: Pairs, removed: tuple[str, ...], ask: Modes | None = None
) -> bytes:
    response = CommonResponse()
    if set_headers or removed:
        response.header_mutation = HeaderMutation(
            set_headers=_set_headers(set_headers), remove_headers=list(removed)
        )
    message = _about(part, response)
    if ask is not None:
        message.mode_override = _override(ask)
    return encode(message)


_CONTINUES: Final[Mapping[Part, bytes]] = {part: _continue(part, (), ()) for part in Part}


@lru_cache(maxsize=4096)
def _send_to(
    part: Part,
    destination: str,
    set_headers: Pairs,
    removed: tuple[str, ...],
    ask: Modes | None = None,
) -> bytes:
    return encode(_decision(part, destination, set_headers, removed, ask))


def _decision(
    part: Part,
    destination: str,
    set_headers: Pairs,
    removed: tuple[str, ...],
    ask: Modes | None,
) -> ProcessingResponse:
    """The header and the dynamic metadata carry the same value."""
    mutation = HeaderMutation(
        set_headers=_set_headers(((DESTINATION, destination), *set_headers)),
        remove_headers=[name for name in removed if name not in dict(set_headers)],
    )
    message = _about(part, CommonResponse(header_mutation=mutation, clear_route_cache=True))
    message.dynamic_metadata = struct_of({LB_NAMESPACE: {DESTINATION: destination}})
    if ask is not None:
        message.mode_override = _override(ask)
    return message


def _metadata(route: Route) -> Struct:
    """The destination, and how every candidate scored."""
    told: Json = {DESTINATION: route.destination, SCORES_KEY: dict(route.scores or {})}
    return struct_of({LB_NAMESPACE: told})


def _with_body(message: ProcessingResponse, body: bytes) -> ProcessingResponse:
    """*message*, which answers a piece of a body, with *body* in its place."""
    answer = message.request_body or message.response_body
    if answer is None or answer.response is None:
        raise AssertionError("only a body can be replaced by a body")
    answer.response.body_mutation = BodyMutation(body=body)
    return message


def chunk_reply(part: Part, data: Buffer, end: bool = False) -> bytes:
    """The one reply that is never the same twice, and comes most often: put together by hand."""
    return _before(part, len(data), end) + data + (_END if end else b"")


@lru_cache(maxsize=4096)
def _before(part: Part, length: int, end: bool) -> bytes:
    """What stands before *length* bytes of data.

    The messages are nested, so each is a tag and a length before what it holds.
    """
    head = bytes((_BODY,)) + varint(length) if length else b""
    size = len(head) + length + (len(_END) if end else 0)
    for tag in _NESTED[part]:
        outer = tag + varint(size)
        head = outer + head
        size += len(outer)
    return head


_FRAME: Final = 16_384  # bytes of a message that comes in one frame, at most
_RESPONSE_BODY: Final = 0x2A  # ProcessingRequest.response_body
_NO_METADATA: Final = b"\x42\x00"  # ProcessingRequest.metadata_context, empty: in all of Envoy's
_BODY: Final = 0x0A  # HttpBody.body, and StreamedBodyResponse.body
_END: Final = b"\x10\x01"  # StreamedBodyResponse.end_of_stream, true
_NESTED: Final[Mapping[Part, Sequence[bytes]]] = {
    # from the inside: BodyMutation.streamed_response, CommonResponse.body_mutation,
    # BodyResponse.response, and ProcessingResponse's request_body or response_body
    Part.REQUEST_BODY: (b"\x1a", b"\x1a", b"\x0a", b"\x1a"),
    Part.RESPONSE_BODY: (b"\x1a", b"\x1a", b"\x0a", b"\x22"),
}


def _refuse(command: Refuse) -> bytes:
    headers = (("content-type", "application/json"), *command.headers.items())
    return encode(
        ProcessingResponse(
            immediate_response=ImmediateResponse(
                status=HttpStatus(code=StatusCode(command.status)),
                headers=HeaderMutation(set_headers=_set_headers(headers)),
                body=error_body(command.status, command.message),
                details="pointsman",
            )
        )
    )


def error_body(status: int, message: str) -> bytes:
    """An error as OpenAI's clients read it."""
    kind = ERROR_TYPES.get(status, "server_error")
    return json.dumps({"error": {"message": message, "type": kind, "code": status}}).encode()
