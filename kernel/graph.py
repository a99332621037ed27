"""The graph of declared data: who writes what for whom, checked before anything runs.

`plan` gives every published name a slot, orders the plugins so that data is written before it
is read (optional reads included), and says what the kernel itself has to supply. Whatever does
not fit comes back as problems that name both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, cast, final, get_origin

from attrs import field, frozen

from .keys import DataKey, EndpointKey, EventKey, Key
from .model import (
    FRESHNESS,
    POD_ADDED,
    POD_DELETED,
    POD_UPDATED,
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
from .plugin import PHASES, Phase, Role
from .registry import did_you_mean

KERNEL: Final = "kernel"
_BESIDE: Final = frozenset({Role.SERVICE, Role.REPORTER})
"""Roles in which a plugin meets no request, and reads and writes nothing of any."""


@final
@frozen(kw_only=True)
class Node:
    """One plugin instance, as the graph sees it."""

    name: str
    roles: frozenset[Role]
    required: Mapping[Key, str] = field(factory=dict[Key, str])
    """Keys that it must be able to read, and the published name that each is bound to."""
    optional: Mapping[Key, str] = field(factory=dict[Key, str])
    produces: Mapping[Key, str] = field(factory=dict[Key, str])

    @property
    def reads(self) -> Mapping[Key, str]:
        return {**self.required, **self.optional}

    @property
    def phases(self) -> frozenset[Phase]:
        return frozenset(PHASES[role] for role in self.roles - _BESIDE)

    @property
    def writes_in(self) -> Phase:
        """The phase in which others may start to read what it produces."""
        if Role.PRODUCER in self.roles:
            return Phase.PRODUCE
        return min(self.phases, default=Phase.OUTSIDE)


@final
@frozen
class Problem:
    """Something that makes the graph unusable; *plugin* is where to look."""

    plugin: str
    message: str
    hint: str = ""
    key: str = ""


@final
@frozen
class Edge:
    """*consumer* reads what *producer* writes under the published name *key*."""

    producer: str
    consumer: str
    key: str
    required: bool


@final
@frozen(kw_only=True)
class Plan:
    """A graph that holds together."""

    slots: Mapping[str, int]
    """A place in the request's values for each published name that is written or read."""
    keys: Mapping[str, Key]
    """The producer's own key object of each published name."""
    order: tuple[str, ...]
    """Plugins so that each comes after those whose data it reads; else as configured."""
    edges: tuple[Edge, ...]
    unmet: Mapping[str, tuple[str, ...]]
    """Optional keys that nobody produces, by plugin."""
    unused: Mapping[str, tuple[str, ...]]
    """Products that nobody reads, by plugin."""
    consumed: frozenset[str]
    """Every published name that somebody reads."""


KERNEL_KEYS: Final[Mapping[Key, Phase]] = {
    REQUEST_HEADERS: Phase.OUTSIDE,
    REQUEST_PATH: Phase.OUTSIDE,
    FRESHNESS: Phase.OUTSIDE,
    REQUEST_SIZE: Phase.PARSE,
    REQUEST_PRIORITY: Phase.PARSE,
    RESPONSE_HEADERS: Phase.RESPONSE_HEADERS,
    SERVED_ENDPOINT: Phase.RESPONSE_HEADERS,
    RESPONSE_CHUNK: Phase.RESPONSE_CHUNK,
    RESPONSE_USAGE: Phase.RESPONSE_END,
    POD_ADDED: Phase.OUTSIDE,
    POD_UPDATED: Phase.OUTSIDE,
    POD_DELETED: Phase.OUTSIDE,
    REQUEST_SCHEDULED: Phase.OUTSIDE,
    RESPONSE_ENDED: Phase.OUTSIDE,
}
"""What the kernel itself publishes, and from which phase of a request on it can be read."""


@final
@frozen
class _Source:
    """Where a published name comes from."""

    owner: str
    key: Key
    phase: Phase


def plan(nodes: Iterable[Node]) -> Plan | Sequence[Problem]:
    """Check and order *nodes*; the problems instead, when there are any."""
    nodes = tuple(nodes)
    sources: dict[str, _Source] = {
        key.name: _Source(KERNEL, key, phase) for key, phase in KERNEL_KEYS.items()
    }
    problems = list(_collect(nodes, sources))
    for node in nodes:
        problems += _check_reads(node, sources)
    edges = tuple(_edges(nodes, sources))
    order, cycle = _order(nodes, edges, sources)
    problems += cycle
    if problems:
        return problems
    consumed = frozenset(name for node in nodes for name in node.reads.values() if name in sources)
    names = sorted(consumed | {name for node in nodes for name in node.produces.values()})
    values = [name for name in names if not isinstance(sources[name].key, EventKey)]
    return Plan(
        slots={name: slot for slot, name in enumerate(values)},
        keys={name: sources[name].key for name in names},
        order=order,
        edges=edges,
        unmet=_unmet(nodes, sources),
        unused=_unused(nodes, consumed),
        consumed=consumed,
    )


def missing(nodes: Iterable[Node]) -> Mapping[str, Key]:
    """The required names that neither a node nor the kernel supplies, with their keys."""
    nodes = tuple(nodes)
    supplied = {key.name for key in KERNEL_KEYS}
    supplied |= {name for node in nodes for name in node.produces.values()}
    return {
        name: key for node in nodes for key, name in node.required.items() if name not in supplied
    }


def _collect(nodes: Sequence[Node], sources: dict[str, _Source]) -> Iterator[Problem]:
    """Note what each node produces; two producers of one name are a problem."""
    for node in nodes:
        twice: dict[str, list[str]] = {}
        for key, name in sorted(node.produces.items(), key=lambda item: item[1]):
            other = sources.get(name)
            if other is None:
                sources[name] = _Source(node.name, key, node.writes_in)
            elif not (Role.PARSER in node.roles and _is_parsers(other, nodes)):
                # Parsers share their keys: one request is read by one of them.
                twice.setdefault(other.owner, []).append(name)
        for owner, names in twice.items():
            listed = ", ".join(map(repr, names))
            message = f"{listed} produced by {owner!r} and by {node.name!r}"
            hint = "rename what one of them publishes with `produces`"
            yield Problem(node.name, message, hint, names[0])


def _is_parsers(source: _Source, nodes: Sequence[Node]) -> bool:
    return any(node.name == source.owner and Role.PARSER in node.roles for node in nodes)


def _check_reads(node: Node, sources: Mapping[str, _Source]) -> Iterator[Problem]:
    for key, name in sorted(node.reads.items(), key=lambda item: item[1]):
        source = sources.get(name)
        if source is None:
            if key in node.required:
                message = f"{node.name!r} requires {name!r}, which no enabled plugin produces"
                yield Problem(node.name, message, did_you_mean(name, sources), name)
        elif (misfit := _misfit(key, source.key)) is not None:
            message = f"{node.name!r} reads {name!r} as {misfit[0]}, {source.owner!r} writes "
            yield Problem(node.name, message + misfit[1], key=name)
        elif node.phases and max(node.phases) < source.phase:
            message = (
                f"{node.name!r} reads {name!r} while {_spell(max(node.phases))}, "
                f"but {source.owner!r} writes it only {_spell(source.phase)}"
            )
            yield Problem(node.name, message, key=name)


def _misfit(wanted: Key, given: Key) -> tuple[str, str] | None:
    """How reader and writer describe the value, when the one cannot take the other's."""
    if type(wanted) is type(given) and _takes(wanted.type, given.type):
        return None
    return _describe(wanted), _describe(given)


def _takes(wanted: Any, given: Any) -> bool:
    """Whether a *given* is a *wanted*. Generics are compared whole: ``dict[str, int]``."""
    if get_origin(wanted) is not None:
        return bool(wanted == given)
    return issubclass(get_origin(given) or given, wanted)


def _describe(key: Key) -> str:
    scope = {DataKey: "one", EndpointKey: "per endpoint a", EventKey: "events of"}[type(key)]
    return f"{scope} {key.type.__name__}"


_SPELLED: Final[Mapping[Phase, str]] = {
    Phase.OUTSIDE: "before the request",
    Phase.PARSE: "reading the body",
    Phase.REQUEST: "before scheduling",
    Phase.SCREEN: "screening",
    Phase.PRODUCE: "producing",
    Phase.ADMIT: "admitting",
    Phase.SCHEDULE: "scheduling",
    Phase.PRE_REQUEST: "after the decision",
    Phase.RESPONSE_HEADERS: "when the response begins",
    Phase.RESPONSE_CHUNK: "during the response",
    Phase.RESPONSE_END: "when the response ends",
}


def _spell(phase: Phase) -> str:
    return _SPELLED[phase]


def _edges(nodes: Sequence[Node], sources: Mapping[str, _Source]) -> Iterator[Edge]:
    for node in nodes:
        for key, name in sorted(node.reads.items(), key=lambda item: item[1]):
            source = sources.get(name)
            if source is not None and source.owner != node.name:
                yield Edge(source.owner, node.name, name, key in node.required)


def _order(
    nodes: Sequence[Node], edges: Iterable[Edge], sources: Mapping[str, _Source]
) -> tuple[tuple[str, ...], list[Problem]]:
    """Only edges inside one phase bind: phases themselves follow each other anyway."""
    position = {node.name: index for index, node in enumerate(nodes)}
    phases = {node.name: node.phases for node in nodes}
    sorter: TopologicalSorter[str] = TopologicalSorter({node.name: () for node in nodes})
    for edge in edges:
        if edge.producer != KERNEL and sources[edge.key].phase in phases[edge.consumer]:
            sorter.add(edge.consumer, edge.producer)
    try:
        sorter.prepare()
    except CycleError as exc:
        path = cast("list[str]", exc.args[1])
        message = "plugins wait for each other's data: " + " -> ".join(path)
        return (), [Problem(path[0], message)]
    order: list[str] = []
    ready: list[str] = []
    while sorter.is_active():
        ready = sorted((*ready, *sorter.get_ready()), key=position.__getitem__)
        order.append(ready.pop(0))
        sorter.done(order[-1])
    return tuple(order), []


def _unmet(nodes: Iterable[Node], sources: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    found = {
        node.name: tuple(sorted(name for name in node.optional.values() if name not in sources))
        for node in nodes
    }
    return {plugin: names for plugin, names in found.items() if names}


def _unused(nodes: Iterable[Node], consumed: frozenset[str]) -> Mapping[str, tuple[str, ...]]:
    """Products nobody reads. Parsers and extractors are only asked for what is read."""
    quiet = {Role.PARSER, Role.EXTRACTOR}
    found = {
        node.name: tuple(sorted(set(node.produces.values()) - consumed))
        for node in nodes
        if not quiet & node.roles
    }
    return {plugin: names for plugin, names in found.items() if names}
