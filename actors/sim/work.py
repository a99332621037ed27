"""What an engine is given, what it makes of it, and what it tells about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import define, field, frozen
from attrs.validators import ge, gt, optional

from .blocks import Lease
from .latency import LatencyProfile


@frozen(kw_only=True)
class EngineConfig:
    """What one engine is: its limits and its speed."""

    max_num_seqs: int = field(default=8, validator=gt(0))
    """Slots: requests that run at the same time."""
    max_num_batched_tokens: int = field(default=2048, validator=gt(0))
    """Tokens per iteration; longer prompts take several."""
    max_num_queued_reqs: int | None = field(default=None, validator=optional(ge(0)))
    """Requests that may wait for a slot; None lets the queue grow."""
    max_loras: int = field(default=0, validator=ge(0))
    """Adapters that may run at the same time."""
    max_model_len: int = field(default=32768, validator=gt(1))
    """Tokens of prompt and output together."""
    block_size: int = field(default=16, validator=gt(0))
    num_gpu_blocks: int = field(default=2048, validator=gt(0))
    profile: LatencyProfile = LatencyProfile()


@frozen(kw_only=True)
class Work:
    """What a request asks of the engine, in tokens."""

    prompt_tokens: int = field(validator=gt(0))
    output_tokens: int = field(validator=gt(0))
    """How many will be generated: the engine decides nothing about content."""
    asked_tokens: int | None = None
    """The client's limit, when it gave one."""
    blocks: Sequence[int] = ()
    """Prefix hashes of the full blocks of prompt and output, as far as they have names."""
    adapter: str | None = None
    reason: str = "length"
    """Why generation will have ended: ``length`` or ``stop``."""
    streams: bool = False
    """Whether every iteration is reported, or only the first token and the end."""


@final
@define(eq=False)
class Generation:
    """A submitted request and what has become of it. Only its engine writes here."""

    work: Work
    arrived: float
    started: float | None = None
    first_token: float | None = None
    ended: float | None = None
    reason: str | None = None
    """``length``, ``stop`` or ``abort`` once it has ended."""
    generated: int = 0
    """Output tokens; up to date whenever an event about the request is told."""
    cached_tokens: int = 0
    """Prompt tokens that the prefix cache saved."""
    uncomputed: int = 0
    """Prompt tokens that are still to be computed."""
    lease: Lease | None = None

    @property
    def done(self) -> bool:
        return self.generated >= self.work.output_tokens

    @property
    def untouched(self) -> bool:
        """Whether nothing of the prompt has been computed yet."""
        return self.uncomputed == self.work.prompt_tokens - self.cached_tokens


@frozen
class FirstToken:
    """The prompt is computed and one token generated."""

    generation: Generation
    at: float


@frozen
class Tokens:
    """*count* more tokens of a request that streams."""

    generation: Generation
    count: int
    at: float


@frozen
class Finished:
    """The last token is out and the slot is free; comes once, after everything else."""

    generation: Generation
    at: float


Event = FirstToken | Tokens | Finished


class QueueFull(Exception):
    """As many requests wait as the engine lets wait."""


class NeverFits(Exception):
    """The request needs more blocks or LoRA slots than the engine has."""
