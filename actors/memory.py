"""What sees to it that memory goes back to the system when it is not in use any more."""

from __future__ import annotations

import ctypes
import gc
from time import perf_counter
from typing import Any, Final

import anyio

LARGE: Final = 256 * 1024  # bytes
_TRIM_THRESHOLD: Final = -1  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3
TRIM_EVERY: Final = 30.0  # seconds
COLLECT_EVERY: Final = 60.0  # seconds, or less often
COLLECTING: Final = 0.001  # of the time, at most
_NEVER: Final = 2**31 - 1


def return_large_buffers() -> bool:
    """Let what held a large body go back to the system as soon as it is free.

    By itself glibc raises both limits to the largest buffer that it has seen, and then keeps
    what many of them together took at their peak. Tells whether the C library knows about it.
    """
    mallopt = _found("mallopt")
    if mallopt is None:
        return False
    done = [mallopt(option, LARGE) for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)]
    return all(done)


async def keep_trimmed() -> None:
    """Give back, now and then, pages between buffers that are in use; until cancelled.

    Streams of many sizes come and go beside thousands that stay, and glibc only ever gives back
    what is behind the last of them. It takes about a millisecond for a hundred megabytes.
    """
    trim = _found("malloc_trim")
    while True:
        await anyio.sleep(TRIM_EVERY)
        if trim is not None:
            trim(0)


async def keep_collected() -> None:
    """Have a full collection now and then, and not whenever Python would; until cancelled.

    It looks at all there is, a quarter of a second at 5,000 streams, and nobody is served
    meanwhile. Python has one whenever a quarter more has grown old, which with streams that come
    and go is twice a minute. Requests leave nothing that only it would find, and what plugins
    leave can wait. What is young is collected as ever.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    pause = COLLECT_EVERY
    try:
        while True:
            await anyio.sleep(pause)
            started = perf_counter()
            gc.collect()
            pause = max(COLLECT_EVERY, (perf_counter() - started) / COLLECTING)
    finally:
        gc.set_threshold(young, middle, old)


def forget_origin(error: BaseException | None) -> None:
    """Let go of the frames that *error* came through, where they hold it in their turn.

    Only a full collection would find that circle, and until then all in it stays, bodies too.
    """
    if error is not None:
        error.__traceback__ = error.__cause__ = error.__context__ = None


def _found(name: str) -> Any:
    """A function of the C library; None where that is not glibc, and does it by itself."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
