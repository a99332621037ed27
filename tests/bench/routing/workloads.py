"""What the simulated clients ask: requests with the time of their arrival, from a seed.

A prompt is a sequence of segments. Two prompts that begin with the same segments have the same
tokens there, which is all that a router or a cache can tell of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Final, Protocol, final

from attrs import field, frozen

ENGINE_BLOCK: Final = 16  # tokens; what vLLM uses unless told otherwise
TOKEN_BYTES: Final = 4
_MOST_BLOCKS: Final = 1 << 16  # of one segment


@final
@frozen
class Segment:
    """A piece of a prompt with an identity."""

    number: int
    """Below 2 ** 32. Equal numbers mean equal tokens, and equal tokens before them."""
    tokens: int

    @property
    def content(self) -> bytes:
        """Its token ids, four little-endian bytes each."""
        return self.number.to_bytes(TOKEN_BYTES, "little") * self.tokens


@final
@frozen
class Prompt:
    """What a request sends, as the daemon and as an engine see it."""

    tokens: bytes
    """Token ids, four little-endian bytes each."""
    blocks: Sequence[int]
    """Names of its whole blocks of `ENGINE_BLOCK` tokens, each of which covers its prefix."""

    @property
    def length(self) -> int:
        """In tokens."""
        return len(self.tokens) // TOKEN_BYTES


def prompt_of(segments: Sequence[Segment]) -> Prompt:
    """The prompt that consists of *segments*.

    Raises:
        ValueError: a segment other than the last one ends inside a block.
    """
    if any(segment.tokens % ENGINE_BLOCK for segment in segments[:-1]):
        raise ValueError(f"only a prompt's last segment may end inside a block: {segments}")
    blocks: list[int] = []
    for segment in segments:
        first = segment.number * _MOST_BLOCKS
        blocks += range(first, first + segment.tokens // ENGINE_BLOCK)
    return Prompt(b"".join(segment.content for segment in segments), blocks)


@final
@frozen
class Arrival:
    """A request, and when it comes."""

    at: float
    """Seconds from the start of the workload."""
    prompt: Prompt
    output_tokens: int


class Workload(Protocol):
    """Requests to come."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int:
        """About how many requests there are."""
        ...

    def arrivals(self, seed: int) -> Iterable[Arrival]:
        """All requests in the order of their arrival; the same *seed* gives the same ones."""
        ...


@final
@frozen
class Stage:
    """A stretch of time with one mean rate."""

    rate: float
    """Requests a second."""
    seconds: float


def poisson(stages: Iterable[Stage], random: Random) -> Iterator[float]:
    """Times of arrival, in seconds, whose gaps are exponential with each stage's rate."""
    start = 0.0
    for stage in stages:
        at, end = start + random.expovariate(stage.rate), start + stage.seconds
        while at < end:
            yield at
            at += random.expovariate(stage.rate)
        start = end


KV73_STAGES: Final = tuple(
    Stage(rate, seconds)
    for rate, seconds in (
        *((15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21)),
        *((40, 38), (43, 36), (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25)),
    )
)


@final
@frozen(kw_only=True)
class Kv73:
    """A B2B service of 150 customers: their prompts are as good as all of a request.

    The published benchmark of 73 % cache capacity: customers with a system prompt each, and a
    few questions that come again and again. Its 1.8 M distinct tokens fill 73 % of the caches of
    eight pods, so the fleet can hold everything, and a pod only a sixth of it.
    """

    name: str = "kv73"
    groups: int = 150
    prompts_per_group: int = 5
    system_tokens: int = 6000
    question_tokens: int = 1200
    output_tokens: int = 1000
    stages: tuple[Stage, ...] = KV73_STAGES
    _prompts: list[Prompt] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_prompts", [self._prompt(n) for n in range(self.questions)])

    @property
    def questions(self) -> int:
        """Distinct prompts."""
        return self.groups * self.prompts_per_group

    def __len__(self) -> int:
        return round(sum(stage.rate * stage.seconds for stage in self.stages))

    def shortened(self, factor: float) -> Kv73:
        """The same ladder of rates, each of which lasts *factor* of its time."""
        stages = tuple(Stage(stage.rate, stage.seconds * factor) for stage in self.stages)
        return Kv73(stages=stages)

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        random = Random(seed)
        for at in poisson(self.stages, random):
            yield Arrival(at, random.choice(self._prompts), self.output_tokens)

    def _prompt(self, question: int) -> Prompt:
        system = Segment(question // self.prompts_per_group, self.system_tokens)
        return prompt_of([system, Segment(self.groups + question, self.question_tokens)])
