"""What a command line is read with: errors in one line, values as the reference spells them."""

from __future__ import annotations

import argparse
import ssl
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final, NoReturn

from pointsman.kernel.registry import did_you_mean
from pointsman.kernel.structure import parse_duration, parse_quantity

from . import logs
from .tls_policy import read_suites, read_version

USAGE: Final = 2  # exit status for everything that the caller can put right

MOST_PORTS: Final = 8  # of a pod, as in an InferencePool


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


def log_form(text: str) -> logs.Form:
    try:
        return logs.Form.TEXT if text == "console" else logs.Form(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither json nor text") from None


def log_level(text: str) -> int:
    try:
        return logs.read_level(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def tls_version(text: str) -> ssl.TLSVersion | None:
    try:
        return read_version(text) if text else None
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def tls_suites(text: str) -> tuple[str, ...]:
    try:
        return read_suites(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def add_flag(parser: argparse._ActionsContainer, name: str, default: bool, text: str) -> None:
    """A boolean flag as in Go: ``--name``, ``--name=false``."""
    parser.add_argument(
        name, nargs="?", const=True, default=default, type=boolean, metavar="BOOL", help=text
    )
