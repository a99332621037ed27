"""Exceptions for the log: where they came from, and their texts only where those are harmless.

The text of an exception may quote what a client sent. Ours and the operating system's do not.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from typing import Final

from pointsman.kernel.errors import KernelError

HARMLESS: Final = (KernelError, OSError)
MOST_FRAMES: Final = 40  # of one exception, the innermost
MOST_EXCEPTIONS: Final = 20  # of one record


def summary(exc: BaseException, *, texts: bool = False) -> str:
    """One exception by its kind; with its text if that is harmless, or all *texts* are wanted."""
    text = str(exc) if texts or isinstance(exc, HARMLESS) else ""
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def trace(exc: BaseException, *, texts: bool = False) -> Iterator[str]:
    """Lines that tell where *exc* came from: what led to it first, like Python's own."""
    return _trace(exc, texts, set())


def _trace(exc: BaseException, texts: bool, seen: set[int]) -> Iterator[str]:
    seen.add(id(exc))
    if len(seen) > MOST_EXCEPTIONS:
        yield "..."
        return
    cause = exc.__cause__ or (None if exc.__suppress_context__ else exc.__context__)
    if cause is not None and id(cause) not in seen:
        yield from _trace(cause, texts, seen)
        yield "which led to:"
    for frame, line in list(traceback.walk_tb(exc.__traceback__))[-MOST_FRAMES:]:
        yield f"  {frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"
    yield summary(exc, texts=texts)
    parts: Sequence[BaseException] = getattr(exc, "exceptions", ())  # of a group
    for part in parts:
        yield from (f"  | {line}" for line in _trace(part, texts, seen))
