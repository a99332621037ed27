"""What a proxy says in one ext_proc conversation, and what it is told: the session's vocabulary."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, final

from attrs import field, frozen

from pointsman.kernel.model import Buffer, Headers, Parsed, Request
from pointsman.kernel.parsing import Route as BodyRoute

CHUNK_LIMIT: Final = 62_000
"""Bytes of body in one reply; proxies refuse 64 kB."""


class BodyMode(enum.IntEnum):
    """How the proxy sends a body; the numbers are ext_proc's."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX = 4


@final
@frozen
class Modes:
    """The body modes that the proxy announced."""

    request: BodyMode = BodyMode.FULL_DUPLEX
    response: BodyMode = BodyMode.FULL_DUPLEX


ASSUMED_MODES: Final = Modes()
"""For proxies that announce none: what the gateways configure."""


@final
@frozen
class RequestHeaders:
    headers: Headers
    end: bool
    """No body follows."""
    modes: Modes = ASSUMED_MODES
    subset: frozenset[str] | None = None
    """The endpoints that the proxy allows; None allows all."""


@final
@frozen
class RequestBody:
    data: Buffer
    end: bool
    subset: frozenset[str] | None = None


@final
@frozen
class RequestTrailers:
    pass


@final
@frozen
class ResponseHeaders:
    headers: Headers
    end: bool
    served: Callable[[], str | None] = lambda: None
    """Reads who answered, as ``ip:port``, from what the proxy said besides."""
    modes: Modes = ASSUMED_MODES
    """Of a stream that begins with the response; later the proxy does not say them again."""


@final
@frozen
class ResponseBody:
    data: bytes
    end: bool


@final
@frozen
class ResponseTrailers:
    pass


Event = (
    RequestHeaders
    | RequestBody
    | RequestTrailers
    | ResponseHeaders
    | ResponseBody
    | ResponseTrailers
)


@final
@frozen
class Route:
    """Where the request goes, and what is done to its headers on the way."""

    destination: str
    set_headers: Mapping[str, str] = field(factory=dict[str, str])
    remove_headers: tuple[str, ...] = ()
    scores: Mapping[str, float] | None = None
    """How each candidate scored, by ``ip:port``; None keeps that to ourselves."""


class Part(enum.Enum):
    """The part of the message that a reply answers."""

    __hash__ = object.__hash__  # the one of enumerations is many times slower

    REQUEST_HEADERS = "request_headers"
    REQUEST_BODY = "request_body"
    REQUEST_TRAILERS = "request_trailers"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    RESPONSE_TRAILERS = "response_trailers"


@final
@frozen
class Continue:
    """Go on with this part as it is."""

    part: Part
    set_headers: Mapping[str, str] = field(factory=dict[str, str])
    remove_headers: tuple[str, ...] = ()
    ask: Modes | None = None
    """What to show of the rest, if the proxy lets itself be asked."""


@final
@frozen
class SendTo:
    """The decision, in the reply to *part*: the request's headers, or its buffered body."""

    part: Part
    route: Route
    body: bytes | None = None
    """Takes the place of a buffered body."""
    ask: Modes | None = None
    """What to show of the rest, if the proxy lets itself be asked."""


@final
@frozen
class Replace:
    """Put *data* in the place of this piece of a body that the proxy goes on with itself."""

    part: Part
    data: bytes


@final
@frozen
class Chunk:
    """A piece of a streamed body, to be passed on."""

    part: Part
    data: Buffer
    end: bool


@final
@frozen
class Refuse:
    """Answer the client instead of the model server; the conversation is over then."""

    status: int
    message: str
    headers: Mapping[str, str] = field(factory=dict[str, str])


@final
@frozen
class Decide:
    """The decision needs to wait for something: the driver does, and reports back."""

    request: Request
    parsed: Parsed


@final
@frozen
class Read:
    """The body is so large that it is read elsewhere: the driver sees to it, and reports back."""

    route: BodyRoute
    body: Buffer
    renaming: bool
    """Whether it may be wanted, too, where the body names its model."""


Command = Continue | SendTo | Chunk | Replace | Refuse | Decide | Read


def chunks(part: Part, data: Buffer, end: bool) -> list[Command]:
    """*data* in pieces that proxies accept, as views; only the last may be the end."""
    if len(data) <= CHUNK_LIMIT:
        return [Chunk(part, data, end)]
    view = memoryview(data)
    last = (len(data) - 1) // CHUNK_LIMIT * CHUNK_LIMIT
    return [
        Chunk(part, view[start : start + CHUNK_LIMIT], end and start == last)
        for start in range(0, len(data), CHUNK_LIMIT)
    ]


@final
@frozen(kw_only=True)
class SessionSettings:
    """How conversations are held."""

    body_limit: int = 64 * 1024 * 1024
    """Bytes of request body that are held until the decision; more is a 413."""
    heeds_subset: bool = True
    """Whether the proxy's hint narrows the candidates."""
    read_apart_from: int | None = None
    """Bytes of a body that takes too long to be read between two picks; None: whatever it has."""
    emits_scores: bool = False
    """Whether the proxy is told how every candidate scored."""
