"""The codec as grpclib sees it, and the classes once they have been compiled."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass

import betterproto2
import pytest

from pointsman.proto import (
    CommonResponse,
    DecodeError,
    HeaderMutation,
    HeaderValue,
    HeaderValueOption,
    HealthCheckRequest,
    HealthCheckResponse,
    Prepared,
    ProcessingRequest,
    ProcessingResponse,
    ResponseStatus,
    ServingStatus,
    WireCodec,
    encode,
)
from pointsman.proto.schema import UnsupportedField


@dataclass(eq=False, repr=False)
class Wrapped(betterproto2.Message):
    """As betterproto2 writes fields for which it has a Python type of its own."""

    number: int | None = betterproto2.field(
        1, betterproto2.TYPE_MESSAGE, unwrap=lambda: HealthCheckRequest, optional=True
    )


@pytest.fixture
def codec() -> WireCodec:
    return WireCodec(HealthCheckRequest, HealthCheckResponse, ProcessingRequest, ProcessingResponse)


def test_the_content_type_is_that_of_protobuf(codec: WireCodec) -> None:
    assert codec.__content_subtype__ == "proto"


def test_messages_go_both_ways(codec: WireCodec) -> None:
    reply = HealthCheckResponse(status=ServingStatus.SERVING)
    assert codec.encode(reply, HealthCheckResponse) == b"\x08\x01"
    assert codec.decode(b"\x08\x01", HealthCheckResponse) == reply


def test_a_prepared_reply_is_sent_as_it_is(codec: WireCodec) -> None:
    prepared = Prepared(b"\x0a\x00")
    assert codec.encode(prepared, ProcessingResponse) is prepared


def test_a_message_of_another_type_is_refused(codec: WireCodec) -> None:
    with pytest.raises(TypeError, match="expected ProcessingResponse, not HealthCheckRequest"):
        codec.encode(HealthCheckRequest(), ProcessingResponse)


def test_bytes_of_another_type_are_a_decode_error(codec: WireCodec) -> None:
    with pytest.raises(DecodeError, match="not a ProcessingRequest: it is cut short"):
        codec.decode(b"\x22", ProcessingRequest)


def test_a_class_with_wrapped_types_is_refused_when_it_is_compiled() -> None:
    with pytest.raises(UnsupportedField, match=r"Wrapped\.number: wrapped types have no codec"):
        WireCodec(Wrapped)


@pytest.mark.usefixtures("codec")
class TestCompiledClasses:
    def test_are_constructed_by_name_and_by_position(self) -> None:
        assert HeaderValue("a", "b") == HeaderValue(key="a", value="b", raw_value=b"")

    def test_know_no_other_names(self) -> None:
        with pytest.raises(TypeError, match="unknown"):
            HeaderValue(unknown=1)  # type: ignore[call-arg]

    def test_have_defaults_of_the_right_type(self) -> None:
        response = CommonResponse()
        assert response.status is ResponseStatus.CONTINUE
        assert (response.header_mutation, response.clear_route_cache) == (None, False)

    def test_do_not_share_lists(self) -> None:
        HeaderMutation().remove_headers.append("a")
        assert HeaderMutation().remove_headers == []

    def test_keep_the_list_that_they_are_given(self) -> None:
        names = ["a"]
        assert HeaderMutation(remove_headers=names).remove_headers is names

    def test_can_be_copied_and_pickled(self) -> None:
        option = HeaderValueOption(header=HeaderValue(key="a", raw_value=b"1"))
        assert copy.deepcopy(option) == option
        assert pickle.loads(pickle.dumps(option)) == option

    def test_still_have_the_codec_that_they_were_generated_with(self) -> None:
        option = HeaderValueOption(header=HeaderValue(key="a", raw_value=b"1"))
        assert bytes(option) == encode(option)
        assert HeaderValueOption.parse(encode(option)) == option
