"""Requests that are turned down: an error is the last that a proxy hears, and often the first.

P-xx and B-xx are the field reports whose fault a script keeps away.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final

import msgspec
import pytest

from .cutting import sized
from .messages import (
    BODY,
    FIELDS,
    Pairs,
    decides,
    goes_on,
    refused,
    request_body,
    request_headers,
    request_trailers,
    sent_to,
)
from .phases import BUFFERED, DUPLEX, MODES, Ending, request, response
from .script import Script, Setup, step
from .setups import DOORMAN, LIMIT, NARROW, NOBODY, OPENAI, PLAIN, WAITING

REASON: Final = "x-llm-d-request-dropped-reason"
READING: Final = (*BUFFERED, DUPLEX)
"""The modes in which a picker reads bodies."""


def turned_down(
    name: str,
    setup: Setup,
    modes: tuple[str, str],
    ending: Ending,
    answer: bytes,
    *,
    fields: Pairs = FIELDS,
    body: bytes = BODY,
) -> Script:
    """A request that is refused where it would have been decided."""
    steps = request(modes, ending, fields=fields, body=body)
    where = next(n for n, one in enumerate(steps) if any(map(decides, one.hears)))
    return Script(name, setup, [*steps[:where], step(steps[where].says, answer)], over=True)


READ: Final = (*((mode, Ending.BODY) for mode in READING), (DUPLEX, Ending.TRAILERS))
BROKEN: Final = (b"", b'{"model":"m"', b"\xff", b"[]", b"null")
NAMELESS: Final = (b'{"prompt":"x"}', b'{"prompt":"x","model":""}', b'{"prompt":"x","model":null}')


def _bodies() -> Iterator[Script]:
    """P-07: nothing is said before the error; B-03, B-04: what is wrong is told."""
    wrong = [
        *((body, f"error reading the request body: {_trouble(body)}") for body in BROKEN),
        *((body, "model not found in request body") for body in NAMELESS),
    ]
    for (mode, ending), (body, why) in product(READ, wrong):
        name = f"{body!r}, {mode} to its {ending.value}"
        yield turned_down(name, PLAIN, (mode, "NONE"), ending, refused(400, why), body=body)


def _trouble(body: bytes) -> str:
    """In the words of the library that reads JSON: those are its own affair."""
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(body, type=dict[str, object])
    return str(caught.value)


TICKETS: Final = ((404, "no-such-model", "-"), (429, "saturated", "1"), (503, "-", "30"))
STATUSES: Final = (400, 401, 403, 404, 412, 413, 418, 429, 500, 502, 503)


def _statuses() -> Iterator[Script]:
    """A plugin's word is kept, in every mode."""
    tickets = [*product(MODES, TICKETS), *((DUPLEX, (status, "-", "-")) for status in STATUSES)]
    for mode, (status, reason, after) in tickets:
        named = [(REASON, reason)] if reason != "-" else []
        named += [("retry-after", after)] if after != "-" else []
        answer = refused(status, "not today", *((name, value.encode()) for name, value in named))
        fields = (*FIELDS, ("x-refuse", f"{status} {reason} {after}".encode()))
        name = f"refused with {status} {reason} {after} in {mode}"
        yield turned_down(name, DOORMAN, (mode, mode), Ending.BODY, answer, fields=fields)


def _pools() -> Iterator[Script]:
    """P-09: nobody is there, or nobody whom the proxy allows."""
    nobody = "failed to find endpoint candidates for serving the request"
    answer = refused(503, nobody, (REASON, b"rejected-no-endpoints"), ("retry-after", b"1"))
    for mode, ending in product(MODES, Ending):
        name = f"an empty pool, {mode} to its {ending.value}"
        yield turned_down(name, NOBODY, (mode, mode), ending, answer)


def _paths() -> Iterator[Script]:
    for mode, path in product(MODES, (b"/v1/models", b"/v1/models?x=/v1/completions")):
        fields = ((":method", b"POST"), (":path", path))
        opening = request_headers(fields, modes=(mode, mode))
        answer = refused(400, "no parser handles the path '/v1/models'")
        name = f"nobody's path {path.decode()} in {mode}"
        yield Script(name, OPENAI, [step(opening, answer)], over=True)


NUMBERS: Final = (b"n", b"n" * 128, b"n" * 129, b"\xff\xfe\n", "\u660e".encode(), b"")


def _numbers() -> Iterator[Script]:
    """An error quotes the request's number, as far as it is not too long."""
    for number in NUMBERS:
        quoted = [("x-request-id", number[:128])] if number else []
        answer = refused(400, "model not found in request body", *quoted)
        fields = (*FIELDS, ("X-Request-Id", number))
        name = f"quoting the number {number!r}"
        yield turned_down(
            name, PLAIN, (DUPLEX, DUPLEX), Ending.BODY, answer, fields=fields, body=NAMELESS[0]
        )


def _sizes() -> Iterator[Script]:
    """Held is what is below the limit; more than that is never waited for."""
    too_large = refused(413, f"the request body is larger than {LIMIT} bytes")
    for mode, size in product(READING, (LIMIT - 1, LIMIT)):
        steps = request((mode, "NONE"), body=sized(size))
        yield Script(f"{size} bytes, {LIMIT} may be held, {mode}", NARROW, steps)
    for mode, size in product(READING, (LIMIT + 1, 2 * LIMIT)):
        name = f"{size} bytes, {LIMIT} may be held, {mode}"
        yield turned_down(name, NARROW, (mode, "NONE"), Ending.BODY, too_large, body=sized(size))
    for last in (0, 1):
        tail = step(request_body(b"x" * last), *[too_large] * last)
        parts = [step(request_body(b"x" * (LIMIT // 4)))] * 4
        steps = [step(request_headers()), *parts, tail]
        yield Script(f"{LIMIT} bytes in pieces and {last}", NARROW, steps, over=bool(last))
    for mode in ("NONE", "STREAMED"):
        steps = request((mode, "NONE"), body=sized(2 * LIMIT))
        yield Script(f"{2 * LIMIT} bytes that nobody holds, {mode}", NARROW, steps)


def _orders() -> Iterator[Script]:
    """What a stream may not hold."""
    second = refused(400, "a stream carries one request")
    for mode, setup in product(MODES, (PLAIN, WAITING)):
        modes = (mode, mode)
        whole = [*request(modes), *response(mode)[:1]]
        for point in range(1, len(whole) + 1):
            steps = [*whole[:point], step(request_headers(modes=modes), second)]
            kind = "waits" if setup is WAITING else "does not wait"
            name = f"a second request after {point} messages in {mode}, which {kind}"
            yield Script(name, setup, steps, over=True)
    unseen = refused(400, "the request ended before its body was seen")
    for mode in BUFFERED:
        opening = step(request_headers(modes=(mode, mode)), goes_on("request_headers"))
        steps = [opening, step(request_trailers(), unseen)]
        yield Script(f"trailers in place of a body in {mode}", PLAIN, steps, over=True)


def _cut_off() -> Iterator[Script]:
    """A body that the proxy cut off is no error: load alone decides."""
    for body in (b'{"model": "m", "pro', b"", BODY):
        opening = request_headers(modes=("BUFFERED_PARTIAL", "NONE"))
        steps = [
            step(opening, goes_on("request_headers")),
            step(request_body(body), sent_to("request_body")),
            step(request_body(b"the rest"), goes_on("request_body")),
            step(request_body(b"", end=True), goes_on("request_body")),
        ]
        yield Script(f"cut off after {body!r}", PLAIN, steps)


THEMES: Final = {
    "bodies that are refused": _bodies,
    "refusals of plugins": _statuses,
    "empty pools": _pools,
    "paths of nobody": _paths,
    "numbers of requests": _numbers,
    "sizes of bodies": _sizes,
    "orders of messages": _orders,
    "bodies that are cut off": _cut_off,
}
