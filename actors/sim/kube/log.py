"""What happened to the objects, in order: the log that watches read and old lists come from.

Every change has a revision of its own, one more than the change before. What lies before the
log's floor is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, final

from attrs import define, field, frozen

from .kinds import GroupResource
from .objects import Object, ObjectKey, key_of

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

FIRST_REVISION: Final = 100
"""What a fresh store is at; not 0, which means *any* to the API."""


@final
@frozen
class Event:
    """One change: what an object was and what it is, or was last."""

    revision: int
    type: EventType
    resource: GroupResource
    object: Object
    previous: Object | None


@final
@define(eq=False)
class EventLog:
    """The last changes; at least *keep* of them, unless compacted."""

    keep: int = 2_000
    revision: int = field(default=FIRST_REVISION, init=False)
    floor: int = field(default=FIRST_REVISION, init=False)
    """The oldest revision from which everything that followed is known."""
    _events: list[Event] = field(factory=list[Event], init=False)
    _last: dict[GroupResource, int] = field(factory=dict[GroupResource, int], init=False)

    def append(
        self, kind: EventType, resource: GroupResource, obj: Object, previous: Object | None
    ) -> Event:
        """Note a change; *obj* gets its revision."""
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        event = Event(self.revision, kind, resource, obj, previous)
        self._events.append(event)
        self._last[resource] = self.revision
        if len(self._events) > 2 * self.keep:
            self._forget(self.revision - self.keep)
        return event

    def since(self, revision: int) -> Sequence[Event]:
        """What happened after *revision*, which may not lie before the floor."""
        return self._events[revision - self.floor :]

    def last_change(self, resource: GroupResource) -> int:
        """The revision of the newest change to objects of *resource*; 0 when there was none."""
        return self._last.get(resource, 0)

    def compact(self) -> None:
        """Forget everything up to now."""
        self._forget(self.revision)

    def _forget(self, revision: int) -> None:
        del self._events[: revision - self.floor]
        self.floor = revision

    def rewound(
        self, resource: GroupResource, objects: Mapping[ObjectKey, Object], revision: int
    ) -> dict[ObjectKey, Object]:
        """The objects of *resource* as they were at *revision*; *objects* is what they are now."""
        then = dict(objects)
        for event in reversed(self.since(revision)):
            if event.resource == resource:
                key = key_of(event.object)
                if event.previous is None:
                    then.pop(key, None)
                else:
                    then[key] = event.previous
        return then
