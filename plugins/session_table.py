"""Which endpoint each session belongs to: bounded in number, and forgotten with time.

Names of sessions are the clients' choice. They are kept as digests: what a client sends costs
the same memory however long it is, and shows nowhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, final

from attrs import define, field

from pointsman.kernel.model import Identity

DIGEST: Final = 16  # bytes
SWEPT: Final = 4  # expired sessions that are dropped when one is bound


@final
@define(eq=False)
class _Binding:
    home: Identity
    used: float


@final
@define(eq=False)
class SessionTable:
    """Sessions in the order of their last use; the one unused for longest goes first.

    Times are those of one clock, in seconds. Expired sessions are not found; they are dropped a
    few at a time, as others are bound, so that no request waits for a sweep.
    """

    most: int
    """Sessions that are kept."""
    ttl: float
    """Seconds without use after which a session belongs nowhere."""
    # Not a dict: the first key of one whose first keys went is slow to find.
    _bindings: OrderedDict[bytes, _Binding] = field(
        factory=OrderedDict[bytes, _Binding], init=False
    )
    _by_home: dict[Identity, set[bytes]] = field(factory=dict[Identity, set[bytes]], init=False)

    def __len__(self) -> int:
        """How many are kept, those included that have expired and are still to be dropped."""
        return len(self._bindings)

    def home(self, session: str, now: float) -> Identity | None:
        """Where a session belongs; looking is not using."""
        binding = self._bindings.get(_digest(session))
        return None if binding is None or self._expired(binding, now) else binding.home

    def bind(self, session: str, home: Identity, now: float) -> None:
        """Note that a session belongs to *home* and was used now."""
        key = _digest(session)
        self._drop(key)
        self._bindings[key] = _Binding(home, now)
        self._by_home.setdefault(home, set()).add(key)
        self._sweep(now)

    def forget(self, home: Identity) -> None:
        """Drop the sessions of an endpoint that is gone."""
        for key in self._by_home.pop(home, ()):
            del self._bindings[key]

    def sizes(self) -> Iterator[tuple[Identity, int]]:
        """How many sessions belong to each endpoint."""
        return ((home, len(keys)) for home, keys in self._by_home.items())

    def _expired(self, binding: _Binding, now: float) -> bool:
        return now - binding.used > self.ttl

    def _sweep(self, now: float) -> None:
        for _ in range(SWEPT):
            key = next(iter(self._bindings))
            too_many = len(self._bindings) > self.most
            if not too_many and not self._expired(self._bindings[key], now):
                return
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        binding = self._bindings.pop(key, None)
        if binding is None:
            return
        keys = self._by_home[binding.home]
        keys.discard(key)
        if not keys:
            del self._by_home[binding.home]


def _digest(session: str) -> bytes:
    return blake2b(session.encode("utf-8", "surrogateescape"), digest_size=DIGEST).digest()
