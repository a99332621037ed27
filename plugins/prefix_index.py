"""Which endpoint holds which prefixes, as far as one can tell from where prompts were sent.

A prompt is cut into whole blocks, and each block's hash is chained to the one before, so a hash
stands for everything up to it. For each endpoint the index keeps the hashes in the order of
their last use, with a block never more recent than the one before it: touching a prompt touches
its deepest block first. So eviction takes the deepest blocks of the least recent prompts, as the
engines do, and what is left is always closed: whoever holds a block holds all before it. That is
what allows the look-up to bisect instead of walking, and hashing to stop at the first block that
nobody knows.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, final

from attrs import define, field
from xxhash import xxh64_intdigest

from .keys import TOKEN_BYTES

E = TypeVar("E", bound=Hashable)

_MASK: Final = (1 << 60) - 1  # an int of 60 bits takes 32 bytes, one of 64 takes 48
_FIRST_LOOK: Final = 16  # blocks hashed before it is asked whether anybody knows them
_EVICTED_AT_ONCE: Final = 16  # one part in so many of an endpoint's capacity


def root_hash(*parts: str) -> int:
    """Where a chain begins: what prompts must have in common to share anything."""
    text = b"".join(len(part.encode()).to_bytes(4, "little") + part.encode() for part in parts)
    return xxh64_intdigest(text) & _MASK


@final
@define(eq=False)
class BlockHashes:
    """The chained hashes of one prompt's whole blocks, made only as far as somebody asks."""

    data: bytes
    """The prompt's tokens, four bytes each; the last may be short."""
    block_bytes: int
    root: int
    known: list[int] = field(factory=list[int], init=False)
    """The hashes made so far."""

    def __len__(self) -> int:
        """How many whole blocks there are."""
        return -(-len(self.data) // TOKEN_BYTES) * TOKEN_BYTES // self.block_bytes

    @property
    def total(self) -> int:
        """Blocks including a last one that is not whole."""
        return -(-len(self.data) // self.block_bytes)

    def up_to(self, count: int) -> Sequence[int]:
        """The first *count* hashes, or as many as there are blocks."""
        known = self.known
        count = min(count, len(self))
        if len(known) >= count:
            return known if len(known) == count else known[:count]
        data, size = self.data, self.block_bytes
        last = known[-1] if known else self.root
        for start in range(len(known) * size, count * size, size):
            last = xxh64_intdigest(data[start : start + size], last) & _MASK
            known.append(last)
        return known


@define(eq=False)
class _Holder:
    """What one endpoint holds: hashes, least recent first."""

    capacity: int
    blocks: dict[int, None] = field(factory=dict[int, None])

    def touch(self, hashes: Sequence[int]) -> None:
        blocks = self.blocks
        for one in reversed(hashes):
            blocks.pop(one, None)
            blocks[one] = None
        if len(blocks) > self.capacity:
            self.evict()

    def evict(self) -> None:
        """Make room, and a little more, since finding the oldest costs a walk of its own."""
        spare = self.capacity // _EVICTED_AT_ONCE
        surplus = len(self.blocks) - self.capacity + spare
        for one in list(islice(self.blocks, surplus)):
            del self.blocks[one]

    def depth(self, hashes: Sequence[int], low: int, high: int) -> int:
        """How many of *hashes* it holds, knowing that it is at least *low*, at most *high*."""
        blocks = self.blocks
        while low < high:
            middle = (low + high + 1) // 2
            if hashes[middle - 1] in blocks:
                low = middle
            else:
                high = middle - 1
        return low


@final
@define(eq=False)
class PrefixIndex(Generic[E]):
    """The blocks of all endpoints. Bounded per endpoint, so bounded by the pool."""

    default_capacity: int
    """Blocks of an endpoint that has not said how much it holds."""
    _holders: dict[E, _Holder] = field(factory=dict[E, _Holder], init=False, repr=False)

    def __len__(self) -> int:
        """Blocks, counted once for each endpoint that holds them."""
        return sum(len(holder.blocks) for holder in self._holders.values())

    def size(self, endpoint: E) -> int:
        holder = self._holders.get(endpoint)
        return 0 if holder is None else len(holder.blocks)

    @property
    def endpoints(self) -> Iterable[E]:
        return self._holders.keys()

    def set_capacity(self, endpoint: E, blocks: int) -> None:
        """Say how much *endpoint* holds; what is too much now is dropped."""
        holder = self._holder(endpoint)
        if holder.capacity != blocks:
            holder.capacity = blocks
            if len(holder.blocks) > blocks:
                holder.evict()

    def record(self, endpoint: E, prompt: BlockHashes) -> None:
        """*endpoint* is about to hold *prompt*, as much of it as fits."""
        holder = self._holder(endpoint)
        holder.touch(prompt.up_to(holder.capacity))

    def forget(self, endpoint: E) -> None:
        self._holders.pop(endpoint, None)

    def _holder(self, endpoint: E) -> _Holder:
        holder = self._holders.get(endpoint)
        if holder is None:
            holder = self._holders[endpoint] = _Holder(self.default_capacity)
        return holder

    def match(self, endpoints: Sequence[E], prompt: BlockHashes) -> list[int]:
        """How many leading blocks of *prompt* each of *endpoints* holds."""
        found = [0] * len(endpoints)
        open_ = [
            (position, holder)
            for position, endpoint in enumerate(endpoints)
            if (holder := self._holders.get(endpoint)) is not None and holder.blocks
        ]
        checked, step = 0, _FIRST_LOOK
        while open_ and checked < len(prompt):
            upto = min(checked + step, len(prompt))
            open_ = _advance(open_, prompt.up_to(upto), checked, upto, found)
            checked, step = upto, step * 2
        return found


def _advance(
    open_: Sequence[tuple[int, _Holder]],
    hashes: Sequence[int],
    checked: int,
    upto: int,
    found: list[int],
) -> list[tuple[int, _Holder]]:
    """Settle those that hold less than *upto* blocks; the others may hold more."""
    first, last = hashes[checked], hashes[upto - 1]
    further: list[tuple[int, _Holder]] = []
    for position, holder in open_:
        if last in holder.blocks:
            found[position] = upto
            further.append((position, holder))
        elif first in holder.blocks:
            found[position] = holder.depth(hashes, checked + 1, upto - 1)
    return further
