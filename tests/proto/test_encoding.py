"""What is written, and what it costs in memory."""

from __future__ import annotations

import math
import tracemalloc

import betterproto2
import pytest

from pointsman.proto import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HealthCheckResponse,
    HealthListResponse,
    HttpBody,
    HttpStatus,
    ImmediateResponse,
    ListValue,
    ProcessingResponse,
    ServingStatus,
    StatusCode,
    StreamedBodyResponse,
    Struct,
    TrailersResponse,
    Value,
    decode,
    encode,
)

from . import everything, oracle

MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("reply", "data"),
    [
        (ProcessingResponse(request_headers=HeadersResponse()), b"\x0a\x00"),
        (ProcessingResponse(request_trailers=TrailersResponse()), b"\x2a\x00"),
        (ProcessingResponse(dynamic_metadata=Struct()), b"\x42\x00"),
        (BodyMutation(streamed_response=StreamedBodyResponse()), b"\x1a\x00"),
        (BodyMutation(body=b""), b"\x0a\x00"),
        (BodyMutation(clear_body=False), b"\x10\x00"),
        (HeadersResponse(response=CommonResponse()), b"\x0a\x00"),
        (ListValue(values=[Value()]), b"\x0a\x00"),
    ],
    ids=repr,
)
def test_what_is_present_is_written_even_if_it_is_empty(
    reply: betterproto2.Message, data: bytes
) -> None:
    assert encode(reply) == data


@pytest.mark.parametrize(
    "message",
    [HttpBody(), HttpBody(body=b"", end_of_stream=False), CommonResponse(), HeaderMutation()],
    ids=repr,
)
def test_fields_without_presence_are_left_out_when_they_have_their_default(
    message: betterproto2.Message,
) -> None:
    assert encode(message) == b""


def test_entries_of_maps_have_a_key_and_a_value_even_if_they_are_defaults() -> None:
    assert encode(everything.Maps(numbers={0: 0})) == b"\x0a\x04\x08\x00\x10\x00"


def test_minus_zero_is_not_the_default() -> None:
    scalars = everything.Scalars(a_double=-0.0, a_float=-0.0)
    theirs = oracle.parse(everything.Scalars, encode(scalars))
    assert (math.copysign(1, theirs.a_double), math.copysign(1, theirs.a_float)) == (-1, -1)


def test_what_is_not_a_number_comes_back_as_that() -> None:
    back = decode(Value, encode(Value(number_value=math.nan)))
    assert back.number_value is not None
    assert math.isnan(back.number_value)


def test_lists_and_maps_keep_their_order() -> None:
    mutation = HeaderMutation(remove_headers=["c", "a", "b"])
    listing = everything.Maps(numbers={3: 1, 1: 2, 2: 3})
    assert decode(HeaderMutation, encode(mutation)).remove_headers == ["c", "a", "b"]
    assert list(decode(everything.Maps, encode(listing)).numbers) == [3, 1, 2]


def test_numbers_of_statuses_without_a_name_can_be_sent() -> None:
    teapot = ImmediateResponse(status=HttpStatus(code=StatusCode(418)))
    assert oracle.parse(ImmediateResponse, encode(teapot)).status.code == 418


def test_what_decoding_made_can_be_encoded_and_changed() -> None:
    message = decode(HealthListResponse, b"")
    assert encode(message) == b""
    message.statuses["a"] = HealthCheckResponse(status=ServingStatus.SERVING)
    assert oracle.parse(HealthListResponse, encode(message)).statuses["a"].status == 1


def test_a_body_is_copied_once_however_deep_it_is_in_the_reply() -> None:
    streamed = StreamedBodyResponse(body=bytes(8 * MEGABYTE))
    body = CommonResponse(body_mutation=BodyMutation(streamed_response=streamed))
    reply = ProcessingResponse(request_body=BodyResponse(response=body))
    encode(reply)
    tracemalloc.start()
    encode(reply)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 9 * MEGABYTE
