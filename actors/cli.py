"""The command line: flags as the reference system spells them, errors in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, NoReturn

from pointsman.kernel.registry import did_you_mean
from pointsman.kernel.structure import parse_duration, parse_quantity

USAGE: Final = 2  # exit status for everything that the caller can put right

MOST_PORTS: Final = 8  # of a pod, as in an InferencePool

DESCRIPTION: Final = """\
Pointsman picks, for each LLM request that passes an Envoy, the model server that should serve
it. Envoy asks over ext_proc (gRPC); Pointsman answers from the live load of the servers.

Arguments that begin with -- mean `serve`.
"""


class Parser(argparse.ArgumentParser):
    """Ends with one line and status 2; knows what an unknown flag was meant to be."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def parse_known_args(  # type: ignore[override]  # typeshed's has overloads for namespaces
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """A boolean flag takes the next word only where that is true or false."""
        words = list(sys.argv[1:] if args is None else args)
        for position, word in enumerate(words):
            action = self._option_string_actions.get(word)
            following = words[position + 1 : position + 2]
            if action is not None and action.type is boolean and not set(following) & _TRUTHS:
                words[position] = f"{word}=true"
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: error: {message}\n")

    def refuse(self, argument: str) -> NoReturn:
        """End over an argument that nobody knows."""
        word = argument.partition("=")[0]
        hint = did_you_mean(word, self._option_string_actions)
        self.error(f"unknown argument {word!r}" + (f"; {hint}" if hint else ""))


def duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def quantity(text: str) -> int:
    try:
        return parse_quantity(text.rstrip("Bb"))
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_TRUTHS: Final = _BOOLEANS.keys() | {word.capitalize() for word in _BOOLEANS}


def boolean(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


def port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port number")
    return int(text)


def target_ports(text: str) -> tuple[int, ...]:
    """Ports in their order, each once."""
    ports = tuple(dict.fromkeys(port(part.strip()) for part in text.split(",") if part.strip()))
    if not 1 <= len(ports) <= MOST_PORTS or 0 in ports:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of one to {MOST_PORTS} ports")
    return ports


def address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no IP address") from None


def add_flag(parser: argparse._ActionsContainer, name: str, default: bool, text: str) -> None:
    """A boolean flag as in Go: ``--name``, ``--name=false``."""
    parser.add_argument(
        name, nargs="?", const=True, default=default, type=boolean, metavar="BOOL", help=text
    )


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
    text = "TLS on the ext_proc port, with a self-signed certificate (true)"
    add_flag(ports, "--secure-serving", True, text)
    text = "the largest request body that is looked at; more is answered 413 (64Mi)"
    ports.add_argument(
        "--grpc-max-recv-msg-size", type=quantity, default=64 << 20, metavar="QUANTITY", help=text
    )
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
    text = "leave HTTP/2 entirely to grpclib: slower, for comparison (false)"
    add_flag(behaviour, "--plain-grpc", False, text)
    text = "verbosity: 1 warnings, 2 what happens, 4 and more for debugging (%(default)s)"
    behaviour.add_argument("-v", "--v", type=int, default=2, metavar="N", help=text)


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


def add_config_arguments(parser: Parser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="an EndpointPickerConfig file")
    add_flag(parser, "--allow-experimental-plugins", False, "accept alpha plugin types")


def check_serve_options(parser: Parser, options: argparse.Namespace) -> None:
    if options.config_file and options.config_text:
        parser.error("--config-file and --config-text exclude each other")
    if options.pool_name and options.endpoint_selector:
        parser.error("--pool-name and --endpoint-selector exclude each other")
    if bool(options.endpoint_selector) != bool(options.endpoint_target_ports):
        parser.error("--endpoint-selector and --endpoint-target-ports go together")


def make_parser() -> tuple[Parser, Callable[[str], Parser]]:
    """The top parser, and a way to the parser of each command."""
    top = Parser(prog="pointsman", description=DESCRIPTION)
    top.add_argument("--version", action="store_true", help="print the version and end")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    text = "answer Envoy's questions (what the daemon does)"
    serve = commands.add_parser("serve", help=text, description=text.capitalize() + ".")
    add_serve_arguments(serve)
    text = "read a configuration and say what is wrong with it, or what it comes to"
    check = commands.add_parser("check", help=text, description=text.capitalize() + ".")
    check.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")
    add_config_arguments(check)
    text = "draw who produces which data for whom"
    graph = commands.add_parser("graph", help=text, description=text.capitalize() + ".")
    forms = ("text", "mermaid", "dot")
    graph.add_argument("--format", choices=forms, default="text", help="(%(default)s)")
    add_config_arguments(graph)
    text = "three simulated model servers, a real Envoy and the daemon, in one go"
    commands.add_parser("demo", help=text)
    text = "the same in Kubernetes, with a simulated API server, while pods come and go"
    commands.add_parser("demo kube", help=text)
    text = "simulated model servers that look like vLLM"
    commands.add_parser("sim", help=text)
    text = "a Kubernetes API server in memory, for kubectl, clients and tests"
    commands.add_parser("sim kube", help=text)
    return top, lambda name: commands.choices[name]


def with_command(arguments: Sequence[str]) -> list[str]:
    """*arguments*, with the command that is meant when there is none."""
    if tuple(arguments[:2]) in (("demo", "kube"), ("sim", "kube")):
        return [f"{arguments[0]} kube", *arguments[2:]]
    if arguments and arguments[0] in ("-h", "--help", "--version"):
        return list(arguments)
    if not arguments or arguments[0].startswith("-"):
        return ["serve", *arguments]
    return list(arguments)


def complain(message: str) -> int:
    """Say what is wrong; the exit status that goes with it."""
    print(f"pointsman: {message}", file=sys.stderr)
    return USAGE
