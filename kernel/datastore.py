"""The one holder of what is known about the pool.

Discovery and metrics actors send it changes; a request reads the snapshot. The snapshot is
immutable, made only when something changed since the last one, and costs what changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, assert_never, final

import anyio
from attrs import define, evolve, field, frozen

from .channel import Channel, Latest, Receiver
from .keys import EventKey
from .mailbox import Mailbox
from .model import (
    POD_ADDED,
    POD_DELETED,
    POD_UPDATED,
    Endpoint,
    Identity,
    PodAdded,
    PodDeleted,
    PodUpdated,
)
from .pool import (
    NO_REWRITES,
    Objective,
    Pool,
    Rewrites,
    SetObjectives,
    SetPool,
    SetRewrites,
)
from .topic import Topics

Values = Mapping[str, Any]
"""What an endpoint reports, by key name; None where it reports nothing."""
Event = tuple[EventKey[Any], PodAdded | PodUpdated | PodDeleted]


@final
@frozen(kw_only=True)
class EndpointSpec:
    """An endpoint as its source of discovery describes it."""

    uid: str
    """Another uid under the same name is another identity."""
    name: str
    namespace: str = "default"
    pod: str = ""
    address: str
    port: int
    rank: int = 0
    labels: Mapping[str, str] = field(factory=dict[str, str])

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


@frozen
class ReplaceEndpoints:
    """This is the whole set now; what is not in it is gone."""

    endpoints: Sequence[EndpointSpec]


@frozen
class ChangeEndpoints:
    """These are new or changed, and those are gone (where the uid still is theirs)."""

    upserts: Sequence[EndpointSpec] = ()
    removals: Sequence[EndpointSpec] = ()


@frozen
class ReportMetrics:
    """What a scrape of one endpoint found. Values that it does not name stay as they are."""

    identity: Identity
    values: Values


Change = ReplaceEndpoints | ChangeEndpoints | ReportMetrics | SetPool | SetObjectives | SetRewrites
EVENTS: Final = 1024  # that may wait for a subscriber before changes have to wait too


@final
@frozen(eq=False)
class Snapshot:
    """The pool at one moment. Columns have one entry per endpoint, in the same order."""

    version: int
    endpoints: tuple[Endpoint, ...]
    columns: Mapping[str, Sequence[Any]]
    pool: Pool | None = None
    objectives: Mapping[str, Objective] = field(factory=dict[str, Objective])
    rewrites: Rewrites = NO_REWRITES


@define(eq=False)
class _Row:
    endpoint: Endpoint
    index: int
    values: dict[str, Any] = field(factory=dict[str, Any])


@final
@define(eq=False)
class Datastore:
    """Applies changes one after the other and tells who subscribed about the pods."""

    inbox: Mailbox[Change]
    topics: Topics
    members: Latest[tuple[Endpoint, ...]] = field(
        factory=lambda: Latest[tuple[Endpoint, ...]](()), init=False
    )
    """The current endpoints; changes with membership, addresses and labels only."""
    synced: Latest[bool] = field(factory=lambda: Latest(value=False), init=False)
    """Whether a source has delivered its first whole set."""
    _rows: dict[str, _Row] = field(factory=dict[str, _Row], init=False, repr=False)
    _by_identity: dict[Identity, _Row] = field(factory=dict[Identity, _Row], init=False, repr=False)
    _order: list[Endpoint] = field(factory=list[Endpoint], init=False, repr=False)
    """The endpoints by their row's index; between two changes it has no gaps."""
    _tracked: frozenset[str] = field(default=frozenset(), init=False)
    _dirty: dict[str, dict[int, Any]] = field(
        factory=dict[str, dict[int, Any]], init=False, repr=False
    )
    _moved: bool = field(default=False, init=False)
    """Rows came or went, so that all columns have to be made anew."""
    _snapshot: Snapshot = field(factory=lambda: Snapshot(0, (), {}), init=False, repr=False)

    async def run(self) -> None:
        """Apply what comes; a subscriber that is slow to hear of it holds up nothing here."""
        with Channel[Event].open(capacity=EVENTS) as events:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._publish, events.receiver)
                async for change in self.inbox:
                    for event in self.apply(change):
                        await events.sender.send(event)
                events.sender.close()

    async def _publish(self, events: Receiver[Event]) -> None:
        async for key, event in events:
            await self.topics.topic(key.name).publish(event)

    def track(self, names: Iterable[str]) -> None:
        """Say which values snapshots must carry as columns."""
        self._tracked = frozenset(names)
        self._moved = True

    @property
    def snapshot(self) -> Snapshot:
        """The pool as it is now; the same object until something changes."""
        if self._moved:
            self._rebuild()
        elif self._dirty or self._snapshot.endpoints is not self.members.value:
            self._patch()
        return self._snapshot

    def apply(self, change: Change) -> list[Event]:
        """Take in *change*; the events that follow from it."""
        match change:
            case ReportMetrics():
                self._report(change)
                return []
            case SetPool(pool):
                self._renew(pool=pool)
                return []
            case SetObjectives(objectives):
                self._renew(objectives=objectives)
                return []
            case SetRewrites(rewrites):
                self._renew(rewrites=Rewrites.of(rewrites))
                return []
            case ReplaceEndpoints(specs):
                kept = {spec.id for spec in specs}
                gone = [row for name, row in self._rows.items() if name not in kept]
                events = self._remove(gone) + self._upsert(specs)
                self.synced.set(True)
            case ChangeEndpoints(upserts, removals):
                named = (row for spec in removals if (row := self._row_of(spec)) is not None)
                gone = list(dict.fromkeys(named))  # a source may name one of them twice
                events = self._remove(gone) + self._upsert(upserts)
            case _:
                assert_never(change)
        if events:
            self._renumber()
            self.members.set(tuple(self._order))
        return events

    def _row_of(self, spec: EndpointSpec) -> _Row | None:
        """The row that *spec* names, unless its name has passed to another identity."""
        row = self._rows.get(spec.id)
        return row if row is not None and row.endpoint.identity.uid == spec.uid else None

    def _renumber(self) -> None:
        """Close the gaps that removals left."""
        if len(self._order) == len(self._rows):
            return
        rows = self._rows.values()
        for index, row in enumerate(rows):
            row.index = index
        self._order = [row.endpoint for row in rows]

    def _remove(self, rows: Sequence[_Row]) -> list[Event]:
        for row in rows:
            del self._rows[row.endpoint.id]
            del self._by_identity[row.endpoint.identity]
            row.endpoint.identity.gone = True
            self._moved = True
        return [(POD_DELETED, PodDeleted(row.endpoint)) for row in rows]

    def _upsert(self, specs: Sequence[EndpointSpec]) -> list[Event]:
        events: list[Event] = []
        for spec in specs:
            row = self._rows.get(spec.id)
            if row is not None and row.endpoint.identity.uid != spec.uid:
                events += self._remove([row])
                row = None
            events += self._add(spec) if row is None else self._update(row, spec)
        return events

    def _add(self, spec: EndpointSpec) -> list[Event]:
        endpoint = _endpoint(spec, Identity(spec.uid))
        row = self._rows[spec.id] = _Row(endpoint, len(self._order))
        self._by_identity[endpoint.identity] = row
        self._order.append(endpoint)
        self._moved = True
        return [(POD_ADDED, PodAdded(endpoint))]

    def _update(self, row: _Row, spec: EndpointSpec) -> list[Event]:
        before = row.endpoint
        after = _endpoint(spec, before.identity)
        if after == before:
            return []
        row.endpoint = self._order[row.index] = after
        return [(POD_UPDATED, PodUpdated(after, before))]

    def _report(self, change: ReportMetrics) -> None:
        row = self._by_identity.get(change.identity)
        if row is None:
            return  # scraped a moment before it was deleted
        for name, value in change.values.items():
            if row.values.get(name) != value:
                row.values[name] = value
                if name in self._tracked:
                    self._dirty.setdefault(name, {})[row.index] = value

    def _rebuild(self) -> None:
        rows = tuple(self._rows.values())
        columns = {name: tuple(row.values.get(name) for row in rows) for name in self._tracked}
        self._renew(endpoints=self.members.value, columns=columns)
        self._moved = False
        self._dirty.clear()

    def _renew(self, **changes: Any) -> None:
        version = self._snapshot.version + 1
        self._snapshot = evolve(self._snapshot, version=version, **changes)

    def _patch(self) -> None:
        columns = dict(self._snapshot.columns)
        for name, changes in self._dirty.items():
            column = list(columns[name])
            for index, value in changes.items():
                column[index] = value
            columns[name] = tuple(column)
        self._renew(endpoints=self.members.value, columns=columns)
        self._dirty.clear()


def _endpoint(spec: EndpointSpec, identity: Identity) -> Endpoint:
    return Endpoint(
        identity=identity,
        name=spec.name,
        namespace=spec.namespace,
        pod=spec.pod or spec.name,
        address=spec.address,
        port=spec.port,
        rank=spec.rank,
        labels=spec.labels,
    )
