"""The data that plugins publish for each other: keys and the types of their values."""

from __future__ import annotations

from typing import Final, final

from attrs import field, frozen

from pointsman.kernel.keys import DataKey, EndpointKey
from pointsman.kernel.model import Endpoint, Identity

TOKEN_BYTES: Final = 4


@final
@frozen
class Media:
    """An image, a sound or a film in a prompt, by what makes it the same or another."""

    modality: str
    """``image``, ``audio`` or ``video``."""
    content: bytes
    """Its URL, or its data as they came."""


Part = bytes | Media
"""A piece of a prompt: UTF-8 text, or a medium."""


@final
@frozen
class RequestPrompt:
    """What a request asks, in the order in which engines render it: tools, then messages.

    A request may hold several prompts, each with a cache entry of its own.
    """

    prompts: tuple[tuple[Part, ...], ...] = ()
    token_ids: tuple[bytes, ...] = ()
    """Prompts that come as tokens already, four little-endian bytes each."""
    salt: str = ""
    """Requests with different cache salts share nothing."""
    features: tuple[tuple[Feature, ...], ...] = ()
    """Where media stand in each of `token_ids`; empty when they stand nowhere."""


@final
@frozen
class Feature:
    """Where a medium stands among a prompt's tokens."""

    modality: str
    hash: str
    offset: int
    length: int
    """In tokens."""


@final
@frozen
class Tokens:
    """One prompt as tokens."""

    data: bytes
    """`TOKEN_BYTES` little-endian bytes a token; the last of an estimate may have fewer."""
    features: tuple[Feature, ...] = ()

    def __len__(self) -> int:
        return -(-len(self.data) // TOKEN_BYTES)


@final
@frozen
class TokenizedPrompt:
    """A request's prompts as tokens: the engine's own, or an estimate four bytes wide."""

    prompts: tuple[Tokens, ...]
    salt: str = ""
    estimated: bool = False
    count: int = field(init=False)
    """Tokens of all prompts together."""

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "count", sum(map(len, self.prompts)))


@final
@frozen
class PrefixHit:
    """How much of a request's prompts an endpoint is believed to hold, in blocks."""

    match: int
    """Leading blocks that it holds, of all prompts together."""
    total: int
    """Blocks of the prompts, a last one that is not whole included."""
    block_size: int
    """Tokens of a block."""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.match / self.total if self.total else 0.0

    @property
    def cached_tokens(self) -> int:
        return self.match * self.block_size


@final
@frozen
class InFlightLoad:
    """What was sent to an endpoint and has not ended."""

    requests: int = 0
    tokens: int = 0
    """Prompt tokens that it had to compute, and output tokens where those are estimated."""

    def plus(self, requests: int, tokens: int) -> InFlightLoad:
        return InFlightLoad(self.requests + requests, self.tokens + tokens)


@final
@frozen
class Topology:
    """Where an endpoint runs; empty where that is not known."""

    hostname: str = ""
    rack: str = ""
    zone: str = ""
    region: str = ""


@final
@frozen
class ServedModel:
    """A model that an endpoint lists."""

    id: str
    parent: str = ""
    """The base model of an adapter."""


REQUEST_PROMPT: Final = DataKey("request-prompt", RequestPrompt)
TOKENIZED_PROMPT: Final = DataKey("tokenized-prompt", TokenizedPrompt)
MAX_OUTPUT_TOKENS: Final = DataKey("max-output-tokens", int)
SESSION_ID: Final = DataKey("session-id", str)
PEER_ENDPOINT: Final = DataKey("peer-endpoint", Endpoint)
"""The endpoint that another stage of the request was given."""

PREFIX_HIT: Final = EndpointKey("prefix-hit", PrefixHit)
IN_FLIGHT_LOAD: Final = EndpointKey("in-flight-load", InFlightLoad)
UNCACHED_TOKENS: Final = EndpointKey("uncached-request-tokens", int)
"""Tokens that this request would make an endpoint compute."""
TOPOLOGY: Final = EndpointKey("topology", Topology)
TOPOLOGIES: Final = DataKey[dict[Identity, Topology]]("topologies", dict)
"""Where endpoints run, also those that are no candidates any more."""
SERVED_MODELS: Final = EndpointKey[tuple[ServedModel, ...]]("served-models", tuple)
