"""Watching, without waiting: a place in the log that moves on when it is asked to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from attrs import define, field, frozen

from .failures import too_old
from .kinds import Kind
from .log import Event, EventLog, EventType
from .objects import Object, version_of, with_metadata
from .selectors import Selection


@final
@frozen
class Change:
    """What a watch is told about one object."""

    type: EventType
    object: Object


@final
@define(eq=False)
class Cursor:
    """Reads what the log has for one selection of one kind."""

    kind: Kind
    selection: Selection
    log: EventLog
    revision: int
    """Everything up to here was read, or lies before the cursor's time."""
    start: int = field(init=False)
    _first: Sequence[Change] = ()
    """What is told before anything that happens."""

    def __attrs_post_init__(self) -> None:
        self.start = self.revision

    def read(self) -> Iterator[Change]:
        """What happened since the last time, one by one.

        Raises:
            ApiError: 410, the log no longer knows.
        """
        first, self._first = self._first, ()
        yield from first
        if self.revision < self.log.floor:
            raise too_old(self.revision, self.log.floor)
        for event in self.log.since(self.revision):
            change = self._seen(event)
            self.revision = event.revision
            if change is not None:
                yield change

    @property
    def bookmark(self) -> Change | None:
        """The place reached, once something newer than the start has happened to the kind."""
        reached = min(self.log.last_change(self.kind.resource), self.revision)
        if reached <= self.start:
            return None
        metadata = {"resourceVersion": str(reached), "creationTimestamp": None}
        identity = {"kind": self.kind.kind, "apiVersion": self.kind.api_version}
        return Change("BOOKMARK", {**identity, "metadata": metadata})

    def _seen(self, event: Event) -> Change | None:
        """The event as it looks through the selection; None when it cannot be seen."""
        if event.resource != self.kind.resource:
            return None
        before = event.previous is not None and self.selection.matches(event.previous)
        after = event.type != "DELETED" and self.selection.matches(event.object)
        if after:
            return Change("MODIFIED" if before else "ADDED", self.kind.own(event.object))
        if not before or event.previous is None:
            return None
        gone = event.object
        if event.type != "DELETED":
            gone = with_metadata(event.previous, resourceVersion=version_of(event.object))
        return Change("DELETED", self.kind.own(gone))
