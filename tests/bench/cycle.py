"""What a pick costs inside the daemon, without the network: the cycle, and one checked read.

Plugins are timed as the daemon times them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from time import process_time
from typing import Any, ClassVar, Final

from pointsman import plugins
from pointsman.actors.call_figures import CallFigures
from pointsman.kernel.candidates import Surroundings
from pointsman.kernel.config import read_config
from pointsman.kernel.datastore import Datastore, EndpointSpec, ReplaceEndpoints, ReportMetrics
from pointsman.kernel.keys import Consumes, DataView, EndpointKey, keys
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import Endpoint, Freshness, Headers, Parsed, Request, RequestEnd
from pointsman.kernel.plugin import Role
from pointsman.kernel.registry import Registry
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring, wire

MATCH: Final = EndpointKey("stand-in-match", float)
SECONDS: Final = 0.25
"""CPU time that each row is measured for."""
POOLS: Final = (10, 100, 1000)
CONFIG: Final = """
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-stand-in-producer
- type: prefix-stand-in-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-stand-in-scorer, weight: 3}
  - {pluginRef: max-score-picker}
"""


class StandInProducer:
    """Writes a match for each endpoint, as a prefix index would."""

    type_name: ClassVar = "prefix-stand-in-producer"
    produces: ClassVar = keys(MATCH)

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        data[MATCH] = [0.5] * len(endpoints)


class StandInScorer:
    """Scores the match, as the prefix scorer would."""

    type_name: ClassVar = "prefix-stand-in-scorer"
    consumes: ClassVar = Consumes(MATCH)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float | None]:
        match = data[MATCH]
        return match  # noqa: RET504 (mypy infers the key's type from the return type otherwise)


class StandInWitness:
    """Reads the match at the end, so that it outlives the decision."""

    type_name: ClassVar = "prefix-stand-in-witness"
    consumes: ClassVar = Consumes(MATCH)

    def on_response_end(self, data: DataView, end: RequestEnd) -> None: ...


def rows() -> list[tuple[str, float]]:
    """Name and CPU microseconds per operation."""
    wiring = _wiring()
    cycles = [(f"cycle, {size} endpoints", _cycle(wiring, size)) for size in POOLS]
    watched = _wiring(
        CONFIG.replace("plugins:\n", "plugins:\n- type: prefix-stand-in-witness\n", 1)
    )
    return [*cycles, ("a checked read of declared data", _read(watched))]


def _wiring(config: str = CONFIG) -> Wiring:
    registry = Registry()
    for plugin_class in (*plugins.BUILT_IN, StandInProducer, StandInScorer, StandInWitness):
        registry.register(plugin_class)
    around = Surroundings(
        registry=registry, topics=Topics(), random=Random(1), calls_of=CallFigures().of
    )
    return wire(read_config(config, "bench"), around)


def _cycle(wiring: Wiring, size: int) -> float:
    """From the parsed request to the decision."""
    store = make_pool(wiring, size)
    request, parsed = Request(Headers({})), Parsed("m")
    director, snapshot = wiring.director, store.snapshot
    return timed(lambda: director.decide_now(request, parsed, snapshot))


def make_pool(wiring: Wiring, size: int, more: Mapping[str, Any] | None = None) -> Datastore:
    """Endpoints with load, and with *more* values for each."""
    inbox = Mailbox[Any].open("datastore", capacity=1)
    inbox.close()
    store = Datastore(inbox, Topics())
    store.track(wiring.processing.endpoint_values)
    names = [f"pod-{number}" for number in range(size)]
    store.apply(
        ReplaceEndpoints(
            [EndpointSpec(uid=name, name=name, address="10.0.0.1", port=1) for name in names]
        )
    )
    random = Random(1)
    for endpoint in store.members.value:
        values = {
            "waiting-queue-size": float(random.randrange(5)),
            "kv-cache-usage": random.random(),
            "metrics-freshness": Freshness.FRESH,
            **(more or {}),
        }
        store.apply(ReportMetrics(endpoint.identity, values))
    return store


def _read(wiring: Wiring) -> float:
    """Less an empty call, so that the figure is the read's own."""
    installed = wiring.installed["prefix-stand-in-witness"]
    store = make_pool(wiring, 10)
    request, parsed = Request(Headers({})), Parsed("m")
    outcome = wiring.director.decide_now(request, parsed, store.snapshot)
    view = installed.view.lend(outcome.frame, Role.RESPONSE_END)
    return timed(lambda: view[MATCH]) - timed(lambda: None)


def timed(operation: Callable[[], object]) -> float:
    """CPU microseconds of one *operation*, the mean of as many as fit into `SECONDS`."""
    count, used = 0, 0.0
    batch = 16
    while used < SECONDS:
        started = process_time()
        for _ in range(batch):
            operation()
        used += process_time() - started
        count += batch
        batch = min(batch * 2, 4096)
    return used / count * 1e6
