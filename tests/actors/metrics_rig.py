"""The metrics actor between a fake network and a real datastore.

Jitter is switched off: intervals are what the rhythm says.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any, Final

import anyio
from attrs import define, field

from pointsman import plugins
from pointsman.actors.fetching import Fetch
from pointsman.actors.figures import Figures
from pointsman.actors.metrics import MetricsActor, Rhythm
from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import (
    Change,
    Datastore,
    EndpointSpec,
    ReplaceEndpoints,
    ReportMetrics,
)
from pointsman.kernel.keys import EndpointKey
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    WAITING_QUEUE_SIZE,
)
from pointsman.kernel.testing import wired
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.sources import MetricsSourceParameters
from pointsman.plugins.utilization import UtilizationDetector

TYPES: Final = tuple(one for one in plugins.BUILT_IN if one is not UtilizationDetector)
"""Less the detector: it is there by default, and then endpoints are always asked for load."""

QUEUE_ONLY: Final = "plugins: [{type: queue-scorer}]"
QUEUE_AND_CACHE: Final = "plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}]"
LOAD: Final = "plugins: [{type: queue-scorer}, {type: running-requests-size-scorer}]"
NOTHING: Final = "plugins: [{type: random-picker}]"

IDLE: Final = (
    b"vllm:num_requests_waiting 0\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc 0\n"
)
BUSY: Final = (
    b"vllm:num_requests_waiting 2\nvllm:num_requests_running 1\nvllm:kv_cache_usage_perc 1\n"
)

Answer = bytes | Exception | None
"""None: the endpoint takes the question and never answers."""


@define(eq=False)
class Web:
    """Endpoints as the network shows them: an answer for each URL."""

    answers: dict[str, Answer] = field(factory=dict[str, Answer])
    asked: list[tuple[float, str]] = field(factory=list[tuple[float, str]])
    open_connections: int = 0
    delay: float = 0.0

    @asynccontextmanager
    async def open(self, source: MetricsSourceParameters) -> AsyncGenerator[Fetch, None]:
        self.open_connections += 1
        try:
            yield self.fetch
        finally:
            self.open_connections -= 1

    async def fetch(self, url: str) -> bytes:
        self.asked.append((anyio.current_time(), url))
        await anyio.sleep(self.delay)
        answer = self.answers.get(url, IDLE)
        if answer is None:
            await anyio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    def times(self, url: str) -> list[float]:
        return [time for time, asked in self.asked if asked == url]

    def gaps(self, url: str) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.times(url))]


class Steady(Random):
    """The middle of every range."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@define(eq=False)
class Rig:
    """The actor between a fake network and a real datastore."""

    wiring: Latest[Wiring]
    inbox: Mailbox[Change]
    web: Web
    rhythm: Rhythm
    figures: Figures = field(factory=Figures)
    reports: list[ReportMetrics] = field(factory=list[ReportMetrics])
    datastore: Datastore = field(init=False)
    actor: MetricsActor = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.datastore = Datastore(self.inbox, Topics())
        self.datastore.track([WAITING_QUEUE_SIZE.name, KV_CACHE_USAGE.name, FRESHNESS.name])
        self.actor = MetricsActor(
            self.datastore.members,
            self.wiring,
            self.inbox.address,
            self.web,
            self.figures,
            self.rhythm,
            Steady(0),
        )

    async def store(self) -> None:
        async for change in self.inbox:
            if isinstance(change, ReportMetrics):
                self.reports.append(change)
            self.datastore.apply(change)

    def have(self, *specs: EndpointSpec) -> None:
        """These are the endpoints from now on."""
        self.datastore.apply(ReplaceEndpoints(specs))

    def column(self, key: EndpointKey[Any]) -> Sequence[Any]:
        return self.datastore.snapshot.columns[key.name]

    def pick(self, index: int = 0) -> None:
        self.datastore.members.value[index].identity.note_pick()

    def figure(self, name: str, **labels: str) -> float:
        return self.figures.registry.get_sample_value(name, labels) or 0.0

    @property
    def failed_scrapes(self) -> float:
        source = "metrics-data-source"
        return self.figure("llm_d_epp_datalayer_poll_errors_total", source_type=source)


@asynccontextmanager
async def running(
    *specs: EndpointSpec,
    config: str = QUEUE_AND_CACHE,
    web: Web | None = None,
    rhythm: Rhythm | None = None,
    types: Sequence[type[Any]] = (),
) -> AsyncGenerator[Rig]:
    wiring = Latest(wired(config, *TYPES, *types))
    with Mailbox[Change].open("datastore", capacity=64) as inbox:
        rig = Rig(wiring, inbox, web or Web(), rhythm or Rhythm())
        rig.have(*specs)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.store)
            tasks.start_soon(rig.actor.run)
            yield rig
            tasks.cancel_scope.cancel()


def spec(name: str = "a", address: str = "10.0.0.1", port: int = 8000, **more: Any) -> EndpointSpec:
    return EndpointSpec(uid=name, name=name, address=address, port=port, **more)


A: Final = spec()
URL: Final = "http://10.0.0.1:8000/metrics"


def many(count: int) -> list[EndpointSpec]:
    return [spec(f"e{number}", f"10.0.0.{number}") for number in range(1, count + 1)]


def url(number: int) -> str:
    return f"http://10.0.0.{number}:8000/metrics"
