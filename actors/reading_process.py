"""The process that reads large bodies: a body in, what the parser made of it out, until the end.

Its one connection is its standard input. It ends when the daemon does, whatever ends that, and
leaves signals to it: the daemon still reads bodies while it drains.
"""

from __future__ import annotations

import pickle
import signal
import socket
from functools import lru_cache
from typing import Any

from pointsman.kernel.errors import Refusal
from pointsman.kernel.installed import where_raised
from pointsman.kernel.parsing import Origin, Reader
from pointsman.kernel.rewriting import NamePlace, model_place

from .memory import return_large_buffers
from .reading_wire import Gone, pack, receive, send


def serve(daemon: socket.socket) -> None:
    """Answer until the other end goes away."""
    while True:
        try:
            origin, renaming, body = receive(daemon)
            answer = pack(_answer(origin, body, renaming=bool(renaming)))
            del body
            send(daemon, answer)
            del answer
        except (Gone, OSError):
            return


def _answer(origin: bytes, body: bytes, *, renaming: bool) -> tuple[Any, ...]:
    try:
        read = _reader(origin)
    except Exception as exc:  # whatever somebody's module does when it is imported
        return "unknown", where_raised(exc)
    try:
        parsed = read(body)
        place = _place(body) if renaming and parsed.model is not None else None
    except Refusal as refusal:
        return "refused", refusal.status, refusal.message, refusal.reason, refusal.retry_after
    except Exception as exc:
        return "failed", where_raised(exc)
    values = {key.name: value for key, value in parsed.values.items()}
    return "read", parsed.model, values, place


def _place(body: bytes) -> NamePlace | None:
    """None for what is no JSON: that is a mistake only if the model changes in the end."""
    try:
        return model_place(body)
    except ValueError:
        return None


@lru_cache(maxsize=64)
def _reader(origin: bytes) -> Reader:
    """A reader as the daemon has it. Keys are the same only within a process: names go across."""
    parser, claim, names = pickle.loads(origin)
    wanted = frozenset(key for key in parser.produces if key.name in names)
    read = Origin(parser, claim, wanted).reader()
    if read is None:
        raise LookupError(claim)
    return read


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return_large_buffers()
    with socket.socket(fileno=0) as daemon:
        serve(daemon)


if __name__ == "__main__":
    main()
