"""Plugin entries of a configuration, made into plugins one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Protocol, final

from attrs import define, field, frozen

from .calls import Calls, uncounted
from .config import Config, PluginEntry, Reference
from .document import Path
from .graph import Node
from .installed import Installed
from .keys import Consumes, Key, subscriptions
from .plugin import Role
from .registry import (
    PluginType,
    Registry,
    Stability,
    UnknownType,
    consumes_of,
    did_you_mean,
    produces_of,
)
from .structure import structure
from .topic import Topics


@final
@frozen(kw_only=True)
class Surroundings:
    """What plugins are built with, and whom the kernel tells about them."""

    registry: Registry
    topics: Topics
    random: Random
    allow_experimental: bool = False
    calls_of: Callable[[str, str], Calls] = uncounted
    """Who keeps figures of the plugin of a type and a name."""


class Before(Protocol):
    """The plugins of an earlier wiring, whose unchanged ones go on."""

    @property
    def entries(self) -> tuple[PluginEntry, ...]: ...
    @property
    def installed(self) -> Mapping[str, Installed]: ...


@final
@frozen(eq=False)
class Candidate:
    """An entry on its way to being installed."""

    entry: PluginEntry
    type: PluginType
    plugin: object
    node: Node


@final
@define(eq=False)
class Candidates:
    """The plugins of one configuration by name; mistakes are noted in its document."""

    config: Config
    around: Surroundings
    before: Before | None = None
    added: dict[str, str] = field(factory=dict[str, str], init=False)
    """Why a plugin that nobody configured is there, by name."""
    warnings: list[str] = field(factory=list[str], init=False)
    _by_name: dict[str, Candidate] = field(factory=dict[str, Candidate], init=False)

    def __getitem__(self, name: str) -> Candidate:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Candidate | None:
        return self._by_name.get(name)

    def with_role(self, *roles: Role) -> list[str]:
        """The names of those that have one of *roles*, in the configuration's order."""
        wanted = frozenset(roles)
        return [name for name, c in self._by_name.items() if wanted & c.node.roles]

    def blame(self, path: Path, message: str, hint: str = "") -> None:
        self.config.document.blame(path, message, hint)

    def take_configured(self) -> None:
        for entry in self.config.settings.plugins:
            if entry.instance in self._by_name:
                self.blame((*entry.at, "name"), f"the name {entry.instance!r} is taken already")
                continue
            candidate = self._candidate(entry)
            if candidate is not None:
                self._by_name[entry.instance] = candidate

    def _candidate(self, entry: PluginEntry) -> Candidate | None:
        try:
            plugin_type = self.around.registry.find(entry.type)
        except UnknownType as exc:
            hint = did_you_mean(entry.type, exc.nearest)
            self.blame((*entry.at, "type"), str(exc), hint)
            return None
        self._judge(entry, plugin_type)
        document = self.config.document
        at = (*entry.at, "parameters")
        before = len(document.mistakes)
        parameters = structure(document, entry.parameters, plugin_type.parameters, at)
        if parameters is None or len(document.mistakes) > before:
            return None
        kept = self._kept(entry, plugin_type)
        try:
            plugin = kept or plugin_type.make(parameters, self.around.random)
        except ValueError as exc:
            self.blame(at, str(exc))
            return None
        node = self._node(entry, plugin_type, plugin)
        return Candidate(entry, plugin_type, plugin, node)

    def _judge(self, entry: PluginEntry, plugin_type: PluginType) -> None:
        if entry.type in plugin_type.aliases:
            self.warnings.append(
                f"plugin type {entry.type!r} is deprecated: {plugin_type.aliases[entry.type]}"
            )
        if plugin_type.stability is Stability.ALPHA and not self.around.allow_experimental:
            message = f"plugin {entry.instance!r} is of the experimental type {plugin_type.name!r}"
            self.blame((*entry.at, "type"), message, "start with --allow-experimental-plugins")

    def _kept(self, entry: PluginEntry, plugin_type: PluginType) -> object:
        """The instance of the previous wiring, where nothing about it changed."""
        if self.before is None:
            return None
        for old in self.before.entries:
            if old == entry and (installed := self.before.installed.get(old.instance)):
                same = isinstance(installed.plugin, plugin_type.plugin_class)
                return installed.plugin if same else None
        return None

    def _node(self, entry: PluginEntry, plugin_type: PluginType, plugin: object) -> Node:
        events = [listens.key for listens in subscriptions(plugin_type.plugin_class)]
        read = consumes_of(plugin)
        declared = Consumes(*read.required, optional=read.optional | frozenset(events))
        chosen = entry.consumes
        own = {key.name: key for key in declared.all}
        produced = {key.name: key for key in produces_of(plugin)}
        self._check_names(entry, "consumes", chosen.only or chosen.bound, own)
        self._check_names(entry, "produces", entry.produces, produced)
        if chosen.only is not None:
            for key in sorted(declared.required, key=str):
                if key.name not in chosen.only:
                    message = f"{entry.instance!r} cannot do without {key.name!r}"
                    self.blame((*entry.at, "consumes"), message)

        def bound(wanted: Iterable[Key]) -> Mapping[Key, str]:
            return {
                key: chosen.bound.get(key.name, self._legacy_binding(entry, plugin, key))
                for key in wanted
                if chosen.only is None or key.name in chosen.only
            }

        return Node(
            name=entry.instance,
            roles=plugin_type.roles - getattr(plugin, "idle_roles", frozenset[Role]()),
            required=bound(declared.required),
            optional=bound(declared.optional - declared.required),
            produces={key: entry.produces.get(name, name) for name, key in produced.items()},
        )

    def _legacy_binding(self, entry: PluginEntry, plugin: object, key: Key) -> str:
        """The published name that a ``...ProducerName`` parameter asks for, if it does."""
        bindings: Mapping[str, str] = getattr(plugin, "producer_names", {})
        producer = bindings.get(key.name)
        if not producer:
            return key.name
        for other in self.config.settings.plugins:
            if other.instance == producer:
                return other.produces.get(key.name, key.name)
        if producer not in self.around.registry:  # or it is added by default, under its own name
            self.blame_missing((*entry.at, "parameters"), producer)
        return key.name

    def _check_names(
        self, entry: PluginEntry, which: str, names: Iterable[str], known: Mapping[str, Key]
    ) -> None:
        for name in sorted(names):
            if name not in known:
                declared = ", ".join(sorted(known)) or "nothing"
                message = f"plugin type {entry.type!r} does not know the key {name!r}"
                hint = did_you_mean(name, known) or f"it {which} {declared}"
                self.blame((*entry.at, which), message, hint)

    def add(self, type_name: str, why: str) -> str:
        """Make sure that a plugin of that type is there; its name."""
        if type_name not in self._by_name:
            candidate = self._candidate(PluginEntry(type=type_name, at=(type_name,)))
            if candidate is not None:
                self._by_name[type_name] = candidate
                self.added[type_name] = why
        return type_name

    def named(self, reference: Reference | None, role: Role, what: str) -> str | None:
        """The plugin that *reference* names, if it has the *role*."""
        if reference is None:
            return None
        candidate = self._by_name.get(reference.plugin_ref)
        where = (*reference.at, "pluginRef")
        if candidate is None:
            self.blame_missing(where, reference.plugin_ref)
            return None
        if role not in candidate.node.roles:
            self.blame(where, f"{reference.plugin_ref!r} is no {what}")
            return None
        return reference.plugin_ref

    def blame_missing(self, where: Path, name: str) -> None:
        """Complain that nothing is named *name*, unless its entry is wrong in itself already."""
        configured = [entry.instance for entry in self.config.settings.plugins]
        if name not in configured:
            listed = "list it under `plugins`" if name in self.around.registry else ""
            hint = listed or did_you_mean(name, configured)
            self.blame(where, f"no plugin is named {name!r}", hint)
