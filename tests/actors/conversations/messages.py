"""ext_proc's messages as the official protobuf runtime makes them.

What a proxy says, and what it is to be told: nothing of the daemon's own has a part in either.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.proto import oracle

from pointsman.proto import ProcessingRequest, ProcessingResponse

Message = Any
"""The classes are made at run time, so no type checker knows the fields of a message."""
Pairs = Sequence[tuple[str, bytes | str]]
"""Headers in their order: bytes go to ``raw_value``, texts to ``value``."""
Modes = tuple[str, str]
"""Of the request's body and of the response's."""

_REQUEST: Final[Any] = oracle.new(ProcessingRequest).__class__
_RESPONSE: Final[Any] = oracle.new(ProcessingResponse).__class__

DESTINATION: Final = "x-gateway-destination-endpoint"
SUBSET: Final = "x-gateway-destination-endpoint-subset"
LOWEST: Final = "10.0.0.2:8000"
"""The endpoint with the shorter queue."""
OTHER: Final = "10.0.0.1:8000"
FIELDS: Final[Pairs] = (
    (":method", b"POST"),
    (":path", b"/v1/completions"),
    ("content-type", b"application/json"),
)
STATUS: Final[Pairs] = ((":status", b"200"),)
BODY: Final = b'{"model": "m", "prompt": "hi"}'


def written(message: Message) -> bytes:
    """The message's one spelling: fields and the keys of maps in order."""
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def rewritten(reply: bytes) -> bytes:
    """A reply as the official runtime writes what it reads of it."""
    return written(_RESPONSE.FromString(reply))


# -- what the proxy says ----------------------------------------------------------------------


def _http_headers(fields: Pairs, end: bool) -> Mapping[str, Any]:
    listed = [
        {"key": key, "value" if isinstance(value, str) else "raw_value": value}
        for key, value in fields
    ]
    return {"headers": {"headers": listed}, "end_of_stream": end}


def _beside(message: Message, modes: Modes | None, metadata: Mapping[str, Any]) -> bytes:
    """*message* with the modes that the proxy is configured with, and metadata by namespace."""
    if modes is not None:
        message.protocol_config.request_body_mode = _number(modes[0])
        message.protocol_config.response_body_mode = _number(modes[1])
    for namespace, values in metadata.items():
        message.metadata_context.filter_metadata[namespace].update(values)
    return written(message)


def _number(mode: str) -> int:
    """A mode's number; one that has no name yet is its own."""
    config = _REQUEST.DESCRIPTOR.fields_by_name["protocol_config"].message_type
    names = config.fields_by_name["request_body_mode"].enum_type.values_by_name
    number: int = names[mode].number if mode in names else int(mode)
    return number


def request_headers(
    fields: Pairs = FIELDS,
    *,
    end: bool = False,
    modes: Modes | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> bytes:
    message = _REQUEST(request_headers=_http_headers(fields, end))
    return _beside(message, modes, metadata or {})


def request_body(
    data: bytes, *, end: bool = False, metadata: Mapping[str, Any] | None = None
) -> bytes:
    message = _REQUEST(request_body={"body": data, "end_of_stream": end})
    return _beside(message, None, metadata or {})


def request_trailers() -> bytes:
    return written(_REQUEST(request_trailers={}))


def response_headers(
    fields: Pairs = STATUS,
    *,
    end: bool = False,
    modes: Modes | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> bytes:
    message = _REQUEST(response_headers=_http_headers(fields, end))
    return _beside(message, modes, metadata or {})


def response_body(data: bytes, *, end: bool = False) -> bytes:
    return written(_REQUEST(response_body={"body": data, "end_of_stream": end}))


def response_trailers() -> bytes:
    return written(_REQUEST(response_trailers={}))


def window_update() -> bytes:
    """Says nothing of the exchange."""
    return written(_REQUEST(client_window_update={"window_increment_sidestream_to_upstream": 1}))


# -- what it is told --------------------------------------------------------------------------


def _mutation(set_headers: Pairs, removed: Iterable[str] = ()) -> Mapping[str, Any]:
    action = "OVERWRITE_IF_EXISTS_OR_ADD"
    options = [
        {"header": {"key": key, "raw_value": value}, "append_action": action}
        for key, value in set_headers
    ]
    return {"set_headers": options, "remove_headers": removed}


def _asking(message: Message, ask: Modes | None) -> bytes:
    if ask is not None:
        message.mode_override.request_body_mode = _number(ask[0])
        message.mode_override.response_header_mode = 1  # SEND
        message.mode_override.response_body_mode = _number(ask[1])
    return written(message)


def goes_on(
    part: str, *, added: Pairs = (), removed: Sequence[str] = (), ask: Modes | None = None
) -> bytes:
    """This part is good as it is, but for its headers."""
    if part.endswith("trailers"):
        return written(_RESPONSE(**{part: {}}))
    common = {"header_mutation": _mutation(added, removed)} if added or removed else {}
    return _asking(_RESPONSE(**{part: {"response": common}}), ask)


def sent_to(
    part: str,
    destination: str = LOWEST,
    *,
    added: Pairs = (),
    removed: Sequence[str] = (),
    body: bytes | None = None,
    scores: Mapping[str, float] | None = None,
    ask: Modes | None = None,
) -> bytes:
    """The decision: header and metadata say the same, and the route is chosen again."""
    mutation = _mutation(((DESTINATION, destination.encode()), *added), removed)
    common: dict[str, Any] = {"header_mutation": mutation, "clear_route_cache": True}
    if body is not None:
        common["body_mutation"] = {"body": body}
    told: dict[str, Any] = {DESTINATION: destination}
    if scores is not None:
        told[f"{DESTINATION}-scores"] = scores
    message = _RESPONSE(**{part: {"response": common}})
    message.dynamic_metadata.update({"envoy.lb": told})
    return _asking(message, ask)


def decides(reply: bytes) -> bool:
    """Whether that is the decision."""
    said: bool = _RESPONSE.FromString(reply).HasField("dynamic_metadata")
    return said


def piece(part: str, data: bytes, *, end: bool = False) -> bytes:
    """One reply's share of a body in full duplex."""
    return _mutated(part, {"streamed_response": {"body": data, "end_of_stream": end}})


def pieces(part: str, data: bytes, *, end: bool) -> Sequence[bytes]:
    """A body in full duplex, in the shares that proxies take."""
    starts = range(0, len(data), 62_000) or (0,)
    return [
        piece(part, data[start : start + 62_000], end=end and start == starts[-1])
        for start in starts
    ]


def replaced(part: str, data: bytes) -> bytes:
    """Other bytes in the place of a piece, or of a buffered body."""
    return _mutated(part, {"body": data})


def _mutated(part: str, mutation: Mapping[str, Any]) -> bytes:
    return written(_RESPONSE(**{part: {"response": {"body_mutation": mutation}}}))


TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    412: "precondition_failed_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def refused(status: int, message: str, *headers: tuple[str, bytes]) -> bytes:
    """An error in the words of OpenAI's API, in place of the model server's answer."""
    kind = TYPES.get(status, "server_error")
    error = {"error": {"message": message, "type": kind, "code": status}}
    answer = {
        "status": {"code": status},
        "headers": _mutation((("content-type", b"application/json"), *headers)),
        "body": json.dumps(error).encode(),
        "details": "pointsman",
    }
    return written(_RESPONSE(immediate_response=answer))
