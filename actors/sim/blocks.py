"""The key-value cache of an engine: blocks in use, blocks remembered, and who goes first.

A remembered block is named by a hash that covers its prefix as well, so the leading blocks of a
prompt that are found are exactly the prefix that need not be computed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import final

from attrs import define, field


@final
@define(eq=False)
class Lease:
    """The blocks one request holds."""

    named: Sequence[int]
    """Hashes of those that others may share, in prefix order."""
    anonymous: int
    """How many more it holds, whose content has no name (yet)."""
    hits: int
    """How many of the named ones were there already."""


@final
@define(eq=False)
class BlockCache:
    """A fixed number of blocks. Those of running requests stay; the rest is a LRU cache.

    Blocks of one request become evictable deepest first, so a prefix outlives its extensions.
    """

    capacity: int
    _holders: dict[int, int] = field(factory=dict[int, int], init=False, repr=False)
    """Every remembered block, and how many requests hold it."""
    _idle: OrderedDict[int, None] = field(factory=OrderedDict[int, None], init=False, repr=False)
    """Those that nobody holds, the next to be evicted first."""
    _anonymous: int = field(default=0, init=False)

    @property
    def held(self) -> int:
        """Blocks that cannot be evicted now."""
        return len(self._holders) - len(self._idle) + self._anonymous

    @property
    def remembered(self) -> int:
        """Blocks with a name, held or not."""
        return len(self._holders)

    def hits(self, names: Sequence[int]) -> int:
        """How many leading blocks of *names* are remembered."""
        holders = self._holders
        for count, name in enumerate(names):
            if name not in holders:
                return count
        return len(names)

    def reserve(self, names: Sequence[int], *, total: int, reusable: int) -> Lease | None:
        """Hold *total* blocks, of which the leading ones are called *names*.

        Args:
            reusable: how many of *names* may be taken from the cache without computing them.

        Returns: None when that many cannot be had while the present holders keep theirs.
        """
        counts = list(map(self._holders.get, names))
        anonymous = total - len(names)
        if counts.count(None) + counts.count(0) + anonymous > self.capacity - self.held:
            return None
        found = counts[:reusable]
        hits = found.index(None) if None in found else len(found)
        self._hold(names)
        self._evict(anonymous)
        self._anonymous += anonymous
        return Lease(names, anonymous, hits)

    def name(self, lease: Lease, names: Sequence[int]) -> None:
        """Let *lease*'s next anonymous blocks be found by *names* from now on."""
        self._anonymous -= len(names)
        lease.anonymous -= len(names)
        self._hold(names)
        lease.named = (*lease.named, *names)

    def release(self, lease: Lease) -> None:
        """Give all blocks of *lease* back; the named ones are remembered while there is room."""
        self._anonymous -= lease.anonymous
        lease.anonymous = 0
        for name in reversed(lease.named):
            holders = self._holders[name] = self._holders[name] - 1
            if not holders:
                self._idle[name] = None
        lease.named = ()

    def forget(self) -> None:
        """Drop every block that nobody holds."""
        self._evict(self.capacity)

    def _hold(self, names: Sequence[int]) -> None:
        holders, idle = self._holders, self._idle
        for name in names:
            count = holders.get(name, 0)
            holders[name] = count + 1
            if not count:
                idle.pop(name, None)

    def _evict(self, room: int) -> None:
        """Evict until *room* more blocks fit, or nothing is left to evict."""
        occupied = len(self._holders) + self._anonymous
        for _ in range(min(occupied + room - self.capacity, len(self._idle))):
            name, _none = self._idle.popitem(last=False)
            del self._holders[name]
