"""Plugin types by name: what is built in and what entry points bring, by one register."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from random import Random
from typing import Any, Final, cast, final, get_type_hints

import attrs
from attrs import define, field, frozen

from .errors import KernelError, RoleError, TypeTaken
from .keys import Consumes, Keys, keys, subscriptions
from .plugin import Role, roles_of

ENTRY_POINT_GROUP: Final = "pointsman.plugins"


class Stability(enum.Enum):
    """How much a plugin type may still change."""

    ALPHA = "alpha"
    """Needs ``--allow-experimental-plugins``."""
    BETA = "beta"
    STABLE = "stable"


@final
@frozen
class NoParameters:
    """The parameters of a plugin that takes none."""


@final
@frozen(kw_only=True)
class PluginType:
    """A plugin class as the kernel sees it."""

    name: str
    plugin_class: type[Any]
    roles: frozenset[Role]
    parameters: type[Any] = NoParameters
    """A frozen attrs class; its fields are what the configuration may say."""
    parameters_argument: str | None = None
    random_argument: str | None = None
    stability: Stability = Stability.STABLE
    aliases: Mapping[str, str] = field(factory=dict[str, str])
    """Deprecated names, and what to say about each."""

    @property
    def origin(self) -> str:
        return f"{self.plugin_class.__module__}.{self.plugin_class.__qualname__}"

    @property
    def summary(self) -> str:
        """The first line of the class's docstring."""
        return (inspect.getdoc(self.plugin_class) or "").partition("\n")[0]

    def make(self, parameters: object, random: Random) -> object:
        """A new plugin. Raises ValueError when the parameters do not go together."""
        arguments: dict[str, object] = {}
        if self.parameters_argument is not None:
            arguments[self.parameters_argument] = parameters
        if self.random_argument is not None:
            arguments[self.random_argument] = random
        return self.plugin_class(**arguments)


def describe(plugin_class: type[Any]) -> PluginType:
    """Read a plugin class: its name, roles and what its constructor wants.

    The constructor may take one frozen attrs class (the parameters) and one `random.Random`.

    Raises:
        RoleError: the class cannot be used as a plugin.
    """
    name = getattr(plugin_class, "type_name", None)
    if not isinstance(name, str) or not name:
        raise RoleError(plugin_class.__qualname__, "it has no `type_name`")
    roles = roles_of(plugin_class, name)
    if not roles and not subscriptions(plugin_class):
        raise RoleError(name, "it has no method that makes a role, and hears of no event")
    parameters_argument, parameters, random_argument = _constructor(plugin_class, name)
    return PluginType(
        name=name,
        plugin_class=plugin_class,
        roles=roles,
        parameters=parameters,
        parameters_argument=parameters_argument,
        random_argument=random_argument,
        stability=getattr(plugin_class, "stability", Stability.STABLE),
        aliases=dict(getattr(plugin_class, "aliases", {})),
    )


def _constructor(plugin_class: type[Any], name: str) -> tuple[str | None, type[Any], str | None]:
    parameters_argument: str | None = None
    parameters: type[Any] = NoParameters
    random_argument: str | None = None
    if plugin_class.__init__ is object.__init__:
        return parameters_argument, parameters, random_argument
    try:
        hints = get_type_hints(plugin_class.__init__)
    except NameError as exc:
        raise RoleError(name, f"its constructor's annotations cannot be read: {exc}") from None
    for argument in tuple(inspect.signature(plugin_class).parameters.values()):
        wanted = hints.get(argument.name)
        if wanted is Random:
            random_argument = argument.name
        elif isinstance(wanted, type) and attrs.has(wanted):
            parameters_argument, parameters = argument.name, wanted
        elif argument.default is argument.empty:
            raise RoleError(name, f"its constructor asks for {argument.name!r}: {wanted}")
    return parameters_argument, parameters, random_argument


def consumes_of(plugin: object) -> Consumes:
    """What an instance declares to read: it may depend on its parameters."""
    declared = getattr(plugin, "consumes", None)
    return declared if isinstance(declared, Consumes) else Consumes()


def produces_of(plugin: object) -> Keys:
    declared = getattr(plugin, "produces", None)
    return cast("Keys", declared) if isinstance(declared, frozenset) else keys()


def deciders_of(plugin: object) -> Sequence[str]:
    """The names of the deciders that a profile handler asks."""
    named: Sequence[str] = getattr(plugin, "deciders", ())
    return named


class UnknownType(KernelError):
    """Nobody registered a plugin type of that name."""

    def __init__(self, name: str, nearest: Iterable[str], absent: str = "") -> None:
        super().__init__(name)
        self.name = name
        self.nearest = tuple(nearest)
        self.absent = absent
        """Why it is not there, if it is known to exist elsewhere."""

    def __str__(self) -> str:
        if self.absent:
            return f"plugin type {self.name!r} is not part of this version: {self.absent}"
        return f"unknown plugin type {self.name!r}"


@final
@define(eq=False)
class Registry:
    """The plugin types that a configuration may name."""

    _types: dict[str, PluginType] = field(factory=dict[str, PluginType], init=False)
    _aliases: dict[str, PluginType] = field(factory=dict[str, PluginType], init=False)
    absent: Mapping[str, str] = field(factory=dict[str, str])
    """Types that configurations of the reference name and nobody registers, and why."""

    def register(self, plugin_class: type[Any]) -> PluginType:
        """Add a class under its type name and its deprecated ones.

        Raises:
            RoleError: it is no plugin.
            TypeTaken: a name is taken already.
        """
        plugin_type = describe(plugin_class)
        for name in (plugin_type.name, *plugin_type.aliases):
            holder = self._types.get(name) or self._aliases.get(name)
            if holder is not None:
                raise TypeTaken(name, holder.origin, plugin_type.origin)
        self._types[plugin_type.name] = plugin_type
        self._aliases.update(dict.fromkeys(plugin_type.aliases, plugin_type))
        return plugin_type

    def register_entry_points(self, points: Iterable[EntryPoint] | None = None) -> None:
        """Add what installed distributions offer in the group ``pointsman.plugins``."""
        for point in entry_points(group=ENTRY_POINT_GROUP) if points is None else points:
            loaded: object = point.load()
            if not isinstance(loaded, type):
                raise RoleError(point.name, f"the entry point {point.value!r} is no class")
            self.register(cast("type[Any]", loaded))

    def find(self, name: str) -> PluginType:
        """The type of that name, deprecated names included.

        Raises:
            UnknownType: with the nearest names.
        """
        found = self._types.get(name) or self._aliases.get(name)
        if found is None:
            absent = self.absent.get(name, "")
            near = () if absent else nearest(name, (*self._types, *self._aliases))
            raise UnknownType(name, near, absent)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._types or name in self._aliases

    def __iter__(self) -> Iterator[PluginType]:
        return iter(self._types.values())


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """What somebody who wrote *word* may have meant, best first."""
    return get_close_matches(word, list(known), n=3, cutoff=0.6)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for an error message; empty when nothing is near."""
    near = nearest(word, known)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
