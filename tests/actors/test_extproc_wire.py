"""Between ext_proc's messages and the session's vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.conversation import (
    BodyMode,
    Chunk,
    Continue,
    Modes,
    Part,
    Refuse,
    RequestBody,
    RequestHeaders,
    RequestTrailers,
    ResponseBody,
    ResponseHeaders,
    ResponseTrailers,
    Route,
    SendTo,
)
from pointsman.actors.extproc_server_wire import DESTINATION, event_of, piece_of, reply_of
from pointsman.proto import (
    BodyMutation,
    BodyResponse,
    BodySendMode,
    CommonResponse,
    HeaderAppendAction,
    HeaderMap,
    HeaderSendMode,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    Json,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
    StreamedBodyResponse,
    decode,
    encode,
    struct_of,
    values_of,
)


def http_headers(*headers: HeaderValue, end: bool = False) -> HttpHeaders:
    return HttpHeaders(headers=HeaderMap(headers=list(headers)), end_of_stream=end)


def said(command: Continue | SendTo | Chunk | Refuse) -> ProcessingResponse:
    return decode(ProcessingResponse, reply_of(command))


def hint(value: Json) -> Metadata:
    key = "x-gateway-destination-endpoint-subset"
    return Metadata(filter_metadata={"envoy.lb.subset_hint": struct_of({key: value})})


def opened(message: ProcessingRequest) -> RequestHeaders:
    event = event_of(message)
    assert isinstance(event, RequestHeaders)
    return event


@pytest.mark.parametrize(
    "header",
    [
        HeaderValue(key="x-request-id", raw_value=b"abc"),
        HeaderValue(key="x-request-id", value="abc"),
        HeaderValue(key="x-request-id", value="abc", raw_value=b""),
        HeaderValue(key="X-Request-Id", raw_value=b"abc"),
    ],
)
def test_p05_a_value_may_come_in_either_field(header: HeaderValue) -> None:
    event = opened(ProcessingRequest(request_headers=http_headers(header)))
    assert event.headers.get("x-request-id") == "abc"


def test_p05_bytes_that_are_no_utf8_survive() -> None:
    header = HeaderValue(key="x-odd", raw_value=b"\xff\xfe")
    event = opened(ProcessingRequest(request_headers=http_headers(header)))
    assert event.headers.raw("x-odd") == b"\xff\xfe"
    assert event.headers.get("x-odd") is not None


def test_the_parts_of_an_exchange_become_events() -> None:
    body = HttpBody(body=b"x", end_of_stream=True)
    trailers = HttpTrailers()
    assert event_of(ProcessingRequest(request_body=body)) == RequestBody(b"x", end=True)
    assert event_of(ProcessingRequest(response_body=body)) == ResponseBody(b"x", end=True)
    assert event_of(ProcessingRequest(request_trailers=trailers)) == RequestTrailers()
    assert event_of(ProcessingRequest(response_trailers=trailers)) == ResponseTrailers()
    headers = event_of(ProcessingRequest(response_headers=http_headers(end=True)))
    assert isinstance(headers, ResponseHeaders)
    assert headers.end


def test_a_message_without_a_part_says_nothing() -> None:
    assert event_of(ProcessingRequest()) is None


def test_headers_may_be_missing_altogether() -> None:
    assert len(opened(ProcessingRequest(request_headers=HttpHeaders())).headers) == 0


def test_p10_without_announced_modes_both_ways_are_assumed_to_be_duplex() -> None:
    assert opened(ProcessingRequest(request_headers=http_headers())).modes == Modes()


def test_announced_modes_are_known() -> None:
    config = ProtocolConfiguration(
        request_body_mode=BodySendMode.BUFFERED, response_body_mode=BodySendMode.NONE
    )
    message = ProcessingRequest(request_headers=http_headers(), protocol_config=config)
    assert opened(message).modes == Modes(BodyMode.BUFFERED, BodyMode.NONE)


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (["10.0.0.2:8000"], {"10.0.0.2:8000"}),
        ("10.0.0.2:8000, 10.0.0.1", {"10.0.0.2:8000", "10.0.0.1"}),
        ([5.0, "10.0.0.1"], {"10.0.0.1"}),
        (["[fd00:0:0::1]:8000"], {"[fd00::1]:8000"}),
        ([], set[str]()),
        ("", set[str]()),
        (7.0, None),
    ],
)
def test_s08_the_hint_is_a_list_or_a_text(value: Json, allowed: set[str] | None) -> None:
    message = ProcessingRequest(request_headers=http_headers(), metadata_context=hint(value))
    assert opened(message).subset == allowed


def test_s08_a_header_of_that_name_is_no_hint() -> None:
    header = HeaderValue(key="x-gateway-destination-endpoint-subset", raw_value=b"10.0.0.1:8000")
    assert opened(ProcessingRequest(request_headers=http_headers(header))).subset is None


STREAMED = (Part.REQUEST_BODY, Part.RESPONSE_BODY)
ROUTE = Route("10.0.0.1:8000,10.0.0.2:8000", {"x-extra": "1"}, ("x-slo-ttft-ms",))


def common(message: ProcessingResponse) -> CommonResponse:
    answer = message.request_headers or message.request_body
    assert answer is not None
    assert answer.response is not None
    return answer.response


@pytest.mark.parametrize("part", [Part.REQUEST_HEADERS, Part.REQUEST_BODY])
def test_p13_header_and_metadata_carry_the_same_destination(part: Part) -> None:
    message = said(SendTo(part, ROUTE))
    mutation = common(message).header_mutation
    assert mutation is not None
    named = {o.header.key: o.header.raw_value for o in mutation.set_headers if o.header}
    assert message.dynamic_metadata is not None
    assert named[DESTINATION].decode() == ROUTE.destination
    assert values_of(message.dynamic_metadata) == {"envoy.lb": {DESTINATION: ROUTE.destination}}
    assert common(message).clear_route_cache


def test_p01_p02_p03_p04_only_headers_of_ours_are_set_and_always_overwritten() -> None:
    mutation = common(said(SendTo(Part.REQUEST_HEADERS, ROUTE))).header_mutation
    assert mutation is not None
    assert [o.header.key for o in mutation.set_headers if o.header] == [DESTINATION, "x-extra"]
    overwrite = HeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD
    assert {option.append_action for option in mutation.set_headers} == {overwrite}
    assert mutation.remove_headers == ["x-slo-ttft-ms"]


@pytest.mark.parametrize(
    "command",
    [
        Continue(Part.REQUEST_HEADERS, ask=Modes(BodyMode.BUFFERED, BodyMode.STREAMED)),
        SendTo(Part.REQUEST_HEADERS, ROUTE, ask=Modes(BodyMode.BUFFERED, BodyMode.STREAMED)),
    ],
)
def test_what_the_proxy_is_asked_to_show_is_the_whole_of_its_modes(
    command: Continue | SendTo,
) -> None:
    override = said(command).mode_override
    assert override is not None
    assert override.request_body_mode == BodySendMode.BUFFERED
    assert override.response_header_mode == HeaderSendMode.SEND
    assert override.response_body_mode == BodySendMode.STREAMED


def test_the_proxy_says_who_served() -> None:
    metadata = Metadata(filter_metadata={"envoy.lb": struct_of({f"{DESTINATION}-served": "a:1"})})
    headers = http_headers()
    for said, served in ((metadata, "a:1"), (Metadata(), None), (None, None)):
        event = event_of(ProcessingRequest(response_headers=headers, metadata_context=said))
        assert isinstance(event, ResponseHeaders)
        assert event.served() == served


@pytest.mark.parametrize("body", [None, b"{}"])
def test_scores_travel_beside_the_destination(body: bytes | None) -> None:
    part = Part.REQUEST_HEADERS if body is None else Part.REQUEST_BODY
    route = Route("10.0.0.1:1", scores={"10.0.0.1:1": 3.5, "10.0.0.2:1": 1.0})
    message = said(SendTo(part, route, body))
    assert message.dynamic_metadata is not None
    assert values_of(message.dynamic_metadata) == {
        "envoy.lb": {
            DESTINATION: "10.0.0.1:1",
            f"{DESTINATION}-scores": {"10.0.0.1:1": 3.5, "10.0.0.2:1": 1.0},
        }
    }


def test_a_header_that_a_plugin_sets_is_not_removed_again() -> None:
    route = Route("10.0.0.1:1", {"x-prefiller-host-port": "a"}, ("x-prefiller-host-port",))
    mutation = common(said(SendTo(Part.REQUEST_HEADERS, route))).header_mutation
    assert mutation is not None
    assert mutation.remove_headers == []


@pytest.mark.parametrize("part", list(Part))
def test_going_on_is_an_answer_of_its_own_for_each_part(part: Part) -> None:
    message = said(Continue(part))
    chosen = [p for p in Part if getattr(message, p.value) is not None]
    assert chosen == [part]


def test_a_chunk_is_streamed() -> None:
    message = said(Chunk(Part.RESPONSE_BODY, b"data", end=True))
    answer = message.response_body
    assert answer is not None
    assert answer.response is not None
    assert answer.response.body_mutation is not None
    streamed = answer.response.body_mutation.streamed_response
    assert streamed is not None
    assert (streamed.body, streamed.end_of_stream) == (b"data", True)


@given(st.sampled_from(STREAMED), st.binary(max_size=70_000), st.booleans())
def test_a_chunk_put_together_by_hand_is_what_the_codec_makes(
    part: Part, data: bytes, end: bool
) -> None:
    streamed = StreamedBodyResponse(body=data, end_of_stream=end)
    common = CommonResponse(body_mutation=BodyMutation(streamed_response=streamed))
    message = ProcessingResponse()
    setattr(message, part.value, BodyResponse(response=common))
    assert reply_of(Chunk(part, data, end)) == encode(message)


@pytest.mark.parametrize("status", [400, 412, 413, 429, 500, 503])
def test_p21_an_error_is_what_openai_clients_read(status: int) -> None:
    message = said(Refuse(status, "why", {"retry-after": "1"}))
    answer = message.immediate_response
    assert answer is not None
    assert answer.status is not None
    assert answer.headers is not None
    error = json.loads(answer.body)["error"]
    named = {o.header.key: o.header.raw_value for o in answer.headers.set_headers if o.header}
    assert answer.status.code == status
    assert (error["message"], error["code"]) == ("why", status)
    assert error["type"]
    assert named == {"content-type": b"application/json", "retry-after": b"1"}


RECORDED = Path(__file__).parents[1] / "proto" / "recorded.txt"
END = ResponseBody(b"", end=True)


def streamed_piece(data: bytes, *, end: bool = False, metadata: bool = True) -> bytes:
    return encode(
        ProcessingRequest(
            response_body=HttpBody(body=data, end_of_stream=end),
            metadata_context=Metadata() if metadata else None,
        )
    )


@pytest.mark.parametrize("metadata", [True, False])
@given(data=st.binary(min_size=4, max_size=300) | st.integers(4, 16_300).map(bytes))
def test_a_piece_is_read_by_hand(metadata: bool, data: bytes) -> None:
    assert piece_of(streamed_piece(data, metadata=metadata)) == data


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(streamed_piece(b"data", end=True), id="the end"),
        pytest.param(streamed_piece(b"x" * 16_380), id="more than a frame"),
        pytest.param(b"\x22\x06\x0a\x04data", id="of a request"),
        pytest.param(b"\x2a\x06\x32\x04data", id="another field"),
        pytest.param(b"\x2a\x06\x0a\x04data\x50\x01", id="observed only"),
        pytest.param(b"\x2a\x06\x0a\x04data\x2a\x00", id="merged"),
        pytest.param(b"\x2a\x06\x0a\x05data", id="cut short inside"),
        pytest.param(b"\x2a\x07\x0a\x04data", id="cut short"),
        pytest.param(b"\x2a\x80\x81\x0a\xfd\x80" + b"x" * 16_509, id="lengths of three bytes"),
    ],
)
def test_what_is_more_or_less_than_a_piece_is_the_codecs(message: bytes) -> None:
    assert piece_of(message) is None


def test_envoys_own_pieces_are_read_by_hand() -> None:
    lines = [line.split() for line in RECORDED.read_text().splitlines()[1:]]
    messages = [(field, bytes.fromhex(text)) for _, field, text in lines]
    pieces = [message for field, message in messages if field == "response_body"]
    ends = [piece for piece in pieces if event_of(decode(ProcessingRequest, piece)) == END]
    assert [piece_of(piece) is None for piece in pieces] == [piece in ends for piece in pieces]
    assert len(pieces) > len(ends) > 0
    assert not any(piece_of(message) for field, message in messages if field != "response_body")


@given(
    st.sampled_from([b"", b"x", b"data: {}\n\n", b"x" * 130, b"x" * 16_000, b"x" * 16_380]),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.binary(max_size=2)), max_size=3),
    st.integers(0, 3),
)
def test_what_is_read_by_hand_is_what_the_codec_reads(
    data: bytes,
    end: bool,
    metadata: bool,
    changes: list[tuple[int, int, bytes]],
    cut: int,
) -> None:
    message = streamed_piece(data, end=end, metadata=metadata)
    for place, removed, put in changes:
        message = message[:place] + put + message[place + removed :]
    message = message[: len(message) - cut]
    piece = piece_of(message)
    if piece is not None:
        assert event_of(decode(ProcessingRequest, message)) == ResponseBody(piece, end=False)


@given(st.binary(max_size=40).map(lambda rest: b"\x2a" + rest))
def test_no_bytes_are_taken_for_another_piece_than_they_are(message: bytes) -> None:
    piece = piece_of(message)
    if piece is not None:
        assert event_of(decode(ProcessingRequest, message)) == ResponseBody(piece, end=False)
