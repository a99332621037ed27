"""The command line: flags as the reference system spells them, errors in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

from .arguments import USAGE, Parser, add_flag
from .serve_flags import add_serve_arguments

DESCRIPTION: Final = """\
Pointsman picks, for each LLM request that passes an Envoy, the model server that should serve
it. Envoy asks over ext_proc (gRPC); Pointsman answers from the live load of the servers.

Arguments that begin with -- mean `serve`.
"""


def add_config_arguments(parser: Parser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="an EndpointPickerConfig file")
    add_flag(parser, "--allow-experimental-plugins", False, "accept alpha plugin types")


def make_parser() -> tuple[Parser, Callable[[str], Parser]]:
    """The top parser, and a way to the parser of each command."""
    top = Parser(prog="pointsman", description=DESCRIPTION)
    top.add_argument("--version", action="store_true", help="print the version and end")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    text = "answer Envoy's questions (what the daemon does)"
    serve = commands.add_parser("serve", help=text, description=_sentence(text))
    add_serve_arguments(serve)
    text = "read a configuration and say what is wrong with it, or what it comes to"
    check = commands.add_parser("check", help=text, description=_sentence(text))
    check.add_argument("--format", choices=("text", "json"), default="text", help="(%(default)s)")
    add_config_arguments(check)
    text = "draw who produces which data for whom"
    graph = commands.add_parser("graph", help=text, description=_sentence(text))
    forms = ("text", "mermaid", "dot")
    graph.add_argument("--format", choices=forms, default="text", help="(%(default)s)")
    add_config_arguments(graph)
    text = "list the plugin types, or tell all about those that are named"
    plugins = commands.add_parser("plugins", help=text, description=_sentence(text))
    plugins.add_argument("types", metavar="TYPE", nargs="*", help="a plugin type")
    forms = ("text", "markdown", "json")
    plugins.add_argument("--format", choices=forms, default="text", help="(%(default)s)")
    text = "three simulated model servers, a real Envoy and the daemon, in one go"
    commands.add_parser("demo", help=text)
    text = "the same in Kubernetes, with a simulated API server, while pods come and go"
    commands.add_parser("demo kube", help=text)
    text = "simulated model servers that look like vLLM"
    commands.add_parser("sim", help=text)
    text = "a Kubernetes API server in memory, for kubectl, clients and tests"
    commands.add_parser("sim kube", help=text)
    return top, lambda name: commands.choices[name]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


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
