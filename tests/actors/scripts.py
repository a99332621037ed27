"""What the tests of conversations have in common: a pool, a configuration, and events by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from attrs import define, field

from pointsman import plugins
from pointsman.actors.conversation import (
    BodyMode,
    Chunk,
    Command,
    Event,
    Modes,
    Part,
    Refuse,
    RequestBody,
    RequestHeaders,
    SendTo,
    SessionSettings,
)
from pointsman.actors.observing import Ending
from pointsman.actors.session import Session
from pointsman.kernel.candidates import Surroundings
from pointsman.kernel.config import read_config
from pointsman.kernel.datastore import Datastore, EndpointSpec, ReplaceEndpoints, ReportMetrics
from pointsman.kernel.director import Outcome
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import Freshness, Headers, Request
from pointsman.kernel.registry import Registry
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring, wire

LIMIT = 1_000_000
BASE = {":method": "POST", ":path": "/v1/completions", "content-type": "application/json"}
CHAT = {**BASE, ":path": "/v1/chat/completions"}
DUPLEX = Modes()
BUFFERED = Modes(BodyMode.BUFFERED, BodyMode.NONE)
LOAD_ONLY = "plugins: [{type: queue-scorer}]"


_REGISTRIES: dict[tuple[type[Any], ...], Registry] = {}
"""By the types beside the built-in ones: to read all those takes as long as many a test."""


def headers_of(pairs: Iterable[tuple[str, bytes]]) -> Headers:
    """Headers as plugins see them: names in lower case, the last value of a name wins."""
    return Headers({name.lower(): value for name, value in pairs})


def body(**fields: object) -> bytes:
    """A completion's body; fields replace or add to the usual ones."""
    return json.dumps({"model": "m", "prompt": "hi", **fields}).encode()


def chat(**fields: object) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def headers(fields: Mapping[str, str], **more: str) -> Headers:
    """Underscores of keyword names stand for hyphens."""
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return headers_of((name, value.encode()) for name, value in {**fields, **named}.items())


def opening(
    fields: Mapping[str, str] = BASE,
    *,
    end: bool = False,
    modes: Modes = DUPLEX,
    subset: Iterable[str] | None = None,
    **more: str,
) -> RequestHeaders:
    allowed = None if subset is None else frozenset(subset)
    return RequestHeaders(headers(fields, **more), end, modes, allowed)


def pieces(data: bytes, size: int, *, last_empty: bool = True) -> list[RequestBody]:
    """*data* as a proxy sends it; the end comes with the last piece or in one of its own."""
    parts = [data[start : start + size] for start in range(0, len(data), size)] or [b""]
    events = [RequestBody(part, end=False) for part in parts]
    if last_empty:
        return [*events, RequestBody(b"", end=True)]
    return [*events[:-1], RequestBody(parts[-1], end=True)]


def wired(text: str, *more: type[Any]) -> Wiring:
    """A configuration with the built-in plugins and *more*, at work."""
    if more not in _REGISTRIES:
        _REGISTRIES[more] = registry = Registry()
        for plugin_class in (*plugins.BUILT_IN, *more):
            registry.register(plugin_class)
    around = Surroundings(registry=_REGISTRIES[more], topics=Topics(), random=Random(1))
    return wire(read_config(text, "test"), around)


class Unobserved:
    """Takes no interest in anything."""

    tokens = False

    def began(self, request: Request, modes: Modes) -> None: ...
    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None: ...
    def response_began(self, headers: Headers) -> None: ...
    def response_opaque(self, encoding: str) -> None: ...
    def chunk_came(self, data: bytes) -> None: ...
    def chunk_passed(self) -> None: ...
    def ended(self, ending: Ending) -> None: ...


@define(eq=False)
class Decisions(Unobserved):
    """Notes what was decided."""

    made: list[Outcome]

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        self.made.append(outcome)


@define(eq=False)
class Desk:
    """A wiring, a pool of two (a 10.0.0.1, b 10.0.0.2, port 8000), and what was decided."""

    wiring: Wiring = field(factory=lambda: wired(LOAD_ONLY))
    datastore: Datastore = field(init=False)
    settings: SessionSettings = SessionSettings(body_limit=LIMIT)
    decisions: list[Outcome] = field(factory=list[Outcome], init=False)

    def __attrs_post_init__(self) -> None:
        inbox = Mailbox[Any].open("datastore", capacity=1)
        inbox.close()
        self.datastore = Datastore(inbox, Topics())
        self.datastore.track(self.wiring.processing.endpoint_values)
        self.pool("10.0.0.1", "10.0.0.2")

    def pool(self, *addresses: str) -> None:
        names = [f"pod-{number}" for number in range(len(addresses))]
        specs = [
            EndpointSpec(uid=name, name=name, address=address, port=8000)
            for name, address in zip(names, addresses, strict=True)
        ]
        self.datastore.apply(ReplaceEndpoints(specs))

    def queue(self, *waiting: float) -> None:
        """How many requests wait at each endpoint."""
        for endpoint, value in zip(self.datastore.members.value, waiting, strict=True):
            values = {"waiting-queue-size": value, "metrics-freshness": Freshness.FRESH}
            self.datastore.apply(ReportMetrics(endpoint.identity, values))

    def session(self, awaits_end: Callable[[Session], bool] = lambda session: True) -> Session:
        return Session(
            self.wiring,
            lambda: self.datastore.snapshot,
            self.settings,
            lambda: 0.0,
            Decisions(self.decisions),
            Random(1),
            awaits_end,
        )

    def talk(self, *events: Event) -> list[Command]:
        """A whole conversation; everything that the proxy is told."""
        return say(self.session(), *events)


def say(session: Session, *events: Event) -> list[Command]:
    """All commands; what is to be observed is observed after each event, as a driver does."""
    commands: list[Command] = []
    for event in events:
        commands += session.handle(event)
        session.observe()
    return commands


def only(commands: Sequence[Command]) -> Command:
    assert len(commands) == 1, commands
    return commands[0]


def refusal(commands: Sequence[Command]) -> Refuse:
    command = only(commands)
    assert isinstance(command, Refuse), command
    return command


def destination(commands: Sequence[Command]) -> str:
    """Where the one decision among *commands* sends the request."""
    found = [command.route.destination for command in commands if isinstance(command, SendTo)]
    assert len(found) == 1, commands
    return found[0]


def passed_on(commands: Sequence[Command], part: Part = Part.REQUEST_BODY) -> bytes:
    """The body that the chunks add up to; only the last may be the end."""
    chunks = [c for c in commands if isinstance(c, Chunk) and c.part is part]
    assert not any(chunk.end for chunk in chunks[:-1])
    return b"".join(chunk.data for chunk in chunks)
