"""How the C library is to treat memory that is not in use any more."""

from __future__ import annotations

import ctypes
from typing import Final

LARGE: Final = 256 * 1024  # bytes
_TRIM_THRESHOLD: Final = -1  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's malloc.h
_MMAP_THRESHOLD: Final = -3


def return_large_buffers() -> bool:
    """Let what held a large body go back to the system as soon as it is free.

    By itself glibc raises both limits to the largest buffer that it has seen, and then keeps
    what many of them together took at their peak. Tells whether the C library knows about it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc: musl and others do it by themselves
        return False
    done = [mallopt(option, LARGE) for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)]
    return all(done)
