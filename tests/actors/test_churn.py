"""What is counted and what is walked while everything around it changes.

G-xx are the field reports whose fault a test keeps away.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint
from attrs import define, field
from grpclib.const import Status
from trio.testing import MockClock

from pointsman.actors.exposition import figures_page
from pointsman.actors.fetching import FetchError
from pointsman.actors.http import Request as Question
from pointsman.actors.http import json_response
from pointsman.actors.reaper import Reaper
from pointsman.actors.serve import Daemon
from pointsman.kernel.datastore import EndpointSpec, ReplaceEndpoints, ReportMetrics
from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint, Freshness
from pointsman.kernel.testing import decide, make_request
from pointsman.kernel.wiring import Wiring
from pointsman.proto import (
    HeaderMap,
    HeaderValue,
    HttpBody,
    HttpHeaders,
    ProcessingRequest,
    ProcessingResponse,
    decode,
)

from .daemons import Make
from .metrics_rig import BUSY, IDLE, many, running, spec, url
from .scripts import CHAT, chat

IN_FLIGHT: Final = "plugins: [{type: active-request-scorer}, {type: queue-scorer}]"


def in_flight(wiring: Wiring) -> Counter[str]:
    plugin: Any = wiring.installed["inflight-load-producer"].plugin
    counts: Counter[str] = Counter()
    for endpoint, _, load in plugin.ledger.shares():
        counts[endpoint.name] += load.requests
    return counts


async def test_g_06_requests_stay_counted_over_any_number_of_scrapes(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """Whatever endpoints report, however often the list comes anew and the reaper sweeps."""
    async with running(*many(2), config=IN_FLIGHT) as rig:
        nursery.start_soon(Reaper(rig.wiring, every=1.0).run)
        open_requests = [make_request() for _ in range(10)]
        for request in open_requests:
            decide(rig.wiring.value, rig.datastore.snapshot, request)
        for answer in (BUSY, FetchError("no"), IDLE, None, BUSY):
            rig.web.answers = {url(1): answer, url(2): answer}
            rig.have(*many(2))
            await anyio.sleep(30)
            assert in_flight(rig.wiring.value) == {"e1": 5, "e2": 5}
        assert len(rig.web.times(url(1))) > 20
        for request in open_requests:
            request.end()
        assert in_flight(rig.wiring.value) == {}


WALKED: Final = """\
plugins:
- {type: breather}
- {type: prefix-cache-scorer}
- {type: active-request-scorer}
- {type: no-hit-lru-scorer}
- {type: kv-cache-utilization-scorer}
- {type: queue-scorer, name: queue-%d}
- {name: endpoints, type: file-discovery, parameters: {path: PATH}}
dataLayer: {discovery: {pluginRef: endpoints}}
"""


class Breather:
    """Lets everything else change in the middle of a decision."""

    type_name: ClassVar = "breather"

    async def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        for _ in range(3):
            await checkpoint()


def headers_message(fields: dict[str, str]) -> HttpHeaders:
    listed = [HeaderValue(key=name, raw_value=value.encode()) for name, value in fields.items()]
    return HttpHeaders(headers=HeaderMap(headers=listed))


def conversation(number: int) -> list[ProcessingRequest]:
    """A model, a client and a prompt of its own, which make series and blocks of their own."""
    sender = {**CHAT, "x-gateway-inference-fairness-id": f"flow-{number}"}
    messages = [{"role": "user", "content": f"{number} " * 200}]
    data = chat(model=f"m{number}", messages=messages)
    return [
        ProcessingRequest(request_headers=headers_message(sender)),
        ProcessingRequest(request_body=HttpBody(body=data, end_of_stream=True)),
        ProcessingRequest(response_headers=headers_message({":status": "200"})),
        ProcessingRequest(response_body=HttpBody(body=b"data: {}", end_of_stream=True)),
    ]


@define(eq=False)
class Leisurely:
    """A proxy that lets others have a turn between two messages."""

    messages: list[ProcessingRequest]
    replies: list[ProcessingResponse] = field(factory=list[ProcessingResponse])

    async def receive(self) -> Sequence[ProcessingRequest]:
        await checkpoint()
        return [self.messages.pop(0)] if self.messages else []

    async def send(self, replies: Iterable[bytes]) -> None:
        self.replies += [decode(ProcessingResponse, reply) for reply in replies]

    async def finish(self, status: Status, message: str = "") -> None: ...
    def leave(self) -> None: ...
    def cancel_on_close(self, scope: anyio.CancelScope | None) -> None: ...


@define(eq=False)
class Bustle:
    """A daemon around which everything changes at once."""

    daemon: Daemon
    config: str
    over: bool = field(default=False, init=False)
    pages: list[bytes] = field(factory=list[bytes], init=False)

    async def churn(self) -> None:
        """One pod stays; of the others there is another set at each turn."""
        store, turn = self.daemon.datastore, 0
        while not self.over:
            turn += 1
            before = store.members.value
            specs = [spec(), *(self.pod(turn, number) for number in range(turn % 7))]
            store.apply(ReplaceEndpoints(specs))
            for endpoint in before:
                if endpoint not in store.members.value:
                    self.daemon.figures.forget(endpoint)
            values = {"waiting-queue-size": float(turn), "metrics-freshness": Freshness.FRESH}
            store.apply(ReportMetrics(store.members.value[-1].identity, values))
            if turn % 100 == 0:
                self.daemon.rewire(self.config % turn, "config.yaml")
            await checkpoint()

    def pod(self, turn: int, number: int) -> EndpointSpec:
        return spec(f"p{turn % 3}-{number}", f"10.0.{turn % 3}.{number}")

    async def scrape(self) -> None:
        while not self.over:
            page = await figures_page(self.daemon.figures.registry, Question("GET", "/metrics"))
            assert isinstance(page.body, bytes)
            self.pages.append(page.body)

    async def look(self) -> None:
        while not self.over:
            for read in self.daemon._debug_pages().values():
                json_response(read())
                await checkpoint()
            self.daemon.signals.look()

    async def talk(self, pages: int) -> list[Leisurely]:
        """Eight conversations at a time, until the figures were read so many times."""
        links: list[Leisurely] = []
        while len(self.pages) < pages:
            more = [Leisurely(conversation(len(links) + number)) for number in range(8)]
            async with anyio.create_task_group() as tasks:
                for link in more:
                    tasks.start_soon(self.daemon.server._converse, link)
            links += more
        self.over = True
        return links


async def test_g_07_nothing_is_walked_that_changes_meanwhile(
    make: Make, endpoints_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pods and the configuration change while requests are decided and figures are read."""
    flags = ("--bind-address=127.0.0.1", "--enable-grpc-stream-metrics")
    daemon = make(*flags, "--enable-deprecated-metrics")
    daemon.around.registry.register(Breather)
    bustle = Bustle(daemon, WALKED.replace("PATH", str(endpoints_file)))
    daemon.rewire(bustle.config % 0, "config.yaml")
    caplog.set_level(logging.WARNING)
    links: list[Leisurely] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon.listeners.run)
        for work in (bustle.churn, bustle.scrape, bustle.scrape, bustle.look):
            tasks.start_soon(work)
        links += await bustle.talk(pages=3)
        tasks.cancel_scope.cancel()
    assert all(len(link.replies) == 4 for link in links)
    assert b'model_name="m7"' in bustle.pages[-1]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not [one.name for one in daemon.wiring.value.installed.values() if one.failures]
