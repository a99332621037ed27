"""Requests for one model that another one serves: what changes on the way, and back.

P-xx and B-xx are the field reports whose fault a script keeps away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from attrs import evolve, frozen

from .messages import FIELDS, STATUS, Modes, Pairs, piece
from .phases import BUFFERED, DUPLEX, MODES, Ending, ends, readable, request, response
from .script import Script, step
from .setups import RENAMING, RENAMING_SCORES

ASKED: Final = b'{ "model" : "pub" ,  "prompt":"\\"pub\\"" }'
SENT: Final = b'{ "model" : "int" ,  "prompt":"\\"pub\\"" }'


@frozen
class Answer:
    """A response of the other model, in pieces."""

    fields: Pairs
    body: Sequence[bytes]
    passed: Sequence[bytes] | None
    """What the client gets of each; None where nothing is changed."""


def _json(*more: tuple[str, bytes]) -> Pairs:
    return (*STATUS, ("content-type", b"application/json"), *more)


ANSWERS: Final = {
    "JSON": Answer(
        _json(("content-length", b"30")),
        (b'{"mod', b'el":"int"', b',"x":"\\"model\\":\\"int\\""}', b" "),
        (b"", b'{"model":"pub"', b',"x":"\\"model\\":\\"int\\""}', b" "),
    ),
    "JSON of another model": Answer(
        _json(), (b'{"model":', b'"inti"}'), (b"", b'{"model":"inti"}')
    ),
    "events": Answer(
        (*STATUS, ("content-type", b"Text/Event-Stream; charset=utf-8")),
        (b'data: {"model":"in', b't"}\n\ndata: [D', b"", b"ONE]\n\n"),
        (b"", b'data: {"model":"pub"}\n\n', b"", b"data: [DONE]\n\n"),
    ),
    "text": Answer((*STATUS, ("content-type", b"text/plain")), (b'"model":', b'"int"'), None),
    "compressed": Answer(
        _json(("content-encoding", b"gzip")), (b"\x1f\x8b", b'{"model":"int"}'), None
    ),
    "of no kind": Answer(STATUS, (b'{"model":"int"}',), None),
}


PAIRS: Final = (
    *(("BUFFERED", mode) for mode in ("NONE", "STREAMED", "BUFFERED")),
    ("BUFFERED_PARTIAL", "BUFFERED_PARTIAL"),
    (DUPLEX, "NONE"),
    (DUPLEX, DUPLEX),
)


def _ask(modes: Modes) -> Modes | None:
    """Where models may be renamed, responses are asked for that would not be shown."""
    return (modes[0], "STREAMED") if modes[0] != DUPLEX and modes[1] == "NONE" else None


def _requests() -> Iterator[Script]:
    """P-01: the length is that of the body that is sent, where the client named one."""
    for mode, ending, sized in product(MODES, Ending, (True, False)):
        modes = (mode, "NONE")
        renamed = readable(mode, ending)
        fields = (*FIELDS, ("Content-Length", b"%d" % len(ASKED))) if sized else FIELDS
        length = (("content-length", b"%d" % len(SENT)),) if sized and renamed else ()
        steps = request(
            modes,
            ending,
            fields=fields,
            body=ASKED,
            sent=SENT if renamed else None,
            ask=_ask(modes),
            added=length,
        )
        told = "with" if sized else "without"
        yield Script(f"{mode} to its {ending.value}, {told} a length", RENAMING, steps)


def _others() -> Iterator[Script]:
    """B-06: a request that no rule speaks of stays as it was, and so does its response."""
    for mode, name in product(("STREAMED", "BUFFERED", DUPLEX), ANSWERS):
        modes, answer = (mode, mode), ANSWERS[name]
        body = ASKED.replace(b'"pub" ,', b'"other" ,')
        steps = [
            *request(modes, body=body, ask=_ask(modes)),
            *response(mode, fields=answer.fields, body=answer.body),
        ]
        over = ends(mode, Ending.BODY)
        yield Script(f"{name}, for a model without a rule, in {mode}", RENAMING, steps, over)


def _headers() -> Iterator[Script]:
    """A client may name the model itself; that word is not passed on."""
    for name in ("x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"):
        for body, sent in ((b"m", b"wanted"), (b"pub", b"int")):
            spelled = b'{"model":"%s","prompt":"x"}'
            steps = request(
                (DUPLEX, DUPLEX),
                fields=(*FIELDS, (name, b"wanted")),
                body=spelled % body,
                sent=spelled % sent,
                removed=[name],
            )
            yield Script(f"{body.decode()} by {name}", RENAMING, steps)


def _answered(name: str, answer: Answer, modes: Modes, ending: Ending) -> Script:
    ask = _ask(modes)
    asked = request(modes, body=ASKED, sent=SENT, ask=ask)
    _, mode = ask or modes
    removed = [] if answer.passed is None else ["content-length"]
    told = response(
        mode,
        ending,
        fields=answer.fields,
        body=answer.body,
        passed=answer.passed,
        removed=removed,
    )
    over = ends(mode, ending)
    named = f"{name}, {modes[0]} and {modes[1]} to its {ending.value}"
    return Script(named, RENAMING, [*asked, *told], over=over)


def _answers() -> Iterator[Script]:
    """B-13: an answer names the model that was asked for, if it can be read."""
    for (name, answer), modes in product(ANSWERS.items(), PAIRS):
        yield _answered(name, answer, modes, Ending.BODY)
    for (name, answer), mode in product(ANSWERS.items(), ("BUFFERED", DUPLEX)):
        yield _answered(name, answer, (mode, mode), Ending.TRAILERS)


COMPLETE: Final = {
    "a last event without its line's end": (
        (*STATUS, ("content-type", b"text/event-stream")),
        b'data: {"model":"int"}',
        b'data: {"model":"pub"}',
    ),
    "JSON that names no model": (_json(), b'{"error":{}}', b'{"error":{}}'),
}
"""Headers, a body that waits for nothing, and what the client gets of it."""
BROKEN_OFF: Final = {
    "an event that breaks off": (
        (*STATUS, ("content-type", b"text/event-stream")),
        b'data: {"model":"int"',
        b'data: {"model":"pub"',
    ),
    "JSON that breaks off": (_json(), b'{"error":{', b'{"error":{'),
}
"""The same of a body of which all is held back for more."""


Bodies = Mapping[str, tuple[Pairs, bytes, bytes]]


def _at_once(bodies: Bodies, modes: Sequence[str], endings: Sequence[Ending]) -> Iterator[Script]:
    """Whole answers, of which all is passed on when it comes."""
    for (name, (fields, body, passed)), mode, ending in product(bodies.items(), modes, endings):
        yield _answered(name, Answer(fields, [body], [passed]), (DUPLEX, mode), ending)


def _complete() -> Iterator[Script]:
    """Of what is complete nothing is held back, since not every mode has a place for it later."""
    yield from _at_once(COMPLETE, MODES[1:], (Ending.BODY, Ending.TRAILERS))


def _held() -> Iterator[Script]:
    """What would wait for more is passed on where there is no more."""
    yield from _at_once(BROKEN_OFF, MODES[1:], (Ending.BODY,))
    for name, (fields, body, passed) in BROKEN_OFF.items():
        held = Answer(fields, [body], [b""])
        script = _answered(f"{name}, before trailers", held, (DUPLEX, DUPLEX), Ending.TRAILERS)
        *before, last = script.steps
        told = step(last.says, piece("response_body", passed), *last.hears)
        yield evolve(script, steps=[*before, told])


def _held_whole() -> Iterator[Script]:
    """A buffered body is all there is, also when trailers follow it."""
    yield from _at_once(BROKEN_OFF, BUFFERED, (Ending.TRAILERS,))


def _cut_anywhere() -> Iterator[Script]:
    """A line is passed on when it is whole or its JSON is, wherever the network cuts it."""
    text = b'data: {"model":"int"}\n\n: x\n'
    for place in range(len(text) + 1):
        parts = (text[:place], text[place:])
        whole = parts[0].endswith(b"}")
        first = parts[0] if whole else parts[0][: parts[0].rfind(b"\n") + 1]
        passed = (first, text[len(first) :])
        answer = Answer(
            ANSWERS["events"].fields, parts, [p.replace(b'"int"', b'"pub"') for p in passed]
        )
        yield _answered(f"events cut at {place}", answer, (DUPLEX, DUPLEX), Ending.BODY)


def _scores() -> Iterator[Script]:
    """A body in place of the client's, and the scores beside the destination."""
    scores = {"10.0.0.1:8000": 0.0, "10.0.0.2:8000": 1.0}
    for mode in ("BUFFERED", "BUFFERED_PARTIAL", DUPLEX):
        modes = (mode, DUPLEX)
        steps = request(modes, body=ASKED, sent=SENT, scores=scores)
        yield Script(f"scores beside another body in {mode}", RENAMING_SCORES, steps)


THEMES: Final = {
    "models that are renamed": _requests,
    "models that are not": _others,
    "models that clients name": _headers,
    "answers of renamed models": _answers,
    "answers that are complete": _complete,
    "answers without an end": _held,
    "buffered answers before trailers": _held_whole,
    "answers that are cut anywhere": _cut_anywhere,
    "scores and renamed models": _scores,
}
