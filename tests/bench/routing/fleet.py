"""Simulated model servers on the clock, and the scrapes by which the daemon hears of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, Self, final

from attrs import define, field, frozen

from pointsman.actors.metrics import BACKING_OFF, Rhythm
from pointsman.actors.sim.engine import Engine
from pointsman.actors.sim.latency import LatencyProfile
from pointsman.actors.sim.work import EngineConfig, Event, Generation, Work
from pointsman.kernel.datastore import (
    Change,
    Datastore,
    EndpointSpec,
    ReplaceEndpoints,
    ReportMetrics,
)
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import (
    CACHE_CONFIG,
    FRESHNESS,
    KV_CACHE_USAGE,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    CacheConfig,
    Freshness,
    Identity,
)
from pointsman.kernel.topic import Topics

from .clock import Clock
from .workloads import ENGINE_BLOCK

_SLOTS: Final = 256
_ALONE: Final = 0.014  # seconds an iteration: 64 GB of weights through two H100's memory
_EACH: Final = 0.00043  # seconds more for each request of 7 to 8 k tokens of context
QWEN3_32B: Final = EngineConfig(
    max_num_seqs=_SLOTS,
    max_num_batched_tokens=8192,
    max_model_len=131_072,
    block_size=ENGINE_BLOCK,
    num_gpu_blocks=307_328 // ENGINE_BLOCK,
    profile=LatencyProfile(
        prefill_overhead=0.0,
        prefill_time_per_token=0.00004,
        prefill_std=0.002,
        inter_token_latency=_ALONE,
        inter_token_std=0.001,
        time_factor_under_load=1 + (_SLOTS - 1) * _EACH / _ALONE,
    ),
)
"""Qwen3-32B on two H100: the pod of the published benchmark, after its iteration times.

Everything takes longer in proportion to the batch here, computing prompts too; so that the time
per prompt token is chosen for a half full engine, where it comes to 0.1 ms.
"""


@final
@frozen
class Sizes:
    """A fleet of equal servers."""

    servers: int = 8
    engine: EngineConfig = QWEN3_32B


@final
@define(eq=False)
class Server:
    """One engine that is advanced when it has something to tell, and no more often."""

    engine: Engine
    clock: Clock
    tell: Callable[[Event], None]
    _due: float = field(default=-1.0, init=False)
    """When it is to be advanced next."""

    def submit(self, work: Work) -> Generation:
        generation = self.engine.submit(work, self.clock.now)
        self._plan()
        return generation

    def _plan(self) -> None:
        due = self.engine.next_at()
        if due is not None and due != self._due:
            self._due = due
            self.clock.at(due, self._advance)

    def _advance(self) -> None:
        if self.clock.now < self._due:
            return  # its batch changed after this was planned
        for event in self.engine.advance(self.clock.now):
            self.tell(event)
        self._plan()


def load_of(engine: Engine) -> Mapping[str, Any]:
    """What a scrape of the engine finds now."""
    config = engine.config
    return {
        WAITING_QUEUE_SIZE.name: float(engine.waiting),
        RUNNING_REQUESTS.name: float(engine.running),
        KV_CACHE_USAGE.name: engine.kv_cache_usage,
        CACHE_CONFIG.name: CacheConfig(config.block_size, config.num_gpu_blocks),
        FRESHNESS.name: Freshness.FRESH,
    }


@final
@define(eq=False, kw_only=True)
class Scraper:
    """Reports a server's load in the rhythm of the daemon's own refreshers."""

    server: Server
    identity: Identity
    store: Datastore
    random: Random
    rhythm: Rhythm = Rhythm()
    _interval: float = field(default=0.0, init=False)
    _picks: int = field(default=0, init=False)
    _round: int = field(default=0, init=False)
    """Tells a scrape that a pick has brought forward from the one planned before."""

    def start(self) -> None:
        """Scrape now, and then again and again."""
        self._scrape(self._round)

    def picked(self) -> None:
        """Hear that the server was chosen: when it was idle, it is no longer."""
        if self._interval > self.rhythm.busy and self.identity.picks == self._picks + 1:
            self._again(self.rhythm.busy)

    def _scrape(self, planned: int) -> None:
        if planned != self._round:
            return
        self._picks = self.identity.picks
        self.store.apply(ReportMetrics(self.identity, load_of(self.server.engine)))
        self._again(self._pause())

    def _again(self, seconds: float) -> None:
        self._round = planned = self._round + 1
        self.server.clock.after(seconds, lambda: self._scrape(planned))

    def _pause(self) -> float:
        engine, busy = self.server.engine, self.rhythm.busy
        if engine.running or engine.waiting:
            self._interval = busy
        else:
            self._interval = min(self.rhythm.idle, max(busy, self._interval) * BACKING_OFF)
        return self._interval * self.random.uniform(0.9, 1.1)


@final
@define(eq=False)
class Fleet:
    """Servers as the endpoints of a pool."""

    store: Datastore
    servers: Mapping[Identity, Server]
    scrapers: Mapping[Identity, Scraper]

    @classmethod
    def build(
        cls, sizes: Sizes, clock: Clock, tell: Callable[[Event], None], random: Random
    ) -> Self:
        """Servers that *tell* what happens, and scrapers that wait for `scrape`."""
        store = pool(sizes.servers)
        servers = {
            endpoint.identity: Server(Engine(sizes.engine, random.getrandbits(32)), clock, tell)
            for endpoint in store.members.value
        }
        scrapers = {
            identity: Scraper(server=server, identity=identity, store=store, random=random)
            for identity, server in servers.items()
        }
        return cls(store, servers, scrapers)

    def scrape(self) -> None:
        """Report every server's load now, and from now on as often as the daemon would ask."""
        for scraper in self.scrapers.values():
            scraper.start()

    def held(self, blocks: Sequence[int]) -> Mapping[Identity, int]:
        """How many leading ones of *blocks* each server holds in its cache."""
        return {one: server.engine.cache.hits(blocks) for one, server in self.servers.items()}


def pool(servers: int) -> Datastore:
    """A datastore with that many endpoints of which nothing is known yet."""
    inbox = Mailbox[Change].open("datastore", capacity=1)
    inbox.close()
    store = Datastore(inbox, Topics())
    specs = [
        EndpointSpec(uid=f"pod-{n}", name=f"pod-{n}", address=f"127.0.1.{n}", port=8000)
        for n in range(1, servers + 1)
    ]
    store.apply(ReplaceEndpoints(specs))
    return store
