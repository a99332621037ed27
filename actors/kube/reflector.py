"""Keeps a set of objects equal to the API server's, for as long as it runs.

Level-triggered: only a watch that ran its time is resumed; after anything else the objects are
listed again and handed on as a whole. What a broken watch did not tell is thereby repaired, and a
follower can never be wrong for longer than its connection is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Final, Generic, final

import anyio
from attrs import define, field, frozen

from pointsman.kernel.channel import Latest
from pointsman.kernel.supervisor import Backoff

from .client import Client, Listing
from .errors import Expired, Interrupted, KubeError, NotInstalled
from .kinds import Notice, O, Selection
from .watching import Bookmark, Broken, Seen, Watch

logger = logging.getLogger(__name__)

BACKOFF: Final = Backoff(first=0.2, most=30.0)
STEADY: Final = 10.0  # seconds that a watch must last to end a row of failures
IN_TIME: Final = 5.0  # seconds before its time at which a watch may end
LOOK_AGAIN: Final = 60.0  # seconds until a missing definition is looked for again
GRACE: Final = 60.0  # seconds; a starting API server says of definitions that they are missing

_OF_WATCHES: Final = (Expired, Interrupted)
"""Ends of watches that lead to a new list; only a row of them is worth a word."""


@frozen
class Replace(Generic[O]):
    """These are all objects now."""

    objects: Sequence[O]


@frozen
class Changed(Generic[O]):
    """The object is new, or not as it was."""

    object: O


@frozen
class Gone(Generic[O]):
    """The object, as it was last, is no longer there."""

    object: O


News = Replace[O] | Changed[O] | Gone[O]
Publish = Callable[[News[O]], Awaitable[None]]


@final
@define(eq=False)
class Reflector(Generic[O]):
    """Follows one selection of objects and publishes what becomes of them.

    `publish` is awaited before the next event is read, so it must not wait for anything but room.
    """

    selection: Selection[O]
    client: Client
    publish: Publish[O]
    random: Random
    optional: bool = False
    """Whether the cluster may do without the kind; its absence then means no objects."""
    absence: int = logging.INFO
    """The log level at which it is said that an optional kind is not installed."""
    synced: Latest[bool] = field(factory=lambda: Latest(value=False), init=False)
    """Whether the objects were published once, be it that there are none."""
    installed: Latest[bool | None] = field(factory=lambda: Latest[bool | None](None), init=False)
    """Whether the server knows the kind; None until that is known."""
    _known: dict[str, O] = field(factory=dict[str, O], init=False, repr=False)
    _skipped: dict[str, str] = field(factory=dict[str, str], init=False, repr=False)
    _version: str = field(default="", init=False)
    _failures: int = field(default=0, init=False)
    _complaint: type[KubeError] | None = field(default=None, init=False)
    _contact: float | None = field(default=None, init=False)
    _missing_since: float | None = field(default=None, init=False)

    @property
    def age(self) -> float:
        """Seconds since the server last told something; a quiet watch tells nothing for minutes."""
        return 0.0 if self._contact is None else anyio.current_time() - self._contact

    @property
    def skipped(self) -> Mapping[str, str]:
        """Objects that do not fit their schema, and why; an earlier form of them still counts."""
        return self._skipped

    async def run(self) -> None:
        """Follow until cancelled. Whatever the server does is survived."""
        self._known.clear()
        self._contact = anyio.current_time()
        async with self.client:
            while True:
                try:
                    await self._follow()
                except KubeError as exc:
                    await self._survive(exc)

    async def _follow(self) -> None:
        """List, and watch from there on; ends with an error."""
        await self._take_all(await self.client.list(self.selection))
        while True:
            opened = anyio.current_time()
            async with self.client.watch(self.selection, self._version) as watch:
                self._opened()
                try:
                    await self._observe(watch)
                finally:
                    lasted = anyio.current_time() - opened
                    if lasted >= STEADY:
                        self._steadied()
            if lasted < watch.seconds - IN_TIME:
                reason = f"it ended after {lasted:.0f} of {watch.seconds:.0f} s"
                raise Interrupted("watch", str(self.selection), reason)

    async def _observe(self, watch: Watch[O]) -> None:
        while (batch := await watch.batch()) is not None:
            self._contact = anyio.current_time()
            for seen in batch:
                await self._take(seen)

    async def _take_all(self, listing: Listing[O]) -> None:
        self._contact = anyio.current_time()
        known = {obj.metadata.name: obj for obj in listing.objects}
        skipped: dict[str, str] = {}
        for broken in listing.broken:
            name = self._note_broken(broken, skipped)
            if (last := self._last_good(broken)) is not None:
                known[name] = last
        self._known, self._skipped, self._version = known, skipped, listing.version
        self._set(self.installed, value=True)
        await self.publish(Replace(tuple(known.values())))
        self._set(self.synced, value=True)

    async def _take(self, seen: Seen[O]) -> None:
        match seen:
            case Notice(type="DELETED", object=obj):
                self._version = obj.metadata.resource_version
                await self._drop(obj.metadata.name, obj.metadata.uid)
            case Notice(object=obj):
                self._version = obj.metadata.resource_version
                self._known[obj.metadata.name] = obj
                self._skipped.pop(obj.metadata.name, None)
                await self.publish(Changed(obj))
            case Bookmark(version):
                self._version = version or self._version
            case Broken():
                await self._take_broken(seen)

    async def _take_broken(self, broken: Broken) -> None:
        metadata = broken.metadata
        self._version = metadata.resource_version or self._version
        if broken.type == "DELETED":
            await self._drop(metadata.name, metadata.uid)
            return
        self._note_broken(broken, self._skipped)
        if metadata.name in self._known and self._last_good(broken) is None:
            await self._drop(metadata.name, self._known[metadata.name].metadata.uid)

    async def _drop(self, name: str, uid: str) -> None:
        """Forget an object, unless its name has passed to another one since."""
        last = self._known.get(name)
        if last is None:
            self._skipped.pop(name, None)
        elif last.metadata.uid == uid:
            self._skipped.pop(name, None)
            del self._known[name]
            await self.publish(Gone(last))

    def _last_good(self, broken: Broken) -> O | None:
        last = self._known.get(broken.metadata.name)
        return last if last is not None and last.metadata.uid == broken.metadata.uid else None

    def _note_broken(self, broken: Broken, skipped: dict[str, str]) -> str:
        """Put it down in *skipped*, and in the log when it was not there for this before."""
        name = broken.metadata.name or "(without a name)"
        if self._skipped.get(name) != broken.problem:
            logger.warning("skipping %r of %s: %s", name, self.selection, broken.problem)
        skipped[name] = broken.problem
        return name

    def _opened(self) -> None:
        self._contact = anyio.current_time()
        self._missing_since = None
        if self._complaint not in _OF_WATCHES:
            self._relieved()

    def _steadied(self) -> None:
        self._failures = 0
        self._relieved()

    def _relieved(self) -> None:
        if self._complaint is not None:
            self._complaint = None
            logger.info("%s are followed again", self.selection)

    async def _survive(self, exc: KubeError) -> None:
        if self.optional and isinstance(exc, NotInstalled) and await self._is_absent():
            await anyio.sleep(LOOK_AGAIN * self.random.uniform(0.9, 1.1))
            return
        self._complain(exc)
        self._failures += 1
        delay = BACKOFF.delay(self._failures, self.random)
        await anyio.sleep(max(delay, exc.retry_after))

    async def _is_absent(self) -> bool:
        """Whether the kind is taken to be not installed: at once, or after a while if it was."""
        self._contact = now = anyio.current_time()
        if self._missing_since is None:
            self._missing_since = now
        if self.installed.value and now - self._missing_since < GRACE:
            return False
        if self.installed.value is not False:
            logger.log(self.absence, "%s is not installed", self.selection.kind.resource)
            self._known.clear()
            self._skipped.clear()
            await self.publish(Replace(()))
            self._set(self.installed, value=False)
            self._set(self.synced, value=True)
        self._complaint = None
        self._failures = 0
        return True

    def _complain(self, exc: KubeError) -> None:
        """Say what is wrong, once for each thing that is; a watch may break once in a while."""
        if isinstance(exc, _OF_WATCHES) and not self._failures:
            logger.debug("%s", exc)
        elif type(exc) is not self._complaint:
            logger.warning("%s", exc)
            self._complaint = type(exc)

    def _set(self, cell: Latest[bool] | Latest[bool | None], *, value: bool) -> None:
        if cell.value is not value:
            cell.set(value)
