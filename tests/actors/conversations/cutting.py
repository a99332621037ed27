"""Bodies as networks cut them, and as proxies take them.

P-xx and B-xx are the field reports whose fault a script keeps away.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

from .messages import (
    goes_on,
    pieces,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    sent_to,
)
from .phases import DUPLEX, request
from .script import Script, step
from .setups import PLAIN

CHARACTERS: Final = '{"model":"m","prompt":"明月"}'.encode()
SIZES: Final = tuple(times * 62_000 + more for times in (1, 2) for more in (-1, 0, 1))


def _duplex(name: str, *parts: bytes, trailers: bool = False) -> Script:
    """A request in these pieces, the end with the last of them or by trailers."""
    body = b"".join(parts)
    decided = [sent_to("request_headers"), *pieces("request_body", body, end=not trailers)]
    steps = [step(request_headers(modes=(DUPLEX, DUPLEX)))]
    if trailers:
        steps += [step(request_body(part)) for part in parts]
        steps.append(step(request_trailers(), *decided, goes_on("request_trailers")))
    else:
        steps += [step(request_body(part)) for part in parts[:-1]]
        steps.append(step(request_body(parts[-1], end=True), *decided))
    return Script(name, PLAIN, steps)


def _anywhere() -> Iterator[Script]:
    """B-14: also inside a character."""
    for place in range(len(CHARACTERS) + 1):
        yield _duplex(f"cut at {place}", CHARACTERS[:place], CHARACTERS[place:])
    yield _duplex("in single bytes", *(bytes((byte,)) for byte in CHARACTERS))


def _empty() -> Iterator[Script]:
    """Pieces that hold nothing."""
    half = len(CHARACTERS) // 2
    parts = (CHARACTERS[:half], CHARACTERS[half:])
    for places, trailers in product(product((False, True), repeat=3), (False, True)):
        before, between, behind = ((b"",) * place for place in places)
        name = f"empty pieces {places}, {'trailers' if trailers else 'no trailers'}"
        cut = (*before, parts[0], *between, parts[1], *behind)
        yield _duplex(name, *cut, trailers=trailers)


def sized(size: int) -> bytes:
    """A body of that many bytes."""
    frame = b'{"model": "m", "prompt": ""}'
    return frame[:-2] + b"x" * (size - len(frame)) + frame[-2:]


def _sizes() -> Iterator[Script]:
    """P-06: proxies refuse more than 64 kB in one reply: 62,000 bytes are the most."""
    for size in SIZES:
        body = sized(size)
        yield _duplex(f"{size} bytes at once", body)
        yield _duplex(f"{size} bytes, the end of its own", body[:61_000], body[61_000:], b"")
        yield _duplex(f"{size} bytes before trailers", body, trailers=True)
        yield Script(f"{size} bytes buffered", PLAIN, request(("BUFFERED", "NONE"), body=body))


def _response_sizes() -> Iterator[Script]:
    for size, end in product((0, 1, *SIZES), (True, False)):
        body = b"\xff" * size
        steps = [
            *request((DUPLEX, DUPLEX)),
            step(response_headers(), goes_on("response_headers")),
            step(response_body(body, end=end), *pieces("response_body", body, end=end)),
        ]
        name = f"a response of {size} bytes, {'the end' if end else 'not the end'}"
        yield Script(name, PLAIN, steps, over=end)


THEMES: Final = {
    "requests that are cut anywhere": _anywhere,
    "empty pieces": _empty,
    "sizes of requests": _sizes,
    "sizes of responses": _response_sizes,
}
