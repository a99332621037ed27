"""What everyone talks about: endpoints, requests, results, and the keys the kernel publishes."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv6Address
from types import MappingProxyType
from typing import Any, Final, final

import anyio
from attrs import define, field, frozen

from .keys import DataKey, EndpointKey, EventKey
from .state import PluginState
from .tracing import Trace

Buffer = bytes | memoryview
"""Bytes, or a view of some that is not copied."""


def host_port(address: str, port: int) -> str:
    """``10.0.0.1:8000``, or ``[fd00::1]:8000``."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def canonical_address(address: str) -> str:
    """One spelling for each IPv6 address, so that addresses compare as text."""
    if ":" not in address:
        return address
    try:
        return IPv6Address(address.strip("[]")).compressed
    except ValueError:
        return address


@final
@define(eq=False)
class Identity:
    """What stays the same of an endpoint while its address and labels change.

    A pod that is deleted and created again under its name is another identity.
    """

    uid: str
    picks: int = field(default=0, init=False)
    """How often it was chosen."""
    gone: bool = field(default=False, init=False)
    """It was deleted: what is kept of it now is kept for nothing."""
    _picked: anyio.Event | None = field(default=None, init=False, repr=False)

    def note_pick(self) -> None:
        self.picks += 1
        picked, self._picked = self._picked, None
        if picked is not None:
            picked.set()

    async def next_pick(self) -> None:
        """Wait until the endpoint is chosen again."""
        if self._picked is None:
            self._picked = anyio.Event()
        await self._picked.wait()


@final
@frozen(kw_only=True)
class Endpoint:
    """One port of one model server, as it is now."""

    identity: Identity = field(eq=False)
    name: str
    """``<pod>-rank-<i>`` in Kubernetes, the name in the endpoints file otherwise."""
    namespace: str = "default"
    pod: str = ""
    address: str
    """A literal IP address."""
    port: int
    rank: int = 0
    labels: Mapping[str, str] = field(factory=dict[str, str])
    host_port: str = field(init=False)
    """``address:port``, IPv6 in brackets: the value of the destination header."""
    id: str = field(init=False)
    """``namespace/name``."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))
        object.__setattr__(self, "host_port", host_port(self.address, self.port))
        object.__setattr__(self, "id", f"{self.namespace}/{self.name}")


@final
class Headers:
    """The headers of a message: names in lower case, values as bytes, the last of a name wins."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = values

    def get(self, name: str) -> str | None:
        """The value as text; bytes that are no UTF-8 survive a round trip (surrogateescape)."""
        value = self._values.get(name)
        return None if value is None else value.decode("utf-8", "surrogateescape")

    def raw(self, name: str) -> bytes | None:
        return self._values.get(name)

    def first(self, *names: str) -> str | None:
        """The first of *names* that is there, even if it is empty: a name and its old alias."""
        for name in names:
            if name in self._values:
                return self.get(name)
        return None

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:  # values may be secrets
        return f"Headers({sorted(self._values)})"


_numbers: Final = itertools.count(1)


@final
@define(eq=False)
class Request:
    """One request on its way through: the object to which all that is kept for it is tied."""

    headers: Headers
    path: str = ""
    """Without query and fragment."""
    received: float = 0.0
    """anyio time in seconds."""
    id: int = field(factory=_numbers.__next__, init=False)
    """Ours; the client's ``x-request-id`` may repeat and is for logs only."""
    ended: bool = field(default=False, init=False)
    states: list[PluginState] = field(factory=list[PluginState], init=False, repr=False)
    model: str = field(default="", init=False)
    """The model asked for, after rewriting."""
    incoming_model: str = field(default="", init=False)
    priority: int = field(default=0, init=False)
    size: int = field(default=0, init=False)
    """Bytes of the body."""
    subset: frozenset[str] | None = field(default=None, init=False)
    """The addresses (``ip`` or ``ip:port``) that the proxy allows; None allows all."""
    trace: Trace | None = field(default=None, init=False, repr=False)
    """Whoever follows the request; None for nearly all."""

    @property
    def awaited(self) -> bool:
        """Whether a plugin keeps something that wants to hear of the end, such as a count."""
        return any(state.awaits(self) for state in self.states)

    def end(self) -> None:
        """Drop everything that plugins keep for the request. Only the first call counts."""
        if self.ended:
            return
        self.ended = True
        for state in self.states:
            state.drop(self)
        self.states.clear()


@final
@frozen
class ProfileResult:
    """What one profile run came to."""

    targets: tuple[Endpoint, ...]
    """In the picker's order, best first; the rest are for the proxy to fall back on."""
    candidates: Sequence[Endpoint]
    scores: Sequence[float]
    """Weighted sums, one per candidate."""

    def by_address(self) -> Mapping[str, float]:
        """The scores of all candidates by ``ip:port``."""
        return {
            host_port(endpoint.address, endpoint.port): score
            for endpoint, score in zip(self.candidates, self.scores, strict=True)
        }


@final
@frozen
class SchedulingResult:
    """The outcome of a cycle: a result per profile (None: it failed), and which one counts."""

    profiles: Mapping[str, ProfileResult | None]
    primary: str

    @property
    def target(self) -> Endpoint:
        return self.primary_result.targets[0]

    @property
    def primary_result(self) -> ProfileResult:
        result = self.profiles[self.primary]
        if result is None:
            raise LookupError(f"the primary profile {self.primary!r} has no result")
        return result


@final
@frozen
class Decision:
    """Where a request goes, and what travels with it."""

    destination: str
    """``ip:port[,ip:port...]``, best first."""
    result: SchedulingResult
    upstream_headers: Mapping[str, str] = field(factory=dict[str, str])


class EndCause(enum.Enum):
    """Why a request is over."""

    NATURAL = "natural"
    CLIENT_DISCONNECT = "client-disconnect"
    ERROR = "error"
    EVICTED = "evicted"


@final
@frozen
class RequestEnd:
    """The end of a request; it comes exactly once."""

    cause: EndCause
    status: int | None = None
    """The upstream's HTTP status, where the response was looked at."""


@final
@frozen
class Usage:
    """Tokens as the model server counted them; None where it did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


@final
@frozen
class Parsed:
    """What a parser read of a request body: only what the plan wants."""

    model: str | None = None
    """None: this API names no model."""
    values: Mapping[DataKey[Any], Any] = field(factory=dict[DataKey[Any], Any])


@final
@frozen
class CacheConfig:
    """How a model server divides its KV cache; None where it does not say."""

    block_size: int | None = None
    """Tokens."""
    blocks: int | None = None


@final
@frozen
class LoraAdapters:
    """The adapters of a model server."""

    running: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    most: int = 0
    """How many fit at once."""


class Freshness(enum.Enum):
    """Whether what an endpoint reports can be trusted."""

    FRESH = "fresh"
    STALE = "stale"
    """No successful scrape for longer than the threshold."""


@frozen
class PodAdded:
    endpoint: Endpoint


@frozen
class PodUpdated:
    """Address or labels changed in place; the identity is the same."""

    endpoint: Endpoint
    before: Endpoint


@frozen
class PodDeleted:
    """The endpoint is gone; what is kept for its identity is garbage."""

    endpoint: Endpoint


@frozen
class RequestScheduled:
    request: int
    endpoint: Endpoint


@frozen
class ResponseEnded:
    request: int
    endpoint: Endpoint
    cause: EndCause


REQUEST_HEADERS: Final = DataKey("request-headers", Headers)
REQUEST_PATH: Final = DataKey("request-path", str)
REQUEST_SIZE: Final = DataKey("request-size", int)
REQUEST_PRIORITY: Final = DataKey("request-priority", int)
REQUEST_BODY: Final = DataKey("request-body", dict[str, Any])
MODEL_NAME: Final = DataKey("model-name", str)
RESPONSE_HEADERS: Final = DataKey("response-headers", Headers)
SERVED_ENDPOINT: Final = DataKey("served-endpoint", str)
"""``ip:port`` of who answered, as the proxy says: a retry may have gone elsewhere."""
RESPONSE_USAGE: Final = DataKey("response-usage", Usage)
RESPONSE_CHUNK: Final = DataKey("response-chunk", bytes)

WAITING_QUEUE_SIZE: Final = EndpointKey("waiting-queue-size", float)
RUNNING_REQUESTS: Final = EndpointKey("running-requests", float)
KV_CACHE_USAGE: Final = EndpointKey("kv-cache-usage", float)
"""A fraction, 0 to 1."""
LORA_ADAPTERS: Final = EndpointKey("lora-adapters", LoraAdapters)
CACHE_CONFIG: Final = EndpointKey("cache-config", CacheConfig)
FRESHNESS: Final = EndpointKey("metrics-freshness", Freshness)

POD_ADDED: Final = EventKey("pod-added", PodAdded)
POD_UPDATED: Final = EventKey("pod-updated", PodUpdated)
POD_DELETED: Final = EventKey("pod-deleted", PodDeleted)
REQUEST_SCHEDULED: Final = EventKey("request-scheduled", RequestScheduled, of_requests=True)
RESPONSE_ENDED: Final = EventKey("response-end", ResponseEnded, of_requests=True)


def parse_subset(tokens: Iterable[object]) -> frozenset[str]:
    """The allowed addresses of a subset hint, in canonical spelling.

    Items are ``ip`` or ``ip:port``, IPv6 with or without brackets; others are ignored.
    """
    return frozenset(_subset_token(token.strip()) for token in tokens if isinstance(token, str))


def _subset_token(token: str) -> str:
    if token.startswith("["):
        address, _, port = token[1:].partition("]")
        return _joined(address, port.removeprefix(":"))
    if token.count(":") == 1:
        address, _, port = token.partition(":")
        return _joined(address, port)
    return canonical_address(token)


def _joined(address: str, port: str) -> str:
    address = canonical_address(address)
    if not port:
        return address
    # What is no port matches no endpoint: it must not allow every port of the address.
    return host_port(address, int(port)) if port.isdecimal() else f"{address}:{port}"


def in_subset(endpoint: Endpoint, subset: frozenset[str]) -> bool:
    """Whether the proxy's hint allows *endpoint*, by address or by address and port."""
    address = canonical_address(endpoint.address)
    return address in subset or host_port(address, endpoint.port) in subset
