"""Sends large chat bodies to a picker at a rate, until a signal ends it.

python -m tests.bench.large_bodies PORT SIZE RATE       prints "ready PORT" and goes on
"""

from __future__ import annotations

import sys
from itertools import cycle
from time import monotonic, sleep
from typing import Final

from . import load
from .scenarios import buffered, chat_body

DIFFERENT: Final = 8  # bodies, so that not each is known to the picker
MOST: Final = 64 << 20  # bytes of all of them


def bodies(size: int) -> list[bytes]:
    """Chats of that size that differ from their beginning."""
    count = max(1, min(DIFFERENT, MOST // size))
    return [
        chat_body(size).replace(b"compare", f"{number:07d}".encode()) for number in range(count)
    ]


def main(port: str, size: str, rate: str) -> None:
    scripts = cycle([load.script(buffered("large", body).steps) for body in bodies(int(size))])
    with load.client(int(port)) as client:
        client.play(next(scripts), 1)
        print("ready", port, flush=True)
        due = monotonic()
        while True:
            due = max(due + 1 / float(rate), monotonic())
            sleep(max(0.0, due - monotonic()))
            client.play(next(scripts), 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
