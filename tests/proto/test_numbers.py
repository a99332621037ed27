"""The numbers on the wire, written down by hand from Envoy 1.40 and grpc-proto."""

from __future__ import annotations

from typing import Final

import pytest
from betterproto2 import Enum

from pointsman.proto import (
    HEALTH_CHECK,
    HEALTH_LIST,
    HEALTH_WATCH,
    PROCESS,
    BodyMutation,
    BodyResponse,
    BodySendMode,
    ClientWindowUpdate,
    CommonResponse,
    Duration,
    FlowControlInit,
    GrpcStatus,
    HeaderAppendAction,
    HeaderMap,
    HeaderMutation,
    HeaderSendMode,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
    HttpBody,
    HttpHeaders,
    HttpStatus,
    HttpTrailers,
    ImmediateResponse,
    ListValue,
    Metadata,
    NullValue,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
    ResponseStatus,
    ServerWindowUpdate,
    ServingStatus,
    StreamedBodyResponse,
    StreamedImmediateResponse,
    Struct,
    TrailersResponse,
    Value,
)
from pointsman.proto.schema import MessageType, schema_of

from . import oracle

FIELDS: Final[dict[MessageType, dict[str, int]]] = {
    BodyMutation: {"body": 1, "clear_body": 2, "streamed_response": 3},
    BodyResponse: {"response": 1},
    ClientWindowUpdate: {
        "window_increment_sidestream_to_upstream": 1,
        "window_increment_sidestream_to_downstream": 2,
    },
    CommonResponse: {
        "status": 1,
        "header_mutation": 2,
        "body_mutation": 3,
        "trailers": 4,
        "clear_route_cache": 5,
    },
    Duration: {"seconds": 1, "nanos": 2},
    FlowControlInit: {
        "initial_window_downstream_to_sidestream": 1,
        "initial_window_sidestream_to_upstream": 2,
        "initial_window_upstream_to_sidestream": 3,
        "initial_window_sidestream_to_downstream": 4,
    },
    GrpcStatus: {"status": 1},
    HeaderMap: {"headers": 1},
    HeaderMutation: {"set_headers": 1, "remove_headers": 2},
    HeaderValue: {"key": 1, "value": 2, "raw_value": 3},
    HeaderValueOption: {"header": 1, "append_action": 3, "keep_empty_value": 4},
    HeadersResponse: {"response": 1},
    HealthCheckRequest: {"service": 1},
    HealthCheckResponse: {"status": 1},
    HealthListRequest: {},
    HealthListResponse: {"statuses": 1},
    HttpBody: {
        "body": 1,
        "end_of_stream": 2,
        "end_of_stream_without_message": 3,
        "grpc_message_compressed": 4,
        "drain_complete": 5,
    },
    HttpHeaders: {"headers": 1, "end_of_stream": 3},
    HttpStatus: {"code": 1},
    HttpTrailers: {"trailers": 1},
    ImmediateResponse: {"status": 1, "headers": 2, "body": 3, "grpc_status": 4, "details": 5},
    ListValue: {"values": 1},
    Metadata: {"filter_metadata": 1},
    ProcessingMode: {
        "request_header_mode": 1,
        "response_header_mode": 2,
        "request_body_mode": 3,
        "response_body_mode": 4,
        "request_trailer_mode": 5,
        "response_trailer_mode": 6,
    },
    ProcessingRequest: {
        "request_headers": 2,
        "response_headers": 3,
        "request_body": 4,
        "response_body": 5,
        "request_trailers": 6,
        "response_trailers": 7,
        "metadata_context": 8,
        "attributes": 9,
        "observability_mode": 10,
        "protocol_config": 11,
        "flow_control_init": 12,
        "client_window_update": 13,
    },
    ProcessingResponse: {
        "request_headers": 1,
        "response_headers": 2,
        "request_body": 3,
        "response_body": 4,
        "request_trailers": 5,
        "response_trailers": 6,
        "immediate_response": 7,
        "dynamic_metadata": 8,
        "mode_override": 9,
        "override_message_timeout": 10,
        "streamed_immediate_response": 11,
        "server_window_update": 14,
        "request_drain_requests": 15,
        "request_drain_responses": 16,
    },
    ProtocolConfiguration: {
        "request_body_mode": 1,
        "response_body_mode": 2,
        "send_body_without_waiting_for_header_response": 3,
    },
    ServerWindowUpdate: {
        "window_increment_downstream_to_sidestream": 1,
        "window_increment_upstream_to_sidestream": 2,
    },
    StreamedBodyResponse: {
        "body": 1,
        "end_of_stream": 2,
        "end_of_stream_without_message": 3,
        "grpc_message_compressed": 4,
        "drain_complete": 5,
    },
    StreamedImmediateResponse: {
        "headers_response": 1,
        "body_response": 2,
        "trailers_response": 3,
    },
    Struct: {"fields": 1},
    TrailersResponse: {"header_mutation": 1},
    Value: {
        "null_value": 1,
        "number_value": 2,
        "string_value": 3,
        "bool_value": 4,
        "struct_value": 5,
        "list_value": 6,
    },
}

ONEOFS: Final[dict[MessageType, dict[str, tuple[str, ...]]]] = {
    BodyMutation: {"mutation": ("body", "clear_body", "streamed_response")},
    ProcessingRequest: {"request": tuple(FIELDS[ProcessingRequest])[:6]},
    ProcessingResponse: {
        "response": (*tuple(FIELDS[ProcessingResponse])[:7], "streamed_immediate_response")
    },
    StreamedImmediateResponse: {"response": tuple(FIELDS[StreamedImmediateResponse])},
    Value: {"kind": tuple(FIELDS[Value])},
}

MEMBERS: Final[dict[type[Enum], dict[str, int]]] = {
    BodySendMode: {
        "NONE": 0,
        "STREAMED": 1,
        "BUFFERED": 2,
        "BUFFERED_PARTIAL": 3,
        "FULL_DUPLEX_STREAMED": 4,
        "GRPC": 5,
    },
    HeaderAppendAction: {
        "APPEND_IF_EXISTS_OR_ADD": 0,
        "ADD_IF_ABSENT": 1,
        "OVERWRITE_IF_EXISTS_OR_ADD": 2,
        "OVERWRITE_IF_EXISTS": 3,
    },
    HeaderSendMode: {"DEFAULT": 0, "SEND": 1, "SKIP": 2},
    NullValue: {"NULL_VALUE": 0},
    ResponseStatus: {"CONTINUE": 0, "CONTINUE_AND_REPLACE": 1},
    ServingStatus: {"UNKNOWN": 0, "SERVING": 1, "NOT_SERVING": 2, "SERVICE_UNKNOWN": 3},
}


def test_every_message_type_is_in_the_table() -> None:
    assert FIELDS.keys() == set(oracle.ENVOYS_TYPES)


@pytest.mark.parametrize("message_type", FIELDS, ids=lambda message_type: message_type.__name__)
def test_fields_have_upstreams_numbers(message_type: MessageType) -> None:
    fields = schema_of(message_type).fields
    assert {field.name: field.number for field in fields} == FIELDS[message_type]


@pytest.mark.parametrize("message_type", FIELDS, ids=lambda message_type: message_type.__name__)
def test_fields_exclude_each_other_as_they_do_upstream(message_type: MessageType) -> None:
    assert schema_of(message_type).groups == ONEOFS.get(message_type, {})


@pytest.mark.parametrize("enum", MEMBERS, ids=lambda enum: enum.__name__)
def test_members_of_enums_have_upstreams_numbers(enum: type[Enum]) -> None:
    assert {member.name: member.value for member in enum} == MEMBERS[enum]


def test_the_paths_are_those_of_the_declared_services() -> None:
    declared = {
        f"/{service.full_name}/{method.name}"
        for service in oracle.services()
        for method in service.methods
    }
    assert declared == {PROCESS, HEALTH_CHECK, HEALTH_LIST, HEALTH_WATCH}
