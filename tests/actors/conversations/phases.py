"""The two halves of an exchange, as a proxy shows them in each of its modes."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Final

from .messages import (
    BODY,
    FIELDS,
    STATUS,
    Modes,
    Pairs,
    goes_on,
    piece,
    pieces,
    replaced,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
    sent_to,
)
from .script import Step, step

MODES: Final = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED")
DUPLEX: Final = "FULL_DUPLEX_STREAMED"
BUFFERED: Final = ("BUFFERED", "BUFFERED_PARTIAL")


class Ending(enum.Enum):
    """What the end comes with."""

    HEADERS = "headers"
    BODY = "body"
    TRAILERS = "trailers"


def readable(mode: str, ending: Ending) -> bool:
    """Whether the picker sees the whole body before it decides, and knows that it does."""
    if mode == "BUFFERED_PARTIAL":
        return ending is Ending.BODY
    return mode in ("BUFFERED", DUPLEX) and ending is not Ending.HEADERS


def request(
    modes: Modes | None,
    ending: Ending = Ending.BODY,
    *,
    fields: Pairs = FIELDS,
    body: bytes = BODY,
    sent: bytes | None = None,
    ask: Modes | None = None,
    **route: Any,
) -> Sequence[Step]:
    """A request and its decision.

    Args:
        modes: None if the proxy announces none.
        sent: the body that goes to the model server, if that is another one.
        ask: the modes that the proxy is asked for.
        route: where the request goes, as for `sent_to`.
    """
    mode = DUPLEX if modes is None else modes[0]
    opening = request_headers(fields, end=ending is Ending.HEADERS, modes=modes)
    at_once = sent_to("request_headers", ask=ask, **route)
    whole = ending is Ending.BODY
    half = len(body) // 2
    passes = goes_on("request_body")
    trailers = [goes_on("request_trailers")]
    if ending is Ending.HEADERS:
        return [step(opening, at_once)]
    steps: list[Step]
    if mode == "NONE":
        steps = [step(opening, at_once)]
    elif mode == "STREAMED":
        steps = [
            step(opening, at_once),
            step(request_body(body[:half]), passes),
            step(request_body(body[half:], end=whole), passes),
        ]
    elif mode in BUFFERED:
        steps = [
            step(opening, goes_on("request_headers", ask=ask)),
            step(request_body(body, end=whole), sent_to("request_body", body=sent, **route)),
        ]
    else:
        passed = pieces("request_body", body if sent is None else sent, end=whole)
        decided = [at_once, *passed]
        steps = [step(opening), step(request_body(body[:half]))]
        if whole:
            return [*steps, step(request_body(body[half:], end=True), *decided)]
        steps.append(step(request_body(body[half:])))
        trailers = [*decided, *trailers]
    return steps if whole else [*steps, step(request_trailers(), *trailers)]


def response(
    mode: str,
    ending: Ending = Ending.BODY,
    *,
    fields: Pairs = STATUS,
    body: Sequence[bytes] = (b"one", b"", b"two"),
    passed: Sequence[bytes] | None = None,
    announced: Modes | None = None,
    **headers: Any,
) -> Sequence[Step]:
    """A response on its way to the client.

    Args:
        body: its pieces; a proxy that buffers sends them as one.
        passed: what the client gets of each piece, where that is something else.
        headers: what is done to its headers, as for `goes_on`.
    """
    opening = response_headers(fields, end=ending is Ending.HEADERS, modes=announced)
    steps = [step(opening, goes_on("response_headers", **headers))]
    if ending is Ending.HEADERS:
        return steps
    if mode in BUFFERED:
        body, passed = [b"".join(body)], None if passed is None else [b"".join(passed)]
    changed = [None] * len(body) if passed is None else passed
    for number, (data, put) in enumerate(zip(body, changed, strict=True), start=1):
        end = ending is Ending.BODY and number == len(body)
        if mode == "NONE":
            continue
        said = response_body(data, end=end)
        if mode == DUPLEX:
            steps.append(step(said, piece("response_body", data if put is None else put, end=end)))
        elif put is None:
            steps.append(step(said, goes_on("response_body")))
        else:
            steps.append(step(said, replaced("response_body", put)))
    if ending is Ending.TRAILERS:
        steps.append(step(response_trailers(), goes_on("response_trailers")))
    return steps


def ends(mode: str, ending: Ending) -> bool:
    """Whether the picker sees the end of such a response."""
    return ending is not Ending.BODY or mode != "NONE"
