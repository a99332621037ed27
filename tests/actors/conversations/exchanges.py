"""Whole exchanges: every mode of bodies, every kind of end, and what the picker may ask for.

P-xx are the field reports whose fault a script keeps away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from .messages import (
    BODY,
    FIELDS,
    Modes,
    goes_on,
    piece,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
    sent_to,
    window_update,
)
from .phases import BUFFERED, DUPLEX, MODES, Ending, ends, request, response
from .script import Script, Setup, step
from .setups import COUNTING, LEAVING, MARKER, METER, OPENAI, PLAIN, UNREAD, WAITING


def exchange(name: str, setup: Setup, modes: Modes, *endings: Ending) -> Script:
    """A request and its response, to which nobody does anything."""
    asked, answered = endings
    steps = [*request(modes, asked), *response(modes[1], answered)]
    return Script(name, setup, steps, over=ends(modes[1], answered))


def _modes() -> Iterator[Script]:
    """Every pair of modes; every pair of ends where both modes are the same."""
    for modes, asked, answered in product(product(MODES, MODES), Ending, Ending):
        if modes[0] == modes[1] or asked is answered:
            name = f"{modes[0]} to its {asked.value}, {modes[1]} to its {answered.value}"
            yield exchange(name, PLAIN, modes, asked, answered)


def _unknown_modes() -> Iterator[Script]:
    """P-10: proxies that announce no mode, or one that is newer than we, mean full duplex."""
    for modes, ending in product((None, ("GRPC", "GRPC"), ("99", "77")), Ending):
        name = f"modes {modes}, ending with {ending.value}"
        steps = [*request(modes, ending), *response(DUPLEX, ending)]
        yield Script(name, PLAIN, steps, over=True)


def _waiting() -> Iterator[Script]:
    """A decision that may wait is answered like any other."""
    for mode, ending in product(MODES, Ending):
        name = f"{mode} to its {ending.value}, a decision that waits"
        yield exchange(name, WAITING, (mode, mode), ending, Ending.BODY)


EARLY: Final = (Ending.HEADERS, Ending.BODY)


def _asking() -> Iterator[Script]:
    """What plugins want of the response is asked for where the mode would hide it."""
    wanted: Sequence[tuple[str, Setup, str]] = (
        ("usage", METER, "STREAMED"),
        ("headers", MARKER, "NONE"),
    )
    for (what, setup, mode), modes, ending in product(wanted, product(MODES, MODES), EARLY):
        if ending is Ending.HEADERS and modes[1] != "NONE":
            continue
        hidden = modes[0] != DUPLEX and modes[1] == "NONE"
        ask = (modes[0], mode) if hidden else None
        shown = mode if hidden else modes[1]
        marked = (("x-served-by", b"pod-1"),) if setup is MARKER else ()
        steps = [*request(modes, ending, ask=ask), *response(shown, added=marked)]
        name = f"{what} wanted in {modes[0]} to its {ending.value} and {modes[1]}"
        yield Script(name, setup, steps, over=ends(shown, Ending.BODY))


def _leaving() -> Iterator[Script]:
    """Where nobody waits for the response, a picker in full duplex leaves after the request."""
    for modes, ending in product(product(MODES, ("NONE", DUPLEX)), Ending):
        if modes[0] == "NONE" and ending is Ending.TRAILERS:
            continue  # the headers were all that was waited for
        name = f"nobody waits in {modes[0]} to its {ending.value} and {modes[1]}"
        yield Script(name, LEAVING, request(modes, ending), over=DUPLEX in modes)


def _unread() -> Iterator[Script]:
    """A body that nobody reads passes by in pieces, after the decision."""
    for mode, ending in product(MODES, (Ending.BODY, Ending.TRAILERS)):
        whole = ending is Ending.BODY
        modes = (mode, "NONE")
        passes = (
            [piece("request_body", b"not"), piece("request_body", b" json", end=whole)]
            if mode == DUPLEX
            else [goes_on("request_body")] * 2
        )
        steps = [
            step(request_headers(modes=modes), sent_to("request_headers")),
            step(request_body(b"not"), passes[0]),
            step(request_body(b" json", end=whole), passes[1]),
        ]
        if not whole:
            steps.append(step(request_trailers(), goes_on("request_trailers")))
        yield Script(f"unread in {mode} to its {ending.value}", UNREAD, steps)
    steps = [
        step(request_headers(), sent_to("request_headers")),
        step(request_body(b"", end=True), piece("request_body", b"", end=True)),
    ]
    yield Script("nothing to read", UNREAD, steps)


def _without_body() -> Iterator[Script]:
    """P-09: a request without a body is nobody's and goes its way all the same."""
    fields = ((":method", b"GET"), (":path", b"/v1/models"))
    for mode in MODES:
        steps = request((mode, "NONE"), Ending.HEADERS, fields=fields)
        yield Script(f"a path that no parser takes, without a body, in {mode}", OPENAI, steps)


def _responses() -> Iterator[Script]:
    """Streams that begin with the response, as after a reply of the proxy's own."""
    for mode, ending in product((None, DUPLEX, "NONE"), Ending):
        shown, announced = mode or DUPLEX, None if mode is None else ("NONE", mode)
        steps = response(shown, ending, announced=announced)
        name = f"{mode} to its {ending.value}"
        yield Script(name, COUNTING, steps, over=ends(shown, ending))


def _announced_responses() -> Iterator[Script]:
    """Nor does it take a request for the modes to be announced."""
    for mode, ending in product(("STREAMED", *BUFFERED), Ending):
        steps = response(mode, ending, announced=("NONE", mode))
        yield Script(f"{mode} to its {ending.value}", COUNTING, steps, over=True)


def whole(mode: str, setup: Setup) -> Script:
    """An exchange that shows all that there is in a mode of the request."""
    modes = (mode, mode if mode == DUPLEX else "STREAMED")
    return exchange(mode, setup, modes, Ending.BODY, Ending.BODY)


def _left() -> Iterator[Script]:
    """A proxy may end the stream after each of its messages."""
    for mode in MODES:
        steps = whole(mode, COUNTING).steps
        for point in range(len(steps)):
            yield Script(f"{point} messages in {mode}", COUNTING, steps[:point])


def _odd() -> Iterator[Script]:
    """What no proxy should say, and gets an answer nevertheless."""
    end = response_body(b"", end=True)
    yield Script("nothing at all", PLAIN, [])
    yield Script("a message about nothing", PLAIN, [step(window_update())])
    between = [step(window_update()), *request(None), step(window_update())]
    yield Script("messages about nothing, between", PLAIN, [*between, *response(DUPLEX)], over=True)
    yield Script(
        "bodies before their headers",
        PLAIN,
        [
            step(request_body(b"a"), piece("request_body", b"a")),
            step(request_body(b"", end=True), piece("request_body", b"", end=True)),
            step(end, piece("response_body", b"", end=True)),
        ],
        over=True,
    )
    yield Script(
        "trailers before their headers",
        PLAIN,
        [
            step(request_trailers(), goes_on("request_trailers")),
            step(response_trailers(), goes_on("response_trailers")),
        ],
        over=True,
    )
    for setup, who in ((PLAIN, "somebody"), (LEAVING, "nobody")):
        steps = [
            step(request_headers(FIELDS)),
            step(response_headers(), goes_on("response_headers")),
            step(
                request_body(BODY, end=True),
                sent_to("request_headers"),
                piece("request_body", BODY, end=True),
            ),
            step(end, piece("response_body", b"", end=True)),
        ]
        name = f"a response that overtakes its request, {who} waits for it"
        yield Script(name, setup, steps, over=True)


THEMES: Final = {
    "modes and ends": _modes,
    "modes that are not known": _unknown_modes,
    "decisions that wait": _waiting,
    "what is asked for": _asking,
    "leaving": _leaving,
    "bodies that nobody reads": _unread,
    "requests without a body": _without_body,
    "streams that begin with the response": _responses,
    "streams that begin with the response in another mode": _announced_responses,
    "streams that end early": _left,
    "odd streams": _odd,
}
