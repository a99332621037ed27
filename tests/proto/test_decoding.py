"""What is read of regular and of odd bytes, and what is refused."""

from __future__ import annotations

import tracemalloc

import pytest

from pointsman.proto import (
    BodySendMode,
    DecodeError,
    Duration,
    HeaderMap,
    HeaderMutation,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    ProcessingRequest,
    ProtocolConfiguration,
    Struct,
    Value,
    decode,
    encode,
    struct_of,
    values_of,
)
from pointsman.proto.wire import varint

from . import everything

MEGABYTE = 1 << 20


def nested(levels: int) -> bytes:
    """A Struct in a Struct in a Struct."""
    data = b""
    for _ in range(levels):
        value = b"\x2a" + varint(len(data)) + data
        entry = b"\x12" + varint(len(value)) + value
        data = b"\x0a" + varint(len(entry)) + entry
    return data


def test_absent_fields_read_as_their_defaults() -> None:
    request = decode(ProcessingRequest, b"")
    assert request == ProcessingRequest()
    assert (request.request_body, request.attributes, request.observability_mode) == (
        None,
        {},
        False,
    )


def test_lists_and_dicts_are_not_shared_between_messages() -> None:
    one, other = decode(HeaderMap, b""), decode(HeaderMap, b"")
    one.headers.append(HeaderValue(key="a"))
    assert (other.headers, HeaderMap().headers) == ([], [])


def test_messages_look_as_if_they_had_been_constructed() -> None:
    body = decode(HttpBody, b"\x0a\x01x\x10\x01")
    assert body == HttpBody(body=b"x", end_of_stream=True)
    assert repr(body) == "HttpBody(body=b'x', end_of_stream=True)"


def test_the_last_of_a_oneof_wins() -> None:
    data = encode(Value(string_value="a")) + encode(Value(struct_value=Struct()))
    assert decode(Value, data) == Value(struct_value=Struct())


def test_a_message_that_occurs_again_is_merged_into_the_first() -> None:
    first = encode(ProcessingRequest(request_body=HttpBody(body=b"body")))
    second = encode(ProcessingRequest(request_body=HttpBody(end_of_stream=True)))
    assert decode(ProcessingRequest, first + second) == ProcessingRequest(
        request_body=HttpBody(body=b"body", end_of_stream=True)
    )


def test_the_last_entry_with_a_key_wins() -> None:
    both = encode(struct_of({"a": 1.0, "b": 2.0})) + encode(struct_of({"a": 3.0}))
    assert values_of(decode(Struct, both)) == {"a": 3.0, "b": 2.0}


@pytest.mark.parametrize(
    "data",
    [b"\x1a\x03\x01\x96\x01", b"\x18\x01\x18\x96\x01", b"\x18\x01\x1a\x02\x96\x01"],
    ids=["packed", "one by one", "mixed"],
)
def test_numbers_are_read_packed_and_one_by_one(data: bytes) -> None:
    assert decode(everything.Repeated, data).int32s == [1, 150]


def test_members_of_enums_without_a_name_keep_their_number() -> None:
    config = decode(ProtocolConfiguration, b"\x08\x63")
    assert config.request_body_mode == 99
    assert isinstance(config.request_body_mode, BodySendMode)
    assert encode(config) == b"\x08\x63"


def test_header_values_are_any_bytes() -> None:
    assert decode(HeaderValue, b"\x1a\x02\xff\xfe").raw_value == b"\xff\xfe"


def test_text_that_is_not_utf_8_is_readable_and_can_be_sent_on() -> None:
    header = decode(HeaderValue, b"\x12\x03a\xffb")
    assert header.value == "a\N{REPLACEMENT CHARACTER}b"
    assert decode(HeaderValue, encode(header)) == header


def test_a_known_field_with_the_wrong_wire_type_is_stepped_over() -> None:
    assert decode(HttpHeaders, b"\x1d\x01\x00\x00\x00\x0a\x00") == HttpHeaders(headers=HeaderMap())


def test_a_group_is_stepped_over_with_all_that_is_in_it() -> None:
    group = b"\x3b" + b"\x43\x08\x01\x44" + b"\x12\x01x" + b"\x3c"
    assert decode(HttpBody, group + b"\x10\x01") == HttpBody(end_of_stream=True)


def test_structs_may_nest_but_not_without_limit() -> None:
    decode(Struct, nested(40))
    with pytest.raises(DecodeError, match="not a Struct: messages are nested too deeply"):
        decode(Struct, nested(5_000))


def test_groups_may_nest_but_not_without_limit() -> None:
    decode(HttpBody, b"\x3b" * 90 + b"\x3c" * 90)
    with pytest.raises(DecodeError, match="groups are nested too deeply"):
        decode(HttpBody, b"\x3b" * MEGABYTE)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a", "it is cut short"),
        (b"\x0a\x05abc", "a field runs over the end of its message"),
        (b"\x10", "it is cut short"),
        (b"\x10" + b"\x80" * 10 + b"\x01", "a varint has more than ten bytes"),
        (b"\x80\x80\x80\x80\x10", "a tag or a length does not fit in 32 bits"),
        (b"\x8a\x80\x80\x80\x80\x00\x00", "a tag or a length does not fit in 32 bits"),
        (b"\x0a\xff\xff\xff\xff\x7f", "a tag or a length does not fit in 32 bits"),
        (b"\x00\x00", "a field has the number 0"),
        (b"\x0e", "a field has the wire type 6"),
        (b"\x3c", "a field has the wire type 4"),
        (b"\x3b\x44", "a group ends that did not begin"),
        (b"\x3b", "it is cut short"),
        (b"\x39\x00", "a field runs over the end of its message"),
    ],
    ids=lambda value: value.hex(" ") if isinstance(value, bytes) else "",
)
def test_malformed_bytes_are_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(HttpBody, data)
    assert str(caught.value) == f"not a HttpBody: {reason}"


def test_a_part_cannot_reach_beyond_the_message_that_it_is_in() -> None:
    inner = b"\x0a\x05ab"
    data = b"\x22" + varint(len(inner)) + inner + b"\x50\x01\x50\x01"
    with pytest.raises(DecodeError, match="a field runs over the end of its message"):
        decode(ProcessingRequest, data)


@pytest.mark.parametrize("data", [b"\x0a\x03\x00\x00\x00", b"\x1a\x02\x01\x80", b"\x09\x00"])
def test_numbers_that_are_cut_short_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(everything.Repeated, data)


def test_tags_may_have_more_bytes_than_they_need() -> None:
    assert decode(Duration, b"\x88\x00\x05") == Duration(seconds=5)


def test_a_lying_length_costs_no_memory() -> None:
    data = b"\x0a\xff\xff\xff\xff\x07" + b"x" * 100
    decode(HttpBody, b"")
    tracemalloc.start()
    with pytest.raises(DecodeError):
        decode(HttpBody, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEGABYTE


def test_a_body_is_copied_once() -> None:
    data = encode(ProcessingRequest(request_body=HttpBody(body=bytes(8 * MEGABYTE))))
    decode(ProcessingRequest, b"")
    tracemalloc.start()
    decode(ProcessingRequest, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 9 * MEGABYTE


def test_all_of_a_long_list_of_headers_is_read() -> None:
    headers = HeaderMap(headers=[HeaderValue(key=f"h{n}", raw_value=b"v" * n) for n in range(300)])
    assert decode(HeaderMap, encode(headers)) == headers


def test_an_empty_text_in_a_list_counts() -> None:
    assert decode(HeaderMutation, b"\x12\x00") == HeaderMutation(remove_headers=[""])
