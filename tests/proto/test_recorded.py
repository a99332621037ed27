"""The codec on messages as Envoy 1.40 sends them."""

from __future__ import annotations

import betterproto2
import pytest

from pointsman.proto import BodySendMode, HttpBody, Metadata, ProcessingRequest, decode, encode

from . import oracle, recorded

every_message = pytest.mark.parametrize(
    ("field", "data"), recorded.exchange("json") + recorded.exchange("sse")
)


@every_message
def test_each_message_has_the_part_of_the_exchange_it_was_recorded_as(
    field: str, data: bytes
) -> None:
    name, part = betterproto2.which_one_of(decode(ProcessingRequest, data), "request")
    assert name == field
    assert part is not None


@every_message
def test_each_message_is_read_as_the_official_runtime_reads_it(field: str, data: bytes) -> None:
    theirs = oracle.parse(ProcessingRequest, data)
    assert decode(ProcessingRequest, data) == oracle.ours(ProcessingRequest, theirs)


@every_message
def test_each_message_is_read_as_betterproto2_reads_it(field: str, data: bytes) -> None:
    assert decode(ProcessingRequest, data) == ProcessingRequest.parse(data)


@every_message
def test_each_message_comes_back_as_the_same_bytes(field: str, data: bytes) -> None:
    assert encode(decode(ProcessingRequest, data)) == data


def test_the_first_message_tells_headers_and_body_modes() -> None:
    _, data = recorded.exchange("json")[0]
    request = decode(ProcessingRequest, data)
    assert request.request_headers is not None
    assert request.request_headers.headers is not None
    headers = request.request_headers.headers.headers
    assert [header.key for header in headers][:3] == [":authority", ":path", ":method"]
    assert headers[1].raw_value == b"/v1/chat/completions"
    assert request.metadata_context == Metadata()
    assert request.protocol_config is not None
    assert request.protocol_config.request_body_mode is BodySendMode.FULL_DUPLEX_STREAMED


def test_the_end_of_a_body_is_a_message_of_its_own() -> None:
    _, data = recorded.exchange("json")[2]
    assert decode(ProcessingRequest, data).request_body == HttpBody(end_of_stream=True)
