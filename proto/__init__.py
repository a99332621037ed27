"""The messages of ext_proc and gRPC health, and the codec that carries them.

The `.proto` files beside this one are trimmed copies with Envoy's numbers; `generated` is made of
them by ``tools/generate_proto.sh``. Only the gRPC adapter knows this package.
"""

from typing import Final

from .codec import DecodeError, Prepared, WireCodec, decode, encode
from .generated.envoy.config.core.v3 import (
    HeaderMap,
    HeaderValue,
    HeaderValueOption,
    Metadata,
)
from .generated.envoy.config.core.v3 import (
    HeaderValueOptionHeaderAppendAction as HeaderAppendAction,
)
from .generated.envoy.extensions.filters.http.ext_proc.v3 import (
    ProcessingMode,
)
from .generated.envoy.extensions.filters.http.ext_proc.v3 import (
    ProcessingModeBodySendMode as BodySendMode,
)
from .generated.envoy.extensions.filters.http.ext_proc.v3 import (
    ProcessingModeHeaderSendMode as HeaderSendMode,
)
from .generated.envoy.service.ext_proc.v3 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    Duration,
    GrpcStatus,
    HeaderMutation,
    HeadersResponse,
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    ImmediateResponse,
    ProcessingRequest,
    ProcessingResponse,
    ProtocolConfiguration,
    StreamedBodyResponse,
    StreamedImmediateResponse,
    TrailersResponse,
)
from .generated.envoy.service.ext_proc.v3 import (
    CommonResponseResponseStatus as ResponseStatus,
)
from .generated.envoy.service.ext_proc.v3 import (
    ProcessingRequestClientWindowUpdate as ClientWindowUpdate,
)
from .generated.envoy.service.ext_proc.v3 import (
    ProcessingRequestFlowControlInit as FlowControlInit,
)
from .generated.envoy.service.ext_proc.v3 import (
    ProcessingResponseServerWindowUpdate as ServerWindowUpdate,
)
from .generated.envoy.type.v3 import HttpStatus, StatusCode
from .generated.google.protobuf import ListValue, NullValue, Struct, Value
from .generated.grpc.health.v1 import (
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from .generated.grpc.health.v1 import (
    HealthCheckResponseServingStatus as ServingStatus,
)
from .structs import Json, struct_of, values_of

EXT_PROC_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
PROCESS: Final = f"/{EXT_PROC_SERVICE}/Process"

HEALTH_SERVICE: Final = "grpc.health.v1.Health"
HEALTH_CHECK: Final = f"/{HEALTH_SERVICE}/Check"
HEALTH_LIST: Final = f"/{HEALTH_SERVICE}/List"
HEALTH_WATCH: Final = f"/{HEALTH_SERVICE}/Watch"

__all__ = [
    "EXT_PROC_SERVICE",
    "HEALTH_CHECK",
    "HEALTH_LIST",
    "HEALTH_SERVICE",
    "HEALTH_WATCH",
    "PROCESS",
    "BodyMutation",
    "BodyResponse",
    "BodySendMode",
    "ClientWindowUpdate",
    "CommonResponse",
    "DecodeError",
    "Duration",
    "FlowControlInit",
    "GrpcStatus",
    "HeaderAppendAction",
    "HeaderMap",
    "HeaderMutation",
    "HeaderSendMode",
    "HeaderValue",
    "HeaderValueOption",
    "HeadersResponse",
    "HealthCheckRequest",
    "HealthCheckResponse",
    "HealthListRequest",
    "HealthListResponse",
    "HttpBody",
    "HttpHeaders",
    "HttpStatus",
    "HttpTrailers",
    "ImmediateResponse",
    "Json",
    "ListValue",
    "Metadata",
    "NullValue",
    "Prepared",
    "ProcessingMode",
    "ProcessingRequest",
    "ProcessingResponse",
    "ProtocolConfiguration",
    "ResponseStatus",
    "ServerWindowUpdate",
    "ServingStatus",
    "StatusCode",
    "StreamedBodyResponse",
    "StreamedImmediateResponse",
    "Struct",
    "TrailersResponse",
    "Value",
    "WireCodec",
    "decode",
    "encode",
    "struct_of",
    "values_of",
]
