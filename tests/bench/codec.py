"""What the codec costs on the messages of an exchange: Envoy's as recorded, and replies to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Final

from pointsman.proto import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderAppendAction,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    WireCodec,
    decode,
    encode,
    struct_of,
)

REPETITIONS: Final = 2_000
ROUNDS: Final = 5
"""The best of them counts: the others had company on the machine."""
DESTINATION: Final = "x-gateway-destination-endpoint"
ENDPOINT: Final = "10.0.0.1:8000"
RECORDED: Final = Path(__file__).parents[1] / "proto" / "recorded.txt"


def rows() -> list[tuple[str, float]]:
    """Name and CPU microseconds per operation."""
    WireCodec(ProcessingRequest, ProcessingResponse)
    headers, body, *_ = messages = _recorded()
    route, chunk, large = _route(), _chunk(150), _chunk(62_000)
    return [
        ("decode request_headers, 12 headers", timed(lambda: decode(ProcessingRequest, headers))),
        ("decode request_body, 2 KB", timed(lambda: decode(ProcessingRequest, body))),
        ("encode a route reply", timed(lambda: encode(route))),
        ("make and encode a route reply", timed(lambda: encode(_route()))),
        ("encode a chunk of 150 bytes", timed(lambda: encode(chunk))),
        ("make and encode a chunk of 150 bytes", timed(lambda: encode(_chunk(150)))),
        ("encode a chunk of 62,000 bytes", timed(lambda: encode(large))),
        ("an exchange: decode 6, make and encode 5", timed(lambda: _exchange(messages))),
    ]


def timed(operation: Callable[[], object]) -> float:
    """CPU microseconds of one *operation*."""
    return min(_round(operation) for _ in range(ROUNDS)) / REPETITIONS * 1e6


def _round(operation: Callable[[], object]) -> float:
    start = process_time()
    for _ in range(REPETITIONS):
        operation()
    return process_time() - start


def _recorded() -> list[bytes]:
    """The six messages of an exchange with a body of 2 KB and a JSON response."""
    lines = RECORDED.read_text().splitlines()
    return [bytes.fromhex(line.split()[2]) for line in lines if line.startswith("json ")]


def _exchange(messages: list[bytes]) -> None:
    for message in messages:
        decode(ProcessingRequest, message)
    encode(_route())
    encode(_chunk(2048))
    encode(ProcessingResponse(response_headers=HeadersResponse()))
    encode(_chunk(231))
    encode(_chunk(0))


def _route() -> ProcessingResponse:
    mutation = HeaderMutation(
        set_headers=[_header(DESTINATION, ENDPOINT), _header("content-length", "2048")]
    )
    return ProcessingResponse(
        request_headers=HeadersResponse(
            response=CommonResponse(header_mutation=mutation, clear_route_cache=True)
        ),
        dynamic_metadata=struct_of({"envoy.lb": {DESTINATION: ENDPOINT}}),
    )


def _header(name: str, value: str) -> HeaderValueOption:
    return HeaderValueOption(
        header=HeaderValue(key=name, raw_value=value.encode()),
        append_action=HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )


def _chunk(size: int) -> ProcessingResponse:
    streamed = StreamedBodyResponse(body=bytes(size), end_of_stream=True)
    mutation = BodyMutation(streamed_response=streamed)
    return ProcessingResponse(
        request_body=BodyResponse(response=CommonResponse(body_mutation=mutation))
    )
