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

from . import logs
from .arguments import USAGE, Parser
from .cli import complain, make_parser, with_command
from .serve_flags import check_serve_options

logger = logging.getLogger(__name__)

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
        case "plugins":
            from .catalogue import plugins

            return plugins(options)
        case tool:
            return _run(_tool(tool).run, options)


class _Tool(Protocol):
    """A module with a command of its own, which is loaded only when it is called."""

    def add_arguments(self, parser: Parser) -> None: ...
    async def run(self, options: argparse.Namespace) -> int | None: ...


def _tool(command: str) -> _Tool:
    return cast("_Tool", import_module(TOOLS[command], __package__))


def serve(options: argparse.Namespace) -> int:
    """Run the daemon; a bug becomes a record, like everything that it has to say."""
    from . import serve as daemon

    form = options.log_format or options.zap_encoder
    level = options.zap_log_level
    logs.set_up(logs.level_of(options.v) if level is None else level, form)
    with logs.everything_logged():
        try:
            return _run(daemon.run, options)
        except Exception as exc:
            logger.critical("the daemon ends over a mistake of its own", exc_info=exc)
            return FAILED


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
