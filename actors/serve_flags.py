"""The flags of ``pointsman serve``, by the reference's names where it has them."""

from __future__ import annotations

import argparse
from typing import Final

from . import logs
from .arguments import (
    Parser,
    add_flag,
    address,
    boolean,
    duration,
    log_form,
    log_level,
    port,
    quantity,
    target_ports,
    tls_suites,
    tls_version,
)

_ENGINE_METRICS: Final = (
    "--total-queued-requests-metric",
    "--total-running-requests-metric",
    "--kv-cache-usage-percentage-metric",
    "--lora-info-metric",
    "--cache-info-metric",
)
"""Flags that the reference refuses, too."""


def add_serve_arguments(parser: Parser) -> None:
    config = parser.add_argument_group("configuration")
    config.add_argument("--config-file", metavar="FILE", help="an EndpointPickerConfig")
    config.add_argument("--config-text", metavar="YAML", help="the same as a text")
    text = "whether plugin types of stability alpha may be used"
    add_flag(config, "--allow-experimental-plugins", False, text)
    _add_pool_arguments(parser)
    ports = parser.add_argument_group("ports")
    listen = "the address to listen on; all of the machine's when left out"
    ports.add_argument("--bind-address", type=address, metavar="IP", help=listen)
    ports.add_argument("--grpc-port", type=port, default=9002, help="ext_proc (%(default)s)")
    ports.add_argument("--grpc-health-port", type=port, default=9003, help="(%(default)s)")
    text = "HTTP: /metrics, /healthz, /readyz (%(default)s)"
    ports.add_argument("--metrics-port", type=port, default=9090, help=text)
    text = "TLS on the ext_proc port, self-signed unless --cert-path names files (true)"
    add_flag(ports, "--secure-serving", True, text)
    text = "the largest request body that is looked at; more is answered 413 (64Mi)"
    ports.add_argument(
        "--grpc-max-recv-msg-size", type=quantity, default=64 << 20, metavar="QUANTITY", help=text
    )
    _add_tls_arguments(parser)
    _add_figures_arguments(parser)
    behaviour = parser.add_argument_group("behaviour")
    text = "time between scrapes of an endpoint with traffic, at least 50ms (200ms)"
    behaviour.add_argument(
        "--refresh-metrics-interval", type=duration, default=0.2, metavar="DURATION", help=text
    )
    text = "how long scrapes may fail before an endpoint's metrics count as stale (2s)"
    behaviour.add_argument(
        "--metrics-staleness-threshold", type=duration, default=2.0, metavar="DURATION", help=text
    )
    text = "how long to go on serving after SIGTERM, at most (30s)"
    behaviour.add_argument(
        "--drain-timeout", type=duration, default=30.0, metavar="DURATION", help=text
    )
    text = "ignore the endpoints that the proxy allows in its subset hint (false)"
    add_flag(behaviour, "--disable-endpoint-subset-filter", False, text)
    text = "tell the proxy how every candidate scored, in its dynamic metadata (false)"
    add_flag(behaviour, "--emit-endpoint-scores", False, text)
    text = "wait for responses for the sake of figures alone; false lets full duplex go lean (true)"
    add_flag(behaviour, "--response-figures", True, text)
    text = "trace as the variables OTEL_* say; without any there is nothing to do (true)"
    add_flag(behaviour, "--tracing", True, text)
    text = "leave HTTP/2 entirely to grpclib: slower, for comparison (false)"
    add_flag(behaviour, "--plain-grpc", False, text)
    _add_log_arguments(parser)
    _add_idle_arguments(parser)


def _add_idle_arguments(parser: Parser) -> None:
    """Flags of the reference that change nothing here, so that its command lines work."""
    idle = parser.add_argument_group("of the reference, without effect here")
    text = "figures of the pool are made when they are looked at"
    idle.add_argument(
        "--refresh-prometheus-metrics-interval", type=duration, metavar="DURATION", help=text
    )
    text = "replies are as long as they have to be"
    idle.add_argument("--grpc-max-send-msg-size", type=quantity, metavar="QUANTITY", help=text)
    add_flag(idle, "--enable-pprof", True, "there are no such pages; see /debug")
    text = "replicas elect no leader: every one serves (false; true is refused)"
    add_flag(idle, "--ha-enable-leader-election", False, text)
    for name in _ENGINE_METRICS:
        idle.add_argument(name, nargs="?", const="", help=argparse.SUPPRESS)


def _add_log_arguments(parser: Parser) -> None:
    log = parser.add_argument_group("log, on stderr")
    text = "verbosity: 1 warnings, 2 what happens, 4 and more for debugging (%(default)s)"
    log.add_argument("-v", "--v", type=int, default=logs.USUAL, metavar="N", help=text)
    text = "json: an object a line; text: for people (text on a terminal, or else json)"
    log.add_argument("--log-format", type=log_form, metavar="json|text", help=text)
    text = "overrides -v: debug, info, warn, error or a verbosity"
    log.add_argument("--zap-log-level", type=log_level, metavar="LEVEL", help=text)
    text = "what the reference calls --log-format: json or console"
    log.add_argument("--zap-encoder", type=log_form, metavar="json|console", help=text)
    for ignored in ("--zap-devel", "--zap-stacktrace-level", "--zap-time-encoding"):
        log.add_argument(ignored, nargs="?", help=argparse.SUPPRESS)  # as in the reference


def _add_figures_arguments(parser: Parser) -> None:
    figures = parser.add_argument_group("figures, on the metrics port")
    text = (
        "ask Kubernetes whether the bearer of a token may get the figures "
        "(true, unless the port is on loopback; without Kubernetes nobody is asked)"
    )
    figures.add_argument(
        "--metrics-endpoint-auth", nargs="?", const=True, type=boolean, metavar="BOOL", help=text
    )
    text = "serve HTTPS with the tls.crt and tls.key in this folder, which may change"
    figures.add_argument("--metrics-cert-dir", default="", metavar="FOLDER", help=text)
    text = "want a client certificate by one of these authorities, too"
    figures.add_argument("--metrics-client-ca-file", default="", metavar="FILE", help=text)
    text = "count tokens in responses that pass by anyway (true)"
    add_flag(figures, "--enable-token-metrics", True, text)
    text = "show figures also under the names of earlier releases (false)"
    add_flag(figures, "--enable-deprecated-metrics", False, text)
    text = "count ext_proc streams by their gRPC status and time them (false)"
    add_flag(figures, "--enable-grpc-stream-metrics", False, text)


def _add_tls_arguments(parser: Parser) -> None:
    tls = parser.add_argument_group("TLS of the ext_proc port")
    text = "a folder with tls.crt (the chain) and tls.key, in place of a self-signed certificate"
    tls.add_argument("--cert-path", default="", metavar="FOLDER", help=text)
    text = "take in the folder's files for new connections when they change (false)"
    add_flag(tls, "--enable-cert-reload", False, text)
    text = "the oldest version to speak: VersionTLS10, 11, 12 or 13 (VersionTLS12)"
    tls.add_argument("--tls-min-version", type=tls_version, metavar="VERSION", help=text)
    text = "suites for TLS up to 1.2 by Go's names, TLS_ECDHE_... (as OpenSSL has it)"
    tls.add_argument(
        "--tls-cipher-suites", type=tls_suites, default=(), metavar="SUITE[,SUITE...]", help=text
    )


def _add_pool_arguments(parser: Parser) -> None:
    pool = parser.add_argument_group("endpoints, unless a file-discovery plugin names a file")
    pool.add_argument("--pool-name", metavar="NAME", help="an InferencePool")
    text = "its namespace (the environment's NAMESPACE, or default)"
    pool.add_argument("--pool-namespace", metavar="NAMESPACE", help=text)
    text = "the API group of the pool (%(default)s)"
    pool.add_argument(
        "--pool-group", default="inference.networking.k8s.io", metavar="GROUP", help=text
    )
    text = "pods by label instead of a pool; needs no custom resources"
    pool.add_argument("--endpoint-selector", metavar="SELECTOR", help=text)
    text = "the ports on which those pods serve, at most eight"
    pool.add_argument(
        "--endpoint-target-ports",
        type=target_ports,
        default=(),
        metavar="PORT[,PORT...]",
        help=text,
    )
    text = "how to reach the API server (KUBECONFIG, the pod's own account, ~/.kube/config)"
    pool.add_argument("--kubeconfig", default="", metavar="FILE", help=text)
    text = "the kubeconfig's context (its current one)"
    pool.add_argument("--context", default="", metavar="NAME", help=text)


def check_serve_options(parser: Parser, options: argparse.Namespace) -> None:
    if options.config_file and options.config_text:
        parser.error("--config-file and --config-text exclude each other")
    if options.ha_enable_leader_election:
        parser.error("--ha-enable-leader-election: replicas elect no leader here, each one serves")
    for name in _ENGINE_METRICS:
        if getattr(options, name[2:].replace("-", "_")) is not None:
            parser.error(f"{name}: name metrics in engineConfigs of the core-metrics-extractor")
    if options.pool_name and options.endpoint_selector:
        parser.error("--pool-name and --endpoint-selector exclude each other")
    if options.metrics_client_ca_file and not options.metrics_cert_dir:
        parser.error("--metrics-client-ca-file needs --metrics-cert-dir")
    anybody = options.metrics_endpoint_auth is False and not options.metrics_client_ca_file
    if options.metrics_cert_dir and anybody:
        parser.error("--metrics-cert-dir needs --metrics-client-ca-file or --metrics-endpoint-auth")
    if bool(options.endpoint_selector) != bool(options.endpoint_target_ports):
        parser.error("--endpoint-selector and --endpoint-target-ports go together")
