"""From a configuration to a running set of plugins: everything is checked here, at once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

from attrs import define, frozen

from .candidates import Candidate, Candidates, Surroundings
from .config import Config, PluginEntry, Profile
from .defaults import Shape, shape
from .director import PRODUCER_TIMEOUT, Director, Slots, TimedProducer
from .graph import Node, Plan, Problem, plan
from .installed import Installed
from .keys import DataKey, DataView, EndpointKey, EventKey, Key, Keys, Listens, keys, subscriptions
from .model import (
    MODEL_NAME,
    REQUEST_HEADERS,
    REQUEST_PATH,
    REQUEST_PRIORITY,
    REQUEST_SCHEDULED,
    REQUEST_SIZE,
    RESPONSE_CHUNK,
    RESPONSE_ENDED,
    RESPONSE_HEADERS,
    RESPONSE_USAGE,
    SERVED_ENDPOINT,
)
from .parsing import Routes, make_routes
from .plugin import Phase, Role
from .registry import consumes_of, deciders_of
from .scheduling import ProfileRunner, Scheduler, WeightedScorer
from .state import IDLE_THRESHOLD, PluginState


@final
@frozen(eq=False)
class Extraction:
    """One reader of fetched texts, and what it is asked for."""

    installed: Installed
    names: Mapping[Key, str]
    """The wanted keys, with the names under which they are published."""


@final
@frozen(eq=False)
class Listener:
    """A plugin's method that hears of events."""

    installed: Installed
    listens: Listens
    topic: str
    """The published name of the event."""


@final
@frozen(eq=False)
class Collection:
    """What is fetched from endpoints by one source, and who reads it."""

    source: Installed
    extractions: tuple[Extraction, ...]
    """Only those that somebody wants something of: without any, nothing is fetched."""


@final
@frozen(kw_only=True)
class Processing:
    """What the plugins make it necessary to look at; everything else is left alone."""

    body: bool
    """Some request bodies are read."""
    response_headers: bool
    response_chunks: bool
    usage: bool
    response_end: bool
    endpoint_values: frozenset[str]
    """What has to be known of endpoints."""

    @property
    def response(self) -> bool:
        """Whether the response has to pass by."""
        return self.response_headers or self.response_chunks or self.usage


@final
@frozen(kw_only=True, eq=False)
class Wiring:
    """A configuration at work."""

    config: Config
    entries: tuple[PluginEntry, ...]
    """The plugins in use: configured ones first, then what was added."""
    added: Mapping[str, str]
    """Why a plugin that nobody configured is there, by name."""
    installed: Mapping[str, Installed]
    roles: Mapping[str, frozenset[Role]]
    """What each plugin can be, by name."""
    plan: Plan
    shape: Shape
    collections: tuple[Collection, ...]
    listeners: tuple[Listener, ...]
    services: tuple[Installed, ...]
    """Plugins with work of their own beside the requests."""
    discovery: Installed | None
    routes: Routes
    director: Director
    processing: Processing
    warnings: tuple[str, ...]


def wire(config: Config, around: Surroundings, before: Wiring | None = None) -> Wiring:
    """Put the plugins of *config* together.

    Plugins whose entry did not change since *before* go on with their instance and state.

    Raises:
        ConfigError: with every mistake of the document.
    """
    candidates = Candidates(config, around, before)
    candidates.take_configured()
    parts = shape(candidates)
    made = _plan(candidates, parts)
    config.document.refuse_if_mistaken()
    if made is None:
        raise AssertionError("a plan that could not be made is a mistake in the document")
    return _Assembly(candidates, parts, made, before).wiring()


def _plan(candidates: Candidates, parts: Shape) -> Plan | None:
    """Plugins take part by being configured, parsers and extractors by being listed."""
    only_listed = {Role.PARSER, Role.EXTRACTOR}
    outcome = plan(
        c.node
        for c in candidates
        if c.entry.instance in parts.listed or not only_listed & c.node.roles
    )
    if isinstance(outcome, Plan):
        return outcome
    for problem in outcome:
        _blame(candidates, problem)
    return None


def _blame(candidates: Candidates, problem: Problem) -> None:
    candidate = candidates.get(problem.plugin)
    path = candidate.entry.at if candidate is not None else ()
    candidates.blame(path, problem.message, problem.hint)


@final
@define(eq=False)
class _Assembly:
    """Builds the running parts once nothing is wrong any more."""

    candidates: Candidates
    parts: Shape
    plan: Plan
    before: Wiring | None

    def wiring(self) -> Wiring:
        installed = {c.entry.instance: self._install(c) for c in self.candidates}
        for one in installed.values():
            one.view.deciders = {n: installed[n].decides for n in deciders_of(one.plugin)}
        parsers = [(name, installed[name].plugin) for name in self.parts.parsers]
        routes = make_routes(parsers, self._body_keys())
        director = self._director(installed)
        return Wiring(
            config=self.candidates.config,
            entries=tuple(c.entry for c in self.candidates),
            added=self.candidates.added,
            installed=installed,
            roles={c.entry.instance: c.node.roles for c in self.candidates},
            plan=self.plan,
            shape=self.parts,
            collections=self._collections(installed),
            listeners=tuple(self._listeners(installed)),
            services=tuple(installed[n] for n in self.candidates.with_role(Role.SERVICE)),
            discovery=installed[self.parts.discovery] if self.parts.discovery else None,
            routes=routes,
            director=director,
            processing=_processing(self.plan, director, routes),
            warnings=(*self.candidates.config.warnings, *self.candidates.warnings),
        )

    def _listeners(self, installed: Mapping[str, Installed]) -> Iterator[Listener]:
        for candidate in self.candidates:
            for listens in subscriptions(candidate.type.plugin_class):
                topic = candidate.node.reads.get(listens.key)
                if topic is not None:  # the configuration may have narrowed it away
                    yield Listener(installed[candidate.node.name], listens, topic)

    def _collections(self, installed: Mapping[str, Installed]) -> tuple[Collection, ...]:
        wanted = set(self._snapshot_names())

        def extraction(name: str) -> Extraction:
            produced = self.candidates[name].node.produces
            return Extraction(installed[name], {k: n for k, n in produced.items() if n in wanted})

        return tuple(
            Collection(
                installed[source],
                tuple(made for made in map(extraction, extractors) if made.names),
            )
            for source, extractors in self.parts.sources
        )

    def _install(self, candidate: Candidate) -> Installed:
        node, slots = candidate.node, self.plan.slots
        writes = {key: slots[name] for key, name in node.produces.items() if name in slots}
        # What nobody produces, or the configuration left out, reads as absent.
        absent = dict.fromkeys(consumes_of(candidate.plugin).all, len(slots))
        reads = {key: slots[name] for key, name in node.reads.items() if name in slots}
        state = self._state(candidate)
        calls = self.candidates.around.calls_of(candidate.type.name, node.name)
        view = DataView(node.name, {**absent, **writes, **reads}, writes, state, calls)
        return Installed(node.name, candidate.type.name, candidate.plugin, view, state, calls)

    def _state(self, candidate: Candidate) -> PluginState:
        """The state of the same instance in the wiring before, if it goes on."""
        old = self.before.installed.get(candidate.node.name) if self.before is not None else None
        if old is not None and old.plugin is candidate.plugin:
            return old.state
        threshold = float(getattr(candidate.plugin, "state_idle_seconds", IDLE_THRESHOLD))
        return PluginState(candidate.node.name, threshold)

    def _body_keys(self) -> Keys:
        """What parsers have to read; the model's name always, to refuse requests without."""
        return keys(MODEL_NAME, *(self.plan.keys[name] for name in self._body_names()))

    def _body_names(self) -> frozenset[str]:
        parsers = (self.candidates[name].node for name in self.parts.parsers)
        produced = {name for node in parsers for name in node.produces.values()}
        return self.plan.consumed & produced

    def _director(self, installed: Mapping[str, Installed]) -> Director:
        def playing(role: Role) -> tuple[Installed, ...]:
            names = (n for n in self.plan.order if role in self.candidates[n].node.roles)
            return tuple(installed[name] for name in names)

        profiles = {p.name: self._runner(p, installed) for p in self.parts.profiles}
        return Director(
            slots=self._slots(),
            scheduler=Scheduler(installed[self.parts.handler], profiles),
            detector=installed[self.parts.detector] if self.parts.detector else None,
            hooks=playing(Role.REQUEST_HOOK),
            screeners=playing(Role.SCREENER),
            producers=tuple(_timed(one) for one in playing(Role.PRODUCER)),
            admitters=playing(Role.ADMITTER),
            pre_request=playing(Role.PRE_REQUEST),
            at_response_headers=playing(Role.RESPONSE_HEADERS),
            at_response_chunk=playing(Role.RESPONSE_CHUNK),
            at_response_end=playing(Role.RESPONSE_END),
            scheduled=self._topic(REQUEST_SCHEDULED),
            response_ended=self._topic(RESPONSE_ENDED),
        )

    def _topic(self, key: EventKey[Any]) -> Any:
        """The topic of an event, if somebody listens."""
        topics = self.candidates.around.topics
        return topics.topic(key.name) if key.name in self.plan.consumed else None

    def _runner(self, profile: Profile, installed: Mapping[str, Installed]) -> ProfileRunner:
        picker = self.parts.pickers[profile.name]
        filters: list[Installed] = []
        scorers: list[WeightedScorer] = []
        for reference in profile.plugins:
            roles = self.candidates[reference.plugin_ref].node.roles
            one = installed[reference.plugin_ref]
            if Role.FILTER in roles:
                filters.append(one)
            if Role.SCORER in roles:
                weight = 1.0 if reference.weight is None else reference.weight
                scorers.append(WeightedScorer(one, weight))
        readers = {*(r.plugin_ref for r in profile.plugins), picker}
        nodes = [self.candidates[name].node for name in sorted(readers)]
        return ProfileRunner(
            profile.name,
            tuple(filters),
            tuple(scorers),
            installed[picker],
            self._columns(nodes),
            self._writes(nodes),
        )

    def _writes(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        """The slots of the request's data that *nodes* write while they schedule."""
        slots = self.plan.slots
        return tuple(
            slots[name]
            for node in nodes
            if node.writes_in is Phase.SCHEDULE
            for key, name in node.produces.items()
            if isinstance(key, DataKey)
        )

    def _columns(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        """The slots of per-endpoint data that *nodes* read or write."""
        slots, known = self.plan.slots, self.plan.keys
        names = {n for node in nodes for n in (*node.reads.values(), *node.produces.values())}
        return tuple(sorted(slots[n] for n in names if isinstance(known.get(n), EndpointKey)))

    def _slots(self) -> Slots:
        slots = self.plan.slots
        parsers = (self.candidates[name].node for name in self.parts.parsers)
        body = {key: name for node in parsers for key, name in node.produces.items()}
        read = self._body_names() - {MODEL_NAME.name}
        return Slots(
            count=len(slots) + 1,  # the last one stays absent
            endpoint_columns={name: slots[name] for name in self._snapshot_names()},
            column_slots=self._columns(c.node for c in self.candidates),
            headers=slots.get(REQUEST_HEADERS.name),
            path=slots.get(REQUEST_PATH.name),
            size=slots.get(REQUEST_SIZE.name),
            priority=slots.get(REQUEST_PRIORITY.name),
            model=slots.get(MODEL_NAME.name),
            body={key.name: slots[name] for key, name in body.items() if name in read},
            response_headers=slots.get(RESPONSE_HEADERS.name),
            served_endpoint=slots.get(SERVED_ENDPOINT.name),
            response_chunk=slots.get(RESPONSE_CHUNK.name),
            usage=slots.get(RESPONSE_USAGE.name),
        )

    def _snapshot_names(self) -> list[str]:
        """What is read of endpoints and comes from outside, not from a producer's request."""
        written = {
            name
            for c in self.candidates
            if c.node.writes_in > Phase.OUTSIDE
            for name in c.node.produces.values()
        }
        known = self.plan.keys
        names = self.plan.consumed - written
        return sorted(name for name in names if isinstance(known[name], EndpointKey))


def _timed(installed: Installed) -> TimedProducer:
    plugin = installed.plugin
    waits = bool(getattr(plugin, "waits", inspect.iscoroutinefunction(plugin.produce)))
    timeout = float(getattr(plugin, "timeout", PRODUCER_TIMEOUT))
    return TimedProducer(installed, waits, timeout)


def _processing(made: Plan, director: Director, routes: Routes) -> Processing:
    consumed = made.consumed
    return Processing(
        body=routes.reads_bodies,
        response_headers=bool(director.at_response_headers)
        or not consumed.isdisjoint((RESPONSE_HEADERS.name, SERVED_ENDPOINT.name)),
        response_chunks=bool(director.at_response_chunk) or RESPONSE_CHUNK.name in consumed,
        usage=RESPONSE_USAGE.name in consumed,
        response_end=bool(director.at_response_end) or director.response_ended is not None,
        endpoint_values=frozenset(director.slots.endpoint_columns),
    )
