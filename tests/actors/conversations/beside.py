"""What travels beside the bodies: hints, scores, who served, and headers of any bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

from .messages import (
    BODY,
    FIELDS,
    LOWEST,
    OTHER,
    STATUS,
    SUBSET,
    Pairs,
    goes_on,
    pieces,
    refused,
    request_body,
    request_headers,
    response_headers,
    sent_to,
)
from .phases import BUFFERED, DUPLEX, MODES, Ending, ends, request, response
from .script import Script, Step, step
from .setups import DEAF, ECHO, MARKER, PLAIN, SCORES

HINTS: Final[Mapping[str, tuple[Any, str | None]]] = {
    "a list": ([OTHER], OTHER),
    "an address without a port": (["10.0.0.1"], OTHER),
    "a text": ("10.0.0.1:8000, 10.9.9.9:8000", OTHER),
    "both": ([LOWEST, OTHER], LOWEST),
    "a list with something else in it": ([5, True, None, OTHER], OTHER),
    "a number": (7, LOWEST),
    "an empty list": ([], None),
    "an empty text": ("", None),
    "a stranger": (["10.9.9.9:8000"], None),
    "another port": (["10.0.0.1:9"], None),
}
"""What the proxy allows, and who is chosen then."""
NOBODY: Final = refused(
    503,
    "failed to find endpoint candidates for serving the request",
    ("x-llm-d-request-dropped-reason", b"rejected-no-endpoints"),
    ("retry-after", b"1"),
)


MOMENTS: Final = ("STREAMED", "BUFFERED", DUPLEX)
"""The modes in which a decision is made on headers, on a body that is whole, and at its end."""


def hint(value: Any) -> Mapping[str, Any]:
    return {"envoy.lb.subset_hint": {SUBSET: value}, "envoy.lb": {SUBSET: [LOWEST]}}


def _hinted(
    mode: str, destination: str | None, *, first: Any = None, second: Any = None
) -> tuple[list[Step], bool]:
    """A request with hints beside its headers and its body; whether it ends with that."""
    opening = request_headers(modes=(mode, "NONE"), metadata=first)
    closing = request_body(BODY, end=True, metadata=second)
    part = "request_body" if mode in BUFFERED else "request_headers"
    decision = NOBODY if destination is None else sent_to(part, destination)
    refusing = destination is None
    if mode in BUFFERED:
        return [step(opening, goes_on("request_headers")), step(closing, decision)], refusing
    if mode == DUPLEX:
        passed = () if refusing else pieces("request_body", BODY, end=True)
        return [step(opening), step(closing, decision, *passed)], refusing
    if refusing:
        return [step(opening, decision)], True
    return [step(opening, decision), step(closing, goes_on("request_body"))], False


def _hints() -> Iterator[Script]:
    """S-08: with the headers, with the body, or both: the later one holds, if it is in time."""
    for (name, (value, chosen)), mode in product(HINTS.items(), MOMENTS):
        steps, over = _hinted(mode, chosen, first=hint(value))
        yield Script(f"{name} beside the headers, {mode}", PLAIN, steps, over)
        seen = mode in (*BUFFERED, DUPLEX)
        steps, over = _hinted(mode, chosen if seen else LOWEST, second=hint(value))
        yield Script(f"{name} beside the body, {mode}", PLAIN, steps, over)
    for mode in MODES:
        late = LOWEST if mode in (*BUFFERED, DUPLEX) else OTHER
        steps, over = _hinted(mode, late, first=hint([OTHER]), second=hint([LOWEST]))
        yield Script(f"one beside the headers, one beside the body, {mode}", PLAIN, steps, over)
        steps, over = _hinted(mode, LOWEST, first=hint([OTHER]), second=hint([]))
        yield Script(f"to a picker that heeds none, {mode}", DEAF, steps, over)


def _scores() -> Iterator[Script]:
    for mode, ending in product(MODES, (Ending.HEADERS, Ending.BODY)):
        steps = request((mode, mode), ending, scores={OTHER: 0.0, LOWEST: 1.0})
        yield Script(f"scores in {mode} to its {ending.value}", SCORES, steps)


SERVED: Final[Mapping[str, tuple[Mapping[str, Any], bytes]]] = {
    "by another": ({"envoy.lb": {"x-gateway-destination-endpoint-served": OTHER}}, OTHER.encode()),
    "by nobody named": ({"envoy.lb": {}}, b"pod-1"),
    "by a number": ({"envoy.lb": {"x-gateway-destination-endpoint-served": 5}}, b"pod-1"),
    "as others say": ({"other": {"x-gateway-destination-endpoint-served": OTHER}}, b"pod-1"),
    "without a word": ({}, b"pod-1"),
}


def _served() -> Iterator[Script]:
    for (name, (metadata, named)), mode, end in product(SERVED.items(), MOMENTS, (True, False)):
        modes = (mode, "STREAMED" if mode != DUPLEX else mode)
        opening = response_headers(end=end, metadata=metadata)
        told = goes_on("response_headers", added=(("x-served-by", named),))
        steps = [*request(modes), step(opening, told)]
        over = end
        if not end:
            steps += response(modes[1])[1:]
            over = ends(modes[1], Ending.BODY)
        yield Script(f"served {name} in {mode}, end {end}", MARKER, steps, over)


ODD: Final[Mapping[str, tuple[Pairs, bytes]]] = {
    "bytes": ((("x-odd", b"\xff\xfe\x00"),), b"\xff\xfe\x00"),
    "half a character": ((("x-odd", "明".encode()[:2]),), "明".encode()[:2]),
    "characters": ((("x-odd", "明月".encode()),), "明月".encode()),
    "text in the other field": ((("x-odd", "text"),), b"text"),
    "characters in the other field": ((("x-odd", "明"),), "明".encode()),
    "a name in capitals": ((("X-ODD", b"value"),), b"value"),
    "a name twice": ((("x-odd", b"first"), ("x-odd", b"last")), b"last"),
    "an empty value": ((("x-odd", b""),), b"nothing"),
    "no such name": ((), b"nothing"),
}


def _headers() -> Iterator[Script]:
    """What is no UTF-8 goes through a plugin unharmed, in both directions."""
    for (name, (fields, heard)), mode in product(ODD.items(), MOMENTS):
        modes = (mode, "STREAMED" if mode != DUPLEX else mode)
        echo = (("x-echo", heard),)
        steps = [
            *request(modes, fields=(*FIELDS, *fields), added=echo),
            *response(modes[1], fields=(*STATUS, *fields), added=echo),
        ]
        yield Script(f"{name} in {mode}", ECHO, steps, over=True)


CONTROL: Final = (
    "x-gateway-destination-endpoint-subset",
    "x-llm-d-inference-fairness-id",
    "X-Gateway-Inference-Objective",
    "x-prefiller-host-port",
)


def _control() -> Iterator[Script]:
    """What only the picker may hear or say does not reach the model server."""
    fields = (*FIELDS, *((name, LOWEST.encode()) for name in CONTROL), ("x-other", b"stays"))
    removed = [name.lower() for name in CONTROL]
    for mode, ending in product(MODES, (Ending.HEADERS, Ending.BODY)):
        steps = request((mode, mode), ending, fields=fields, removed=removed)
        yield Script(f"control headers in {mode} to its {ending.value}", PLAIN, steps)
    opening = request_headers((), end=True)
    yield Script("no headers at all", PLAIN, [step(opening, sent_to("request_headers"))])


THEMES: Final = {
    "hints": _hints,
    "scores": _scores,
    "who served": _served,
    "headers of any bytes": _headers,
    "headers of control": _control,
}
