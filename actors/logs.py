"""Where log records go: to stderr, as JSON or as text, from a level on."""

from __future__ import annotations

import enum
import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from .log_lines import JsonLines, TextLines

logger = logging.getLogger(__name__)

USUAL: Final = 2
"""Verbosity, as in the reference system."""
DEBUGGING: Final = 4
"""The verbosity from which on there is everything."""
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "panic": logging.CRITICAL,
}
QUIET: Final = ("hpack", "h2", "httpcore", "httpx")
"""Libraries that have much to say about each request."""


class Form(enum.StrEnum):
    """How a record looks."""

    JSON = "json"
    TEXT = "text"


def read_level(text: str) -> int:
    """A level by its name, or a verbosity as a number. Raises ValueError."""
    if text.isdecimal():
        return level_of(int(text))
    if text not in LEVELS:
        raise ValueError(f"{text!r} is neither a number nor one of {', '.join(LEVELS)}")
    return LEVELS[text]


def level_of(verbosity: int) -> int:
    """The lowest level of which there is something at *verbosity*."""
    if verbosity < 0:
        verbosity = USUAL
    if verbosity >= DEBUGGING:
        return logging.DEBUG
    return logging.INFO if verbosity >= USUAL else logging.WARNING


def usual_form() -> Form:
    """People read a terminal, programs read everything else."""
    return Form.TEXT if sys.stderr.isatty() else Form.JSON


def set_up(level: int, form: Form | None = None) -> None:
    """Send the records of *level* and above to stderr."""
    lines = JsonLines if (form or usual_form()) is Form.JSON else TextLines
    handler = logging.StreamHandler(sys.stderr)
    # Texts of exceptions may quote requests: that is for whoever looks for a fault.
    handler.setFormatter(lines(texts=level <= logging.DEBUG))
    logging.basicConfig(level=level, handlers=[handler])
    for noisy in QUIET:
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))


@contextmanager
def everything_logged() -> Generator[None, None, None]:
    """In this block, what Python would print on stderr by itself becomes a record each."""
    unraisable, thread = sys.unraisablehook, threading.excepthook
    sys.unraisablehook, threading.excepthook = _unraisable, _in_thread
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        sys.unraisablehook, threading.excepthook = unraisable, thread


def _unraisable(args: sys.UnraisableHookArgs) -> None:
    logger.error("an exception could not be raised", exc_info=args.exc_value)


def _in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        logger.error("a thread ended by an exception", exc_info=args.exc_value)
