"""What a real Envoy is told: one listener, the picker as ext_proc, the model servers behind it.

The files in ``deploy/envoy`` are written for people; a test holds them to what is rendered here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import frozen

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None
JsonObject = Mapping[str, Json]

MIB: Final = 1 << 20
DESTINATION: Final = "x-gateway-destination-endpoint"
DESTINATION_NAMESPACE: Final = "envoy.lb"
SERVED: Final = "x-gateway-destination-endpoint-served"
SUBSET: Final = "x-gateway-destination-endpoint-subset"
SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
PLENTY: Final = 40_000  # requests and connections at once, instead of 1024; and retries: of 3
LONGEST_SILENCE: Final = "3600s"  # a model may think for longer than Envoy's five minutes
TYPES: Final = "type.googleapis.com/envoy.extensions"
RETRY_ON: Final = "connect-failure,refused-stream,reset-before-request"
"""What happened before a server saw anything of the request: nothing is ever done twice."""
RETRIES: Final = 3


class Mode(enum.Enum):
    """How much of a request and its response Envoy shows to the picker."""

    FULL_DUPLEX = "full-duplex"
    LEAN_DUPLEX = "lean-duplex"
    LEAN_BUFFERED = "lean-buffered"
    BUFFERED = "buffered"
    STREAMED = "streamed"
    HEADERS_ONLY = "headers-only"


@frozen
class HostPort:
    """An IP address and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@frozen(kw_only=True)
class EnvoySettings:
    """Everything about an Envoy in front of a picker that differs from one use to the next."""

    listen: HostPort
    admin: HostPort
    picker: HostPort
    picker_tls: bool = False
    """The picker's certificate is not verified: by default it is self-signed."""
    mode: Mode = Mode.LEAN_BUFFERED
    failure_mode_allow: bool = False
    """Send requests on when the picker fails; needs *fallback*, and a mode that holds the body."""
    message_timeout: float = 10.0
    """Seconds that the picker may take for one answer; not enforced by the duplex modes."""
    fallback: tuple[HostPort, ...] = ()
    """All model servers. Round robin serves whatever the picker's destination is not among.

    Without them Envoy goes wherever the picker says, and nowhere without the picker.
    """
    buffer_limit: int = 64 * MIB
    """Bytes of one body that Envoy holds; above it answers 413."""
    subset_hint: tuple[HostPort, ...] | None = None
    """Endpoints that every request is restricted to, as a gateway in front would."""
    response_headers: Mapping[str, str] = {}
    """What clients are told besides, with Envoy's own commands in the values, to look inside it."""
    concurrency: int = 1
    """Worker threads."""

    @property
    def url(self) -> str:
        return f"http://{self.listen}"

    @property
    def admin_url(self) -> str:
        return f"http://{self.admin}"


def bootstrap(settings: EnvoySettings) -> JsonObject:
    """Render the configuration that Envoy is started with."""
    return {
        "admin": {"address": _address(settings.admin)},
        "static_resources": {
            "listeners": [_listener(settings)],
            "clusters": [_picker(settings), _model_servers(settings)],
        },
    }


def _listener(settings: EnvoySettings) -> JsonObject:
    return {
        "name": "inference",
        "address": _address(settings.listen),
        "per_connection_buffer_limit_bytes": settings.buffer_limit,
        "filter_chains": [{"filters": [_connection_manager(settings)]}],
    }


def _connection_manager(settings: EnvoySettings) -> JsonObject:
    return _extension(
        "filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="inference",
        stream_idle_timeout=LONGEST_SILENCE,
        route_config={"virtual_hosts": [_virtual_host(settings)]},
        http_filters=[
            *_guards(settings),
            _ext_proc(settings),
            _extension("filters.http.router", "filters.http.router.v3.Router"),
        ],
    )


def _virtual_host(settings: EnvoySettings) -> JsonObject:
    route: JsonObject = {"cluster": "model-servers", "timeout": "0s"}
    if settings.fallback:
        route = {**route, "retry_policy": _retry_policy()}
    host: JsonObject = {
        "name": "all",
        "domains": ["*"],
        "include_attempt_count_in_response": True,
        "routes": [{"match": {"prefix": "/"}, "route": route}],
    }
    told = settings.response_headers
    return {**host, "response_headers_to_add": _headers(told)} if told else host


def _headers(values: Mapping[str, str]) -> Sequence[JsonObject]:
    return [{"header": {"key": name, "value": value}} for name, value in values.items()]


def _retry_policy() -> JsonObject:
    """Walk the picker's list, and then try the servers in turn."""
    previous_hosts = _extension(
        "retry_host_predicates.previous_hosts",
        "retry.host.previous_hosts.v3.PreviousHostsPredicate",
    )
    return {
        "retry_on": RETRY_ON,
        "num_retries": RETRIES,
        "retry_host_predicate": [previous_hosts],
        "host_selection_retry_max_attempts": 5,
    }


def _guards(settings: EnvoySettings) -> Sequence[JsonObject]:
    """What happens to a request before the picker hears of it."""
    guards: list[JsonObject] = []
    if not settings.fallback:
        guards.append(_no_destination_from_clients())
    if settings.subset_hint is not None:
        guards.append(_subset_hint(settings.subset_hint))
    return guards


def _no_destination_from_clients() -> JsonObject:
    # The header decides where an ORIGINAL_DST cluster connects to: it must be the picker's.
    return _extension(
        "filters.http.header_mutation",
        "filters.http.header_mutation.v3.HeaderMutation",
        mutations={"request_mutations": [{"remove": DESTINATION}]},
    )


def _subset_hint(endpoints: Sequence[HostPort]) -> JsonObject:
    hint: JsonObject = {
        "metadata_namespace": SUBSET_NAMESPACE,
        "value": {SUBSET: [str(endpoint) for endpoint in endpoints]},
    }
    return _extension(
        "filters.http.set_metadata", "filters.http.set_metadata.v3.Config", metadata=[hint]
    )


def _ext_proc(settings: EnvoySettings) -> JsonObject:
    return _extension(
        "filters.http.ext_proc",
        "filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "picker"}},
        failure_mode_allow=settings.failure_mode_allow,
        message_timeout=f"{settings.message_timeout:g}s",
        processing_mode=PROCESSING[settings.mode],
        allow_mode_override=settings.mode is Mode.LEAN_BUFFERED,
        metadata_options={
            "forwarding_namespaces": {"untyped": [DESTINATION_NAMESPACE, SUBSET_NAMESPACE]},
            "receiving_namespaces": {"untyped": [DESTINATION_NAMESPACE]},
        },
    )


def _processing(request_body: str, response_header: str, response_body: str) -> JsonObject:
    """Say what the picker is shown, trailers where a streamed body or a seen end needs them."""
    duplex = request_body == "FULL_DUPLEX_STREAMED"
    return {
        "request_header_mode": "SEND",
        "request_body_mode": request_body,
        "request_trailer_mode": "SEND" if duplex else "SKIP",
        "response_header_mode": response_header,
        "response_body_mode": response_body,
        "response_trailer_mode": "SEND" if duplex else "SKIP",
    }


PROCESSING: Final[Mapping[Mode, JsonObject]] = {
    Mode.FULL_DUPLEX: _processing("FULL_DUPLEX_STREAMED", "SEND", "FULL_DUPLEX_STREAMED"),
    Mode.LEAN_DUPLEX: _processing("FULL_DUPLEX_STREAMED", "SEND", "NONE"),
    Mode.LEAN_BUFFERED: _processing("BUFFERED", "SKIP", "NONE"),
    Mode.BUFFERED: _processing("BUFFERED", "SEND", "BUFFERED"),
    Mode.STREAMED: _processing("STREAMED", "SEND", "STREAMED"),
    Mode.HEADERS_ONLY: _processing("NONE", "SEND", "NONE"),
}


def _picker(settings: EnvoySettings) -> JsonObject:
    http2: JsonObject = {"explicit_http_config": {"http2_protocol_options": {}}}
    options = f"{TYPES}.upstreams.http.v3.HttpProtocolOptions"
    return {
        **_cluster("picker", settings.buffer_limit),
        "type": "STATIC",
        "load_assignment": _assignment("picker", [settings.picker]),
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {"@type": options, **http2}
        },
        **(_unverified_tls() if settings.picker_tls else {}),
    }


def _unverified_tls() -> JsonObject:
    context: JsonObject = {"alpn_protocols": ["h2"], "validation_context": {}}
    return {
        "transport_socket": _extension(
            "transport_sockets.tls",
            "transport_sockets.tls.v3.UpstreamTlsContext",
            common_tls_context=context,
        )
    }


def _model_servers(settings: EnvoySettings) -> JsonObject:
    cluster = _cluster("model-servers", settings.buffer_limit)
    if not settings.fallback:
        by_header: JsonObject = {"use_http_header": True, "http_header_name": DESTINATION}
        return {
            **cluster,
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "original_dst_lb_config": by_header,
        }
    return {
        **cluster,
        "type": "STATIC",
        "load_balancing_policy": _policy(_override_host()),
        "load_assignment": _assignment("model-servers", settings.fallback),
    }


def _override_host() -> JsonObject:
    round_robin = _extension(
        "load_balancing_policies.round_robin", "load_balancing_policies.round_robin.v3.RoundRobin"
    )
    return _extension(
        "load_balancing_policies.override_host",
        "load_balancing_policies.override_host.v3.OverrideHost",
        override_host_sources=[{"metadata": _metadata_key(DESTINATION)}],
        selected_host_key=_metadata_key(SERVED),
        fallback_policy=_policy(round_robin),
    )


def _metadata_key(name: str) -> JsonObject:
    return {"key": DESTINATION_NAMESPACE, "path": [{"key": name}]}


def _policy(extension: JsonObject) -> JsonObject:
    return {"policies": [{"typed_extension_config": extension}]}


def _cluster(name: str, buffer_limit: int) -> JsonObject:
    return {
        "name": name,
        "connect_timeout": "1s",
        "per_connection_buffer_limit_bytes": buffer_limit,
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": PLENTY,
                    "max_pending_requests": PLENTY,
                    "max_requests": PLENTY,
                    "max_retries": PLENTY,
                }
            ]
        },
    }


def _assignment(cluster: str, endpoints: Sequence[HostPort]) -> JsonObject:
    hosts = [{"endpoint": {"address": _address(endpoint)}} for endpoint in endpoints]
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": hosts}]}


def _address(where: HostPort) -> JsonObject:
    return {"socket_address": {"address": where.host, "port_value": where.port}}


def _extension(name: str, message: str, **fields: Json) -> JsonObject:
    return {
        "name": f"envoy.{name}",
        "typed_config": {"@type": f"{TYPES}.{message}", **fields},
    }
