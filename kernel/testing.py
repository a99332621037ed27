"""The test kit for plugins: fake endpoints, requests, and plugins called as the kernel calls them.

One plugin alone, on a `Bench`. It gets a real view made from its declaration, so that touching
anything else raises as it does in the daemon; its exceptions come through::

    def test_the_shorter_queue_is_better() -> None:
        bench = Bench(MyScorer(), endpoints("a", "b"))
        assert bench.score({WAITING_QUEUE_SIZE: [3.0, 0.0]}) == [0.0, 1.0]

Several together, by the text of a configuration and on a pool that stands still::

    wiring = wired(CONFIG, MyScorer, MyProducer)
    outcome = decide(wiring, pool(endpoints("a", "b"), {WAITING_QUEUE_SIZE: [3.0, 0.0]}))
    assert outcome.decision.result.target.name == "b"

Nothing here needs a particular test runner or event loop, and chance is seeded.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, ClassVar, Final, final

from attrs import define, field, frozen

from .calls import Uncounted
from .candidates import Surroundings
from .config import read_config
from .datastore import Snapshot
from .defaults import (
    DEFAULT_EXTRACTOR,
    DEFAULT_HANDLER,
    DEFAULT_PARSERS,
    DEFAULT_PICKER,
    DEFAULT_SOURCE,
)
from .director import Outcome
from .keys import ABSENT, DataView, EndpointKey, EventKey, Frame, Key, Keys, keys
from .model import (
    CACHE_CONFIG,
    KV_CACHE_USAGE,
    LORA_ADAPTERS,
    MODEL_NAME,
    REQUEST_BODY,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Headers,
    Identity,
    Parsed,
    Request,
)
from .plugin import Results
from .registry import Registry, consumes_of, produces_of
from .state import PluginState
from .topic import Topics
from .wiring import Wiring, wire

Data = Mapping[Any, Any]
"""Values by key; for an endpoint key a column, with one entry per endpoint."""


def endpoint(
    name: str,
    *,
    address: str = "127.0.1.1",
    port: int = 8000,
    labels: Mapping[str, str] | None = None,
    uid: str = "",
) -> Endpoint:
    """A model server that nobody runs. Each call makes another identity, whatever its *uid*."""
    return Endpoint(
        identity=Identity(uid or name),
        name=name,
        pod=name,
        address=address,
        port=port,
        labels=labels or {},
    )


def endpoints(*names: str) -> tuple[Endpoint, ...]:
    """One endpoint for each name, with the addresses 127.0.1.1, 127.0.1.2, …"""
    return tuple(endpoint(name, address=f"127.0.1.{i}") for i, name in enumerate(names, 1))


def make_request(
    *,
    headers: Mapping[str, str] | None = None,
    path: str = "/v1/chat/completions",
    model: str = "",
    priority: int = 0,
    size: int = 0,
    subset: frozenset[str] | None = None,
) -> Request:
    """A request as plugins meet it. Names of *headers* are in lower case."""
    raw = {name: value.encode() for name, value in (headers or {}).items()}
    made = Request(Headers(raw), path)
    made.model = made.incoming_model = model
    made.priority, made.size, made.subset = priority, size, subset
    return made


@final
@frozen
class _Noted(Uncounted):
    violations: list[tuple[str, str]]

    def violated(self, point: str, key: str, access: str) -> None:
        self.violations.append((key, access))


@final
@define(eq=False)
class Bench:
    """One plugin with the endpoints and the request that it is asked about.

    What it keeps for the request lasts from call to call, until ``bench.request.end()``.
    """

    plugin: Any
    endpoints: Sequence[Endpoint] = ()
    request: Request = field(factory=make_request)
    state: PluginState = field(factory=lambda: PluginState("bench"), init=False)
    violations: list[tuple[str, str]] = field(factory=list[tuple[str, str]], init=False)
    """Key and verb of each undeclared access."""
    written: dict[Key, Any] = field(factory=dict[Key, Any], init=False)
    """What stands in the keys that the plugin produces, after its last call."""

    def score(self, data: Data | None = None) -> list[float | None]:
        return list(self.call("score", data, self.endpoints))

    def keep(self, data: Data | None = None) -> list[Endpoint]:
        """The endpoints that a filter keeps."""
        mask = self.call("keep", data, self.endpoints)
        return [e for e, kept in zip(self.endpoints, mask, strict=True) if kept]

    def pick(self, scores: Sequence[float], data: Data | None = None) -> list[Endpoint]:
        return list(self.call("pick", data, self.endpoints, scores))

    def produce_now(self, data: Data | None = None) -> Mapping[Key, Any]:
        """What a producer that does not wait writes."""
        self.call("produce", data, self.endpoints)
        return self.written

    async def produce(self, data: Data | None = None) -> Mapping[Key, Any]:
        """What a producer writes that may wait, here for as long as it likes."""
        with self.view(data) as view:
            waiting = self.plugin.produce(view, self.endpoints)
            if inspect.isawaitable(waiting):
                await waiting
        return self.written

    def call(self, method: str, data: Data | None = None, *arguments: object) -> Any:
        """Call a method of any role with a view of *data*, and *arguments* after it."""
        with self.view(data) as view:
            return getattr(self.plugin, method)(view, *arguments)

    @contextmanager
    def view(self, data: Data | None = None) -> Generator[DataView, None, None]:
        """The plugin's view of *data*, for the length of the block."""
        reads, writes = consumes_of(self.plugin).all, produces_of(self.plugin)
        slots = {key: slot for slot, key in enumerate(sorted(reads | writes, key=str))}
        values: list[Any] = [ABSENT] * len(slots)
        for key, value in (data or {}).items():
            self._check(key, value)
            if key in slots:
                values[slots[key]] = value
        written: dict[Key, int] = {k: slots[k] for k in writes if not isinstance(k, EventKey)}
        view = DataView("bench", slots, written, self.state, _Noted(self.violations))
        try:
            yield view.lend(Frame(self.request, values, self.endpoints), "")
        finally:
            view.close()
            found = {key: values[slot] for key, slot in written.items()}
            self.written = {key: value for key, value in found.items() if value is not ABSENT}

    def _check(self, key: Key, value: Any) -> None:
        if isinstance(key, EndpointKey) and len(value) != len(self.endpoints):
            raise ValueError(f"{key}: {len(value)} entries for {len(self.endpoints)} endpoints")


def surroundings(*classes: type[Any], topics: Topics | None = None) -> Surroundings:
    """What `wire` needs, with the plugin types *classes* and seeded chance.

    Picker, profile handler, parsers and data source are played by stand-ins (the best score,
    once, the whole JSON body, nothing) where none of *classes* has the name of the default.
    """
    registry = Registry()
    for plugin_class in classes:
        registry.register(plugin_class)
    for stand_in in _STAND_INS:
        if stand_in.type_name not in registry:
            registry.register(stand_in)
    return Surroundings(
        registry=registry, topics=topics or Topics(), random=Random(0), allow_experimental=True
    )


def wired(text: str, *classes: type[Any], before: Wiring | None = None) -> Wiring:
    """The plugins of a configuration *text*, put together as the daemon does it.

    Raises:
        ConfigError: with every mistake of the text.
    """
    return wire(read_config(text, "test"), surroundings(*classes), before)


def pool(endpoints: Sequence[Endpoint], columns: Data | None = None) -> Snapshot:
    """A pool that stands still, with what its endpoints report."""
    named = {key.name: tuple(column) for key, column in (columns or {}).items()}
    return Snapshot(1, tuple(endpoints), named)


def decide(
    wiring: Wiring, snapshot: Snapshot, request: Request | None = None, body: Data | None = None
) -> Outcome:
    """Where a request goes; *body* is what a parser would have read of it, by key.

    Raises:
        Refusal: it goes nowhere.
    """
    request = request or make_request()
    return wiring.director.decide_now(request, Parsed(request.model, body or {}), snapshot)


class _Best:
    """The first of those with the highest score."""

    type_name: ClassVar = DEFAULT_PICKER

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        return (endpoints[scores.index(max(scores))],)


class _Once:
    """Runs every profile once; the first that has a result counts."""

    type_name: ClassVar = DEFAULT_HANDLER

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return () if results else available

    def primary(self, data: DataView, results: Results) -> str:
        return next((name for name, result in results.items() if result), next(iter(results)))


class _Json:
    """Reads any body as JSON."""

    type_name: ClassVar = DEFAULT_PARSERS[0]
    produces: ClassVar = keys(MODEL_NAME, REQUEST_BODY)
    paths: ClassVar = ()

    def reader(self, path: str, wanted: Keys) -> Callable[[bytes], Parsed]:
        return _read_json


def _read_json(body: bytes) -> Parsed:
    values = json.loads(body)
    return Parsed(values.get("model"), {REQUEST_BODY: values})


class _Untouched:
    """Reads no body."""

    type_name: ClassVar = DEFAULT_PARSERS[-1]
    paths: ClassVar = ()

    def reader(self, path: str, wanted: Keys) -> None:
        return None


class _Nowhere:
    """A source of nothing."""

    type_name: ClassVar = DEFAULT_SOURCE

    def source(self) -> None:
        return None


class _Nothing:
    """Knows what metrics there are, and finds none."""

    type_name: ClassVar = DEFAULT_EXTRACTOR
    produces: ClassVar = keys(
        WAITING_QUEUE_SIZE, RUNNING_REQUESTS, KV_CACHE_USAGE, LORA_ADAPTERS, CACHE_CONFIG
    )

    def extractor(
        self, labels: Mapping[str, str], wanted: Keys
    ) -> Callable[[bytes], Mapping[Key, Any]]:
        return lambda text: dict.fromkeys(wanted)


_STAND_INS: Final = (_Best, _Once, _Json, _Untouched, _Nowhere, _Nothing)
