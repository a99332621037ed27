"""The objects of a cluster, and the rules by which they change. No I/O, no waiting, no clock.

Every method is one step: it happens as a whole or raises `ApiError`. What it hands out belongs to
the store and is not to be changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, final
from uuid import UUID

from attrs import define, field, frozen

from .admission import GRACE, PLAIN, Birth, Write, admit_change, admit_new, finalizers_of
from .crds import kinds_of, resource_of
from .cursors import Change, Cursor
from .failures import (
    already_exists,
    bad_request,
    conflict,
    continue_too_old,
    forbidden,
    not_found,
    too_new,
    too_old,
)
from .kinds import DEFINITIONS, NAMESPACES, PODS, GroupResource, Kind, Kinds
from .log import EventLog, EventType
from .objects import (
    Object,
    ObjectKey,
    at,
    clone,
    is_terminating,
    key_of,
    name_of,
    timestamp,
    uid_of,
    version_of,
    with_metadata,
)
from .patches import Patch
from .selectors import EVERYTHING, Selection

FIRST_NAMESPACES: Final = ("default", "kube-system")
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"


@frozen(kw_only=True)
class Deletion:
    """How an object is to be deleted."""

    grace: int | None = None
    """Seconds for a pod to end; None leaves it to the pod."""
    uid: str = ""
    version: str = ""
    """If given, what the object must have."""
    dry_run: bool = False


NORMAL: Final = Deletion()


@frozen(kw_only=True)
class Place:
    """Where in a long list the next page begins, and as of when the list is told."""

    revision: int
    after: ObjectKey = ("", "")


@frozen(kw_only=True)
class Page:
    """A list, or a part of one."""

    items: list[Object]
    revision: int
    rest: Place | None = None
    remaining: int = 0


@final
@define(eq=False)
class Store:
    """All objects of one cluster."""

    now: Callable[[], float] = time.time
    """Unix time."""
    random: Random = field(factory=Random)
    kinds: Kinds = field(factory=Kinds)
    log: EventLog = field(factory=EventLog)
    on_change: Callable[[], None] = lambda: None
    """Called after every change."""
    _objects: dict[GroupResource, dict[ObjectKey, Object]] = field(
        factory=dict[GroupResource, dict[ObjectKey, Object]], init=False
    )

    def __attrs_post_init__(self) -> None:
        for name in FIRST_NAMESPACES:
            self.create(NAMESPACES, {"metadata": {"name": name}})

    @property
    def revision(self) -> int:
        return self.log.revision

    def objects(self, kind: Kind) -> Mapping[ObjectKey, Object]:
        """All objects of a kind."""
        return self._table(kind)

    def get(self, kind: Kind, key: ObjectKey) -> Object:
        found = self._table(kind).get(key)
        if found is None:
            raise not_found(kind, key[1])
        return kind.own(found)

    def collect(
        self,
        kind: Kind,
        selection: Selection = EVERYTHING,
        *,
        limit: int = 0,
        place: Place | None = None,
    ) -> Page:
        """The objects that *selection* matches, ordered by namespace and name.

        Raises:
            ApiError: 410 or 504, when they are wanted as of a time that is not known.
        """
        table, revision = self._as_of(kind, place)
        after = place.after if place is not None else ("", "")
        keys = [key for key in sorted(table) if key > after and selection.matches(table[key])]
        chosen = keys[:limit] if limit else keys
        rest = len(keys) - len(chosen)
        return Page(
            items=[kind.own(table[key]) for key in chosen],
            revision=revision,
            rest=Place(revision=revision, after=chosen[-1]) if rest else None,
            remaining=rest,
        )

    def _as_of(self, kind: Kind, place: Place | None) -> tuple[Mapping[ObjectKey, Object], int]:
        table = self._table(kind)
        if place is None:
            return table, self.revision
        self._check_known(place.revision)
        if place.revision < self.log.floor:
            expired = continue_too_old()
            raise expired if place.after[1] else too_old(place.revision, self.log.floor)
        return self.log.rewound(kind.resource, table, place.revision), place.revision

    def _check_known(self, revision: int) -> None:
        if revision > self.revision:
            raise too_new(revision, self.revision)

    def watch(
        self, kind: Kind, selection: Selection = EVERYTHING, revision: int | None = None
    ) -> Cursor:
        """A cursor over what happens after *revision*, or over what is there and what happens.

        Raises:
            ApiError: 504, the revision lies in the future.
        """
        if revision is not None:
            self._check_known(revision)
            return Cursor(kind, selection, self.log, revision)
        first = [Change("ADDED", obj) for obj in self.collect(kind, selection).items]
        return Cursor(kind, selection, self.log, self.revision, first)

    def create(self, kind: Kind, obj: Object, how: Write = PLAIN) -> Object:
        birth = Birth(time=timestamp(self.now()), uid=self._uid(), suffix=self._suffix())
        new = admit_new(kind, clone(obj), how, birth)
        if kind.namespaced:
            self._check_namespace(kind, new)
        elif new["metadata"].pop("namespace", None):
            raise bad_request(f"{kind.plural} have no namespace")
        if key_of(new) in self._table(kind):
            raise already_exists(kind, name_of(new))
        return self._commit("ADDED", kind, new, None, dry_run=how.dry_run)

    def _uid(self) -> str:
        return str(UUID(int=self.random.getrandbits(128), version=4))

    def _suffix(self) -> str:
        return "".join(self.random.choices(_SUFFIX_LETTERS, k=5))

    def _check_namespace(self, kind: Kind, obj: Object) -> None:
        name = key_of(obj)[0]
        namespace = self._table(NAMESPACES).get(("", name))
        if namespace is None:
            raise not_found(NAMESPACES, name)
        if is_terminating(namespace):
            why = f"the namespace {name} is being deleted and takes nothing new"
            raise forbidden(kind, name_of(obj), why)

    def update(self, kind: Kind, obj: Object, how: Write = PLAIN) -> Object:
        """Replace the object of that name by *obj*."""
        old = self.get(kind, key_of(obj))
        return self._replace(kind, clone(obj), old, how)

    def patch(self, kind: Kind, key: ObjectKey, patch: Patch, how: Write = PLAIN) -> Object:
        old = self.get(kind, key)
        new = clone(patch(old))
        if key_of(new) != key:
            raise bad_request("a patch cannot change the name or the namespace")
        return self._replace(kind, new, old, how)

    def _replace(self, kind: Kind, obj: Object, old: Object, how: Write) -> Object:
        new = admit_change(kind, obj, old, how)
        if new is old:
            return old
        if kind is not NAMESPACES and _is_done(new):
            return self._remove(kind, new, dry_run=how.dry_run)
        return self._commit("MODIFIED", kind, new, old, dry_run=how.dry_run)

    def delete(self, kind: Kind, key: ObjectKey, how: Deletion = NORMAL) -> Object:
        """Delete an object, or begin to: it may have finalizers, or be a pod that needs time."""
        old = self.get(kind, key)
        self._check_wanted(kind, old, how)
        grace = _grace(kind, old, how)
        if not grace and not finalizers_of(old) and kind is not NAMESPACES:
            return self._remove(kind, old, dry_run=how.dry_run)
        if is_terminating(old) and grace >= at(old, "metadata", "deletionGracePeriodSeconds"):
            return old
        end = timestamp(self.now() + grace)
        leaving = with_metadata(old, deletionTimestamp=end, deletionGracePeriodSeconds=grace)
        if kind is NAMESPACES:
            leaving["status"] = {"phase": "Terminating"}
        self._commit("MODIFIED", kind, leaving, old, dry_run=how.dry_run)
        if kind is NAMESPACES and not how.dry_run:
            self._empty(key[1])
        return leaving

    def delete_all(self, kind: Kind, selection: Selection, how: Deletion = NORMAL) -> Page:
        """Delete every object that *selection* matches."""
        page = self.collect(kind, selection)
        for obj in page.items:
            self.delete(kind, key_of(obj), how)
        return page

    def compact(self) -> None:
        """Forget what happened: watches and lists as of an earlier time have become too old."""
        self.log.compact()

    def _check_wanted(self, kind: Kind, old: Object, how: Deletion) -> None:
        for wanted, found, what in (
            (how.uid, uid_of(old), "uid"),
            (how.version, version_of(old), "resourceVersion"),
        ):
            if wanted not in ("", found):
                raise conflict(kind, name_of(old), f"its {what} is {found} and not {wanted}")

    def _empty(self, namespace: str) -> None:
        """Delete what is in a namespace, and then itself."""
        for kind in list(self.kinds):
            if kind.namespaced:
                self.delete_all(kind, Selection(namespace))
        self._finish(namespace)

    def _finish(self, namespace: str) -> None:
        """Let go of a namespace that is being deleted, once there is nothing left in it."""
        obj = self._table(NAMESPACES).get(("", namespace))
        if obj is None or not is_terminating(obj):
            return
        if not any(key[0] == namespace for table in self._objects.values() for key in table):
            self._remove(NAMESPACES, obj)

    def _remove(self, kind: Kind, last: Object, *, dry_run: bool = False) -> Object:
        old = self._table(kind)[key_of(last)]
        removed = self._commit("DELETED", kind, with_metadata(last), old, dry_run=dry_run)
        if not dry_run:
            self._finish(key_of(last)[0])
        return removed

    def _commit(
        self, event: EventType, kind: Kind, obj: Object, old: Object | None, *, dry_run: bool
    ) -> Object:
        if dry_run:
            return obj
        self.log.append(event, kind.resource, obj, old)
        if event == "DELETED":
            del self._table(kind)[key_of(obj)]
        else:
            self._table(kind)[key_of(obj)] = obj
        if kind is DEFINITIONS:
            self._define(event, obj)
        self.on_change()
        return obj

    def _define(self, event: EventType, definition: Object) -> None:
        """Serve the kinds of a definition, or no longer."""
        resource = resource_of(definition)
        if event != "DELETED":
            self.kinds.replace(resource, kinds_of(definition))
            return
        doomed = next((kind for kind in self.kinds if kind.resource == resource), None)
        for obj in list(self._objects.get(resource, {}).values()):
            if doomed is not None:
                self._remove(doomed, obj)
        self.kinds.replace(resource, ())

    def _table(self, kind: Kind) -> dict[ObjectKey, Object]:
        return self._objects.setdefault(kind.resource, {})


def _is_done(obj: Object) -> bool:
    """Whether nothing holds an object back that is being deleted."""
    grace = at(obj, "metadata", "deletionGracePeriodSeconds")
    return is_terminating(obj) and not finalizers_of(obj) and not grace


def _grace(kind: Kind, obj: Object, how: Deletion) -> int:
    """Seconds that a deletion takes: only pods that run somewhere need any."""
    over = at(obj, "status", "phase") in ("Succeeded", "Failed")
    if kind is not PODS or over or not at(obj, "spec", "nodeName"):
        return 0
    if how.grace is not None:
        return how.grace
    grace = at(obj, "spec", "terminationGracePeriodSeconds")
    return grace if isinstance(grace, int) else GRACE
