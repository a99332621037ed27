"""The ``pointsman`` command: which part runs, with what exit status."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final, Protocol, cast

import anyio

from pointsman import __version__
from pointsman.kernel.errors import ConfigError, KernelError

from .cli import USAGE, Parser, check_serve_options, complain, make_parser, with_command

FAILED = 1
TOOLS: Final = {
    "demo": ".demo",
    "demo kube": ".demo_kube",
    "sim": ".sim.fleet",
    "sim kube": ".sim.kube.command",
}
Command = Callable[[argparse.Namespace], Awaitable[int | None]]


def main(arguments: Sequence[str] | None = None) -> None:
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Carry out a command line; the exit status."""
    top, parser_of = make_parser()
    words = with_command(arguments)
    if words and words[0] in TOOLS:
        _tool(words[0]).add_arguments(parser_of(words[0]))
    options, unknown = top.parse_known_args(words)
    if unknown:
        (parser_of(options.command) if options.command else top).refuse(unknown[0])
    if options.version:
        print(f"pointsman {__version__}")
        return 0
    match options.command:
        case "serve":
            check_serve_options(parser_of("serve"), options)
            return serve(options)
        case "check":
            from .check import check

            return check(options)
        case "graph":
            from .check import graph

            return graph(options)
        case tool:
            return _run(_tool(tool).run, options)


class _Tool(Protocol):
    """A module with a command of its own, which is loaded only when it is called."""

    def add_arguments(self, parser: Parser) -> None: ...
    async def run(self, options: argparse.Namespace) -> int | None: ...


def _tool(command: str) -> _Tool:
    return cast("_Tool", import_module(TOOLS[command], __package__))


def serve(options: argparse.Namespace) -> int:
    from . import serve as daemon

    set_up_logging(options.v)
    return _run(daemon.run, options)


def _run(command: Command, options: argparse.Namespace) -> int:
    """Run *command* on asyncio; its failures become a line and a status."""
    try:
        fast = find_spec("uvloop") is not None
        status = anyio.run(command, options, backend_options={"use_uvloop": fast})
    except ConfigError as exc:
        for line in str(exc).splitlines():
            complain(line)
        return USAGE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (OSError, KernelError) as exc:
        return complain(_plainly(exc))
    except BaseExceptionGroup as group:
        return _explain(group)
    return status or 0


def _explain(group: BaseExceptionGroup[BaseException]) -> int:
    """What brought the task groups down, in one line; a bug keeps its traceback."""
    causes = _leaves(group)
    if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        return 128 + signal.SIGINT
    for cause in causes:
        if isinstance(cause, OSError):
            return complain(_plainly(cause))
        if isinstance(cause, KernelError):
            complain(f"giving up: {cause}")
            return FAILED
    raise group


def _leaves(exc: BaseException) -> list[BaseException]:
    parts: Sequence[BaseException] | None = getattr(exc, "exceptions", None)
    if parts is None:
        return [exc]
    return [leaf for part in parts for leaf in _leaves(part)]


def _plainly(exc: Exception) -> str:
    return str(exc).rstrip(".")


def set_up_logging(verbosity: int) -> None:
    if verbosity < 0:
        verbosity = 2  # the default, as in the reference system
    level = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity >= 2 else logging.WARNING
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    for noisy in ("hpack", "h2", "httpcore", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
