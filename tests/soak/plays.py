"""What is played: conversations with their expected end, right ones and wrong ones.

All are made and encoded before the soak begins, in an order that only the seed decides.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import exp, log
from random import Random
from typing import Final

from attrs import evolve, frozen
from tests.bench.load import script
from tests.bench.scenarios import (
    BUFFERED,
    DUPLEX,
    KB,
    LEAN_DUPLEX,
    Exchange,
    buffered,
    chat_body,
    duplex,
    headers_only,
    lean_duplex,
    message,
    request_headers,
    sse,
)
from tests.bench.stream import Ending, Script
from tests.bench.wire import Step, prefixed, raw_burst

from .judging import Judge, refused, routed, silent, trailed

BODY_LIMIT: Final = 4 << 20
"""Bytes of one body that the daemon is told to take."""
VARIANTS: Final = 24  # of each kind that has any
SLACK: Final = 64 * KB  # that the daemon allows a message beyond the body in it
OK, INVALID_ARGUMENT, EXHAUSTED, UNIMPLEMENTED = "0", "3", "8", "12"


@frozen
class Play:
    """One conversation, part after part."""

    kind: str
    acts: tuple[Script, ...]
    judge: Judge | None
    """None: the client does not behave, so whatever it hears is right."""
    ending: Ending
    """RESET and HALF_CLOSE are ours, after the last act; SERVER is awaited."""
    status: str = OK
    """The gRPC status of an ending that is not ours alone."""
    held: int | None = None
    """The act after which nothing happens for long, as when a model thinks."""
    slow: bool = False
    """The client reads nothing for a while."""


def deck(random: Random) -> list[Play]:
    """Every play as often as it is to be played before the pack is shuffled again."""
    return [
        play
        for make, times in KINDS.items()
        for made in [[make(random) for _ in range(min(times, VARIANTS))]]
        for play in (made * times)[:times]
    ]


def shuffled(plays: Sequence[Play], random: Random) -> Iterator[Play]:
    """All *plays*, again and again, each time in another order."""
    while True:
        yield from random.sample(plays, len(plays))


# -- what Envoy does ----------------------------------------------------------------------------


def body_of(random: Random, smallest: int = 300, largest: int = 64 * KB) -> bytes:
    """A chat body; small ones are as frequent as large ones, and no two begin alike."""
    size = int(exp(random.uniform(log(smallest), log(largest))))
    word = "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=7))
    return chat_body(size).replace(b"compare", word.encode())


def _acts(exchange: Exchange) -> tuple[Script, ...]:
    return tuple(_act(step) for step in exchange.steps)


def _act(*steps: Step) -> Script:
    return script(steps, Ending.HOLD)


def _whole(exchange: Exchange) -> Play:
    """The response passes by, so the daemon knows when all is over."""
    return Play(exchange.name, _acts(exchange), routed(exchange), Ending.SERVER, held=0)


def _lean(exchange: Exchange, random: Random) -> Play:
    """Nothing tells the daemon of the end but the proxy's reset."""
    ending = random.choice([Ending.RESET] * 9 + [Ending.HALF_CLOSE])
    last = len(exchange.steps) - 1
    return Play(exchange.name, _acts(exchange), routed(exchange), ending, held=last)


def full_duplex(random: Random) -> Play:
    body = body_of(random)
    return _whole(duplex("full duplex", body, [b'{"usage": {"total_tokens": 3}}']))


def events(random: Random) -> Play:
    exchange = sse(random.randint(2, 12), "events")
    without = evolve(exchange.steps[-1], messages=exchange.steps[-1].messages[1:], replies=1)
    if random.random() < 0.5:
        return _whole(exchange)
    parts = exchange.response[:-1]
    return _whole(evolve(exchange, steps=(*exchange.steps[:-1], without), response=parts))


def duplex_lean(random: Random) -> Play:
    return _lean(lean_duplex("lean duplex", body_of(random)), random)


def buffered_lean(random: Random) -> Play:
    return _lean(buffered("lean buffered", body_of(random)), random)


def without_body(random: Random) -> Play:
    """In full duplex the response of such a request passes by; without bodies it does not."""
    return _lean(headers_only("headers only", end=random.random() < 0.5), random)


def large_duplex(random: Random) -> Play:
    return _whole(duplex("large", body_of(random, 256 * KB, 3 << 20), [b"{}"]))


def large_buffered(random: Random) -> Play:
    return _lean(buffered("large", body_of(random, 256 * KB, 3 << 20)), random)


def slow_reader(random: Random) -> Play:
    exchange = duplex("slow reader", body_of(random, 150 * KB, 400 * KB), [b"{}"])
    return evolve(_whole(exchange), slow=True, held=None)


def ended_by_trailers(random: Random) -> Play:
    """The end of the body comes with the trailers, and the reply to them last."""
    body = body_of(random)
    sent = (
        request_headers(body, DUPLEX),
        message(request_body={"body": body}),
        message(request_trailers={}),
    )
    act = _act(Step(sent, replies=3 + (len(body) - 1) // 62_000))
    return Play("trailers", (act,), trailed(body), Ending.RESET, held=0)


# -- what a client gets wrong -------------------------------------------------------------------


def _refusal(kind: str, body: bytes, status: int, random: Random) -> Play:
    """The same wrong body in one of the ways that bodies come."""
    whole = message(request_body={"body": body, "end_of_stream": True})
    if random.random() < 0.5:
        acts = (
            _act(Step((request_headers(body, BUFFERED),), replies=1)),
            _act(Step((whole,), replies=1)),
        )
        return Play(kind, acts, refused(status, after=1), Ending.SERVER)
    modes = random.choice([DUPLEX, LEAN_DUPLEX])
    act = _act(Step((request_headers(body, modes), whole), replies=1))
    return Play(kind, (act,), refused(status), Ending.SERVER)


def bad_json(random: Random) -> Play:
    body = body_of(random, largest=8 * KB)
    return _refusal("bad JSON", body[: random.randrange(1, len(body) - 1)], 400, random)


def deep_json(random: Random) -> Play:
    body = b'{"model":"m","messages":' + b"[" * random.randint(2_000, 200_000)
    return _refusal("deep JSON", body, 400, random)


def no_model(random: Random) -> Play:
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()
    return _refusal("no model", body, 400, random)


def oversize(random: Random) -> Play:
    """In full duplex the refusal comes when the limit is passed, not at the end."""
    body = bytes(BODY_LIMIT + random.randint(1, SLACK // 2))
    if random.random() < 0.5:
        return _refusal("oversize", body, 413, random)
    exchange = duplex("oversize", body)
    act = _act(evolve(exchange.steps[0], replies=1))
    return Play("oversize", (act,), refused(413), Ending.SERVER)


def oversize_message(random: Random) -> Play:
    """What is too large for a message is not even read."""
    body = bytes(BODY_LIMIT + 2 * SLACK)
    acts = (
        _act(Step((request_headers(body, BUFFERED),), replies=1)),
        _act(Step((message(request_body={"body": body, "end_of_stream": True}),), replies=0)),
    )
    return Play("oversize message", acts, silent(after=1), Ending.SERVER, status=EXHAUSTED)


def unknown_path(random: Random) -> Play:
    """Nobody knows how to read the body, so the headers have to do."""
    exchange = headers_only("unknown path", f"/nowhere/{random.randrange(10**6)}")
    return _lean(exchange, random)


# -- what a peer or a network gets wrong --------------------------------------------------------


def garbage(random: Random) -> Play:
    """A message that is none, at the beginning or later."""
    broken = b"\xff" + random.randbytes(random.randint(1, 200))
    acts = [_act(Step((broken,), replies=0))]
    if random.random() < 0.5:
        body = body_of(random)
        acts.insert(0, _act(Step((request_headers(body, BUFFERED),), replies=1)))
    return Play(
        "garbage",
        tuple(acts),
        silent(after=len(acts) - 1),
        Ending.SERVER,
        status=INVALID_ARGUMENT,
    )


def compressed(random: Random) -> Play:
    data = b"\x01" + prefixed(random.randbytes(50))[1:]
    act = Script((raw_burst(data),), Ending.HOLD)
    return Play("compressed", (act,), silent(), Ending.SERVER, status=UNIMPLEMENTED)


def half_message(random: Random) -> Play:
    whole = prefixed(request_headers(body_of(random), DUPLEX))
    act = Script((raw_burst(whole[: random.randrange(1, len(whole))]),), Ending.HOLD)
    ending = random.choice([Ending.RESET, Ending.HALF_CLOSE])
    return Play("half a message", (act,), None, ending, held=random.choice([None, 0]))


def cut_anywhere(random: Random) -> Play:
    """A conversation that is broken off, with answers on their way or without."""
    return _cut(random.choice([full_duplex, events, duplex_lean, buffered_lean]), random)


def cut_large(random: Random) -> Play:
    return _cut(large_duplex, random)


def _cut(make: Callable[[Random], Play], random: Random) -> Play:
    steps = [act.bursts[0] for act in make(random).acts]
    last = random.randrange(len(steps))
    acts = [Script((step,), Ending.HOLD) for step in steps[:last]]
    cut = Script((evolve(steps[last], replies=0),), Ending.HOLD)
    return Play("cut", (*acts, cut), None, Ending.RESET, held=random.choice([None, last]))


def hung_up(random: Random) -> Play:
    """The peer has nothing more to say before there is anything to decide."""
    body = body_of(random)
    act = _act(Step((request_headers(body, DUPLEX),), replies=0))
    return Play("hung up", (act,), silent(), Ending.HALF_CLOSE)


KINDS: Final[dict[Callable[[Random], Play], int]] = {
    full_duplex: 150,
    events: 75,
    duplex_lean: 150,
    buffered_lean: 225,
    without_body: 50,
    large_duplex: 2,
    large_buffered: 2,
    slow_reader: 6,
    ended_by_trailers: 12,
    bad_json: 18,
    deep_json: 6,
    no_model: 6,
    oversize: 3,
    oversize_message: 1,
    unknown_path: 12,
    garbage: 15,
    compressed: 6,
    half_message: 15,
    cut_anywhere: 60,
    cut_large: 2,
    hung_up: 12,
}
"""How often each kind is in a deck."""
