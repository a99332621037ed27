"""What plugins remember about requests: per plugin and request, or per profile run.

`PluginState` is private to a plugin and lives as long as the request object, whatever the
ending. The reaper only collects what a request left behind that ended without saying so; it
never touches a live one, however long it is silent.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any, Final, Generic, Protocol, TypeVar, cast, final

from attrs import define, field

logger = logging.getLogger(__name__)

T = TypeVar("T")

IDLE_THRESHOLD: Final = 300.0  # seconds after which the reaper takes a dead request's state


@final
class StateKey(Generic[T]):
    """Names one value in a plugin's state: ``StateKey("hashes", Hashes)``. Made once."""

    __slots__ = ("name", "type")

    def __init__(self, name: str, value_type: type[T]) -> None:
        self.name: Final = name
        self.type: Final = value_type

    def __repr__(self) -> str:
        return f"StateKey({self.name!r}, {self.type.__name__})"


class Evictable(Protocol):
    """A value that wants to know when it is dropped. It hears of it exactly once."""

    def on_evicted(self) -> None: ...


class Lifetime(Protocol):
    """What state is bound to: the kernel's own request object, not the client's request id."""

    @property
    def id(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    @property
    def states(self) -> list[PluginState]: ...


@define(eq=False)
class _Entry:
    request: weakref.ref[Any]
    values: dict[StateKey[Any], Any] = field(factory=dict[StateKey[Any], Any])
    used: bool = True
    """Whether it was read or written since the last sweep."""
    idle_since: float = 0.0

    @property
    def live(self) -> bool:
        request = self.request()
        return request is not None and not request.ended


@final
@define(eq=False)
class PluginState:
    """One plugin's values by request."""

    plugin: str
    threshold: float = IDLE_THRESHOLD
    """Seconds without access after which the reaper collects what a dead request left."""
    _entries: dict[int, _Entry] = field(factory=dict[int, _Entry], init=False, repr=False)
    reaped: int = field(default=0, init=False)
    """Requests whose state the reaper had to collect."""

    def __len__(self) -> int:
        """How many requests have state here."""
        return len(self._entries)

    def write(self, request: Lifetime, key: StateKey[T], value: T) -> bool:
        """Keep *value* until *request* ends; an earlier value of *key* is replaced silently.

        A request that has ended takes nothing any more: the value is evicted at once, and the
        answer is False.
        """
        if request.ended:
            self._evict(value)
            return False
        entry = self._entries.get(request.id)
        if entry is None:
            entry = self._entries[request.id] = _Entry(weakref.ref(request))
            request.states.append(self)
        entry.used = True
        entry.values[key] = value
        return True

    def read(self, request: Lifetime, key: StateKey[T]) -> T | None:
        entry = self._entries.get(request.id)
        if entry is None:
            return None
        entry.used = True
        return cast("T | None", entry.values.get(key))

    def delete(self, request: Lifetime, key: StateKey[Any]) -> None:
        """Drop one value; a value that is not there is no error."""
        entry = self._entries.get(request.id)
        if entry is not None and key in entry.values:
            self._evict(entry.values.pop(key))

    def awaits(self, request: Lifetime) -> bool:
        """Whether something that is kept for *request* wants to hear of its end."""
        entry = self._entries.get(request.id)
        return entry is not None and any(
            hasattr(value, "on_evicted") for value in entry.values.values()
        )

    def drop(self, request: Lifetime) -> None:
        """Drop all that is kept for *request*."""
        self._drop(request.id)

    def sweep(self, now: float) -> int:
        """Collect dead requests' state that was idle for the threshold; tell how many.

        Idleness is measured between sweeps, so it costs an access nothing.
        """
        stale = [number for number, entry in self._entries.items() if self._stale(entry, now)]
        for number in stale:
            self._drop(number)
        self.reaped += len(stale)
        return len(stale)

    def _stale(self, entry: _Entry, now: float) -> bool:
        if entry.used or entry.live:
            entry.used = False
            entry.idle_since = now
            return False
        return now - entry.idle_since >= self.threshold

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number, None)
        if entry is not None:
            for value in entry.values.values():
                self._evict(value)

    def _evict(self, value: object) -> None:
        hook = getattr(value, "on_evicted", None)
        if hook is not None:
            try:
                hook()
            except Exception:
                logger.exception("plugin %s: on_evicted of %s failed", self.plugin, type(value))


@final
@define(eq=False)
class RequestState:
    """One plugin's state of one request: what `DataView.state` hands out."""

    _state: PluginState
    _request: Lifetime

    def write(self, key: StateKey[T], value: T) -> bool:
        """Keep *value* until the request ends; False when it has ended already."""
        return self._state.write(self._request, key, value)

    def read(self, key: StateKey[T]) -> T | None:
        return self._state.read(self._request, key)

    def delete(self, key: StateKey[Any]) -> None:
        self._state.delete(self._request, key)


@final
@define(eq=False)
class CycleState:
    """Scratch data that the plugins of one profile run share; gone with the run."""

    _values: dict[StateKey[Any], Any] = field(
        factory=dict[StateKey[Any], Any], init=False, repr=False
    )

    def write(self, key: StateKey[T], value: T) -> None:
        self._values[key] = value

    def read(self, key: StateKey[T]) -> T | None:
        return cast("T | None", self._values.get(key))

    def delete(self, key: StateKey[Any]) -> None:
        self._values.pop(key, None)
