"""Keeps what is known of the endpoints' load fresh: one refresher per endpoint.

A refresher asks often while its endpoint has traffic and backs off while it has none; the next
pick wakes it. What nobody consumes is not read, and when nobody consumes anything, nothing is
asked. An endpoint that cannot be scraped for the staleness threshold is reported as stale.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, final

import anyio
from attrs import define, field, frozen

from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import Change, ReportMetrics
from pointsman.kernel.installed import Installed, where_raised
from pointsman.kernel.keys import Key, keys
from pointsman.kernel.mailbox import Address
from pointsman.kernel.model import (
    FRESHNESS,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Freshness,
    Identity,
    host_port,
)
from pointsman.kernel.plugin import Role
from pointsman.kernel.supervisor import Child, Handle, Supervisor, supervise
from pointsman.kernel.wiring import Collection, Wiring
from pointsman.plugins.sources import MetricsSourceParameters

from .fetching import Fetch, FetchError, Fetching
from .figures import Figures

logger = logging.getLogger(__name__)

TIMEOUT: Final = 1.0  # seconds for one scrape
BACKING_OFF: Final = 1.5  # times the interval, from one idle scrape to the next
LOAD: Final = (RUNNING_REQUESTS, WAITING_QUEUE_SIZE)


@final
@frozen(kw_only=True)
class Rhythm:
    """How often endpoints are asked, in seconds."""

    busy: float = 0.2
    """Between scrapes of an endpoint with traffic, or that fails."""
    idle: float = 2.0
    """The longest interval of an endpoint without."""
    stale_after: float = 2.0
    """How long scrapes may fail before what was known counts as stale."""


@final
@define(eq=False)
class Course:
    """How the scrapes of one source of one endpoint have gone so far."""

    busy: bool = True
    """Whether the endpoint had work when it answered last."""
    picks: int = 0
    """How often it had been chosen when it was asked last."""
    interval: float = 0.0
    """The last pause, in seconds."""
    failing_since: float | None = None
    stale: bool = False
    missing: frozenset[str] = frozenset()


Extraction = tuple[Installed, Mapping[Key, str], Callable[[bytes], Mapping[Key, Any]]]


@final
@define(eq=False)
class Reader:
    """One source of one endpoint: what to fetch, and the functions that read it."""

    collection: Collection
    source: MetricsSourceParameters
    extractions: Sequence[Extraction]
    course: Course

    def url(self, endpoint: Endpoint) -> str:
        where = host_port(endpoint.address, self.source.port or endpoint.port)
        return f"{self.source.scheme}://{where}/{self.source.path.removeprefix('/')}"

    def has_work(self, values: Mapping[str, Any]) -> bool:
        """Whether an endpoint with *values* is at work, as far as they tell."""
        names = (names.get(key) for _, names, _ in self.extractions for key in LOAD)
        return any(values.get(name) for name in names if name is not None)


@final
@define(eq=False)
class Refresher:
    """Scrapes one endpoint for as long as it exists."""

    endpoint: Endpoint
    wiring: Latest[Wiring]
    datastore: Address[Change]
    fetching: Fetching
    figures: Figures
    rhythm: Rhythm
    random: Random
    asked: anyio.Event = field(factory=anyio.Event, init=False)
    """Set once the endpoint has answered, or failed to, or need not be asked."""
    _courses: Mapping[str, Course] = field(factory=dict[str, Course], init=False)
    """By source; those of sources that go on survive another wiring."""
    _last: Mapping[str, Any] = field(factory=dict[str, Any], init=False)

    @property
    def stale(self) -> bool:
        """Whether something that is known of the endpoint could not be fetched for too long."""
        return any(course.stale for course in self._courses.values())

    async def run(self) -> None:
        while True:
            wiring = self.wiring.value
            readers = self._readers(wiring)
            version = self.wiring.version
            if not readers:
                self.asked.set()
                await self.wiring.newer(version)
                continue
            await self._read_until_rewired(readers, version)

    def _readers(self, wiring: Wiring) -> Sequence[Reader]:
        readers = [
            Reader(
                collection,
                source,
                list(self._extractions(collection)),
                self._courses.get(collection.source.name) or Course(),
            )
            for collection in wiring.collections
            if collection.extractions
            and isinstance(source := collection.source.plugin.source(), MetricsSourceParameters)
        ]
        self._courses = {reader.collection.source.name: reader.course for reader in readers}
        return readers

    def _extractions(self, collection: Collection) -> Iterator[Extraction]:
        for extraction in collection.extractions:
            installed, names = extraction.installed, extraction.names
            try:
                extract = installed.plugin.extractor(self.endpoint.labels, keys(*names))
            except Exception as exc:
                installed.failed(Role.EXTRACTOR, exc)
                continue
            yield installed, names, extract

    async def _read_until_rewired(self, readers: Sequence[Reader], version: int) -> None:
        """Each source keeps its own connection; all of them are asked in turn."""
        async with anyio.create_task_group() as sources:
            for reader in readers:
                sources.start_soon(self._read, reader)
            await self.wiring.newer(version)
            sources.cancel_scope.cancel()

    async def _read(self, reader: Reader) -> None:
        async with self.fetching.open(reader.source) as fetch:
            while True:
                await self._scrape(reader, fetch)
                self.asked.set()
                await self._pause(reader)

    async def _scrape(self, reader: Reader, fetch: Fetch) -> None:
        started = anyio.current_time()
        reader.course.picks = self.endpoint.identity.picks
        try:
            with anyio.fail_after(TIMEOUT):
                text = await fetch(reader.url(self.endpoint))
        except (FetchError, TimeoutError) as exc:
            self.figures.poll_errors.labels(reader.collection.source.type_name).inc()
            reason = str(exc) or f"no answer within {TIMEOUT:g} s"
            await self._failed(reader, started, reason)
        else:
            self.figures.scrapes.inc()
            await self._succeeded(reader, text)

    async def _failed(self, reader: Reader, started: float, reason: str) -> None:
        course = reader.course
        if course.failing_since is None:
            course.failing_since = started
            logger.warning("scrapes of %s fail: %s", self.endpoint.id, reason)
        failing = anyio.current_time() - course.failing_since
        late = failing >= self.rhythm.stale_after and reader.source.tells_load
        if late and not course.stale:
            course.stale = True
            logger.warning("metrics of %s are stale", self.endpoint.id)
            await self._report({FRESHNESS.name: Freshness.STALE})

    async def _succeeded(self, reader: Reader, text: bytes) -> None:
        course = reader.course
        if course.failing_since is not None:
            logger.info("scrapes of %s work again", self.endpoint.id)
        course.failing_since = None
        course.stale = False
        values = self._extract(reader, text)
        self._note_missing(course, values)
        course.busy = reader.has_work(values)
        freshness = Freshness.STALE if self.stale else Freshness.FRESH
        await self._report({**values, FRESHNESS.name: freshness})

    def _extract(self, reader: Reader, text: bytes) -> Mapping[str, Any]:
        values: dict[str, Any] = {}
        source = reader.collection.source.type_name
        for installed, names, extract in reader.extractions:
            try:
                found = extract(text)
            except Exception as exc:
                installed.failed(Role.EXTRACTOR, exc)
                self.figures.extract_errors.labels(source, installed.type_name).inc()
                logger.debug("extraction failed: %s", where_raised(exc))
                continue
            installed.worked()
            if any(found.get(key) is None for key in names):
                self.figures.extract_errors.labels(source, installed.type_name).inc()
            values.update({name: found.get(key) for key, name in names.items()})
        return values

    def _note_missing(self, course: Course, values: Mapping[str, Any]) -> None:
        """Say once what an endpoint does not report, and once more when that changes."""
        missing = frozenset(name for name, value in values.items() if value is None)
        if missing != course.missing:
            course.missing = missing
            listed = ", ".join(sorted(missing)) or "nothing any more"
            logger.warning("metrics of %s lack: %s", self.endpoint.id, listed)

    async def _report(self, values: Mapping[str, Any]) -> None:
        """Tell the datastore what changed; an idle endpoint changes nothing."""
        changed = {n: v for n, v in values.items() if n not in self._last or self._last[n] != v}
        if changed:
            self._last = {**self._last, **changed}
            await self.datastore.tell(ReportMetrics(self.endpoint.identity, changed))

    async def _pause(self, reader: Reader) -> None:
        """Until the next scrape is due: soon with traffic, later without, at once on a pick."""
        course, identity = reader.course, self.endpoint.identity
        busy = reader.source.interval or self.rhythm.busy
        if course.busy or course.failing_since is not None or identity.picks != course.picks:
            course.interval = busy
            await anyio.sleep(busy * self.random.uniform(0.9, 1.1))
            return
        longest = max(busy, self.rhythm.idle)
        course.interval = min(longest, max(busy, course.interval) * BACKING_OFF)
        with anyio.move_on_after(course.interval * self.random.uniform(0.9, 1.1)):
            await identity.next_pick()
            await anyio.sleep(busy)  # what the pick sent needs a moment to show


@final
@define(eq=False)
class MetricsActor:
    """Has one refresher for each endpoint that there is, and none for those that are gone."""

    members: Latest[tuple[Endpoint, ...]]
    wiring: Latest[Wiring]
    datastore: Address[Change]
    fetching: Fetching
    figures: Figures
    rhythm: Rhythm
    random: Random
    _running: dict[Identity, tuple[Refresher, Handle]] = field(
        factory=dict[Identity, tuple[Refresher, Handle]], init=False
    )
    _started: Latest[int] = field(factory=lambda: Latest(0), init=False)

    @property
    def stale(self) -> int:
        """How many endpoints have stale metrics."""
        return sum(refresher.stale for refresher, _ in self._running.values())

    def __len__(self) -> int:
        return len(self._running)

    async def first_round(self) -> None:
        """Wait until every endpoint that is known now has been asked once."""
        for endpoint in self.members.value:
            while endpoint.identity not in self._running:
                await self._started.newer(self._started.version)
            await self._running[endpoint.identity][0].asked.wait()

    async def run(self) -> None:
        version = -1
        self._running.clear()
        async with supervise(random=self.random) as supervisor:
            while True:
                version, members = await self.members.newer(version)
                await self._reconcile(members, supervisor)
                self._started.set(version)

    async def _reconcile(self, members: tuple[Endpoint, ...], supervisor: Supervisor) -> None:
        current = {endpoint.identity: endpoint for endpoint in members}
        for identity in self._running.keys() - current.keys():
            refresher, handle = self._running.pop(identity)
            await handle.stop()
            self.figures.forget(refresher.endpoint)
        for identity, endpoint in current.items():
            known = self._running.get(identity)
            if known is None:
                self._running[identity] = self._start(endpoint, supervisor)
            elif known[0].endpoint is not endpoint:
                await known[1].stop()  # another address or other labels: another text to read
                self._running[identity] = self._start(endpoint, supervisor)

    def _start(self, endpoint: Endpoint, supervisor: Supervisor) -> tuple[Refresher, Handle]:
        refresher = Refresher(
            endpoint,
            self.wiring,
            self.datastore,
            self.fetching,
            self.figures,
            self.rhythm,
            self.random,
        )
        child = Child(name=f"refresher of {endpoint.id}", run=refresher.run)
        return refresher, supervisor.start(child)
