"""``pointsman plugins``: the types that a configuration may name; what they read, write, take."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final, final

import attrs
from attrs import frozen

from pointsman.kernel.keys import Consumes, Key, Keys
from pointsman.kernel.plugin import Role
from pointsman.kernel.registry import (
    PluginType,
    Registry,
    Stability,
    UnknownType,
    consumes_of,
    did_you_mean,
    produces_of,
)
from pointsman.kernel.structure import key_of

from .cli import complain
from .serve import make_registry

_BESIDE: Final = frozenset(
    {
        Role.PRE_REQUEST,
        Role.RESPONSE_HEADERS,
        Role.RESPONSE_CHUNK,
        Role.RESPONSE_END,
        Role.LISTENER,
        Role.SERVICE,
        Role.REPORTER,
    }
)
"""What a plugin does besides, for what it is there for."""


@final
@frozen(kw_only=True)
class Entry:
    """One plugin type."""

    name: str
    summary: str
    experimental: bool
    aliases: tuple[str, ...]
    """Deprecated names."""
    roles: tuple[str, ...]
    required: tuple[str, ...]
    """Keys that it reads."""
    optional: tuple[str, ...]
    """Keys that it reads where something writes them."""
    produces: tuple[str, ...]
    parameters: Mapping[str, str]
    """Names, and the defaults as JSON; empty: required."""


def entries(registry: Registry) -> list[Entry]:
    """All types, by role and name."""
    place = {role: position for position, role in enumerate(Role)}
    types = sorted(registry, key=lambda each: (place[_roles(each)[0]], each.name))
    return [_entry(each) for each in types]


def _entry(plugin_type: PluginType) -> Entry:
    consumes, produces = _data(plugin_type)
    return Entry(
        name=plugin_type.name,
        summary=plugin_type.summary,
        experimental=plugin_type.stability is Stability.ALPHA,
        aliases=tuple(plugin_type.aliases),
        roles=tuple(role.name.lower().replace("_", " ") for role in _roles(plugin_type)),
        required=_names(consumes.required),
        optional=_names(consumes.optional - consumes.required),
        produces=_names(produces),
        parameters={
            key_of(field): _default(field) for field in attrs.fields(plugin_type.parameters)
        },
    )


def _roles(plugin_type: PluginType) -> Sequence[Role]:
    roles = [role for role in Role if role in plugin_type.roles]
    return [role for role in roles if role not in _BESIDE] or roles


def _data(plugin_type: PluginType) -> tuple[Consumes, Keys]:
    """What it declares: with its default parameters, where that depends on them."""
    plugin: object = plugin_type.plugin_class
    if any(isinstance(getattr(plugin, name, None), property) for name in ("consumes", "produces")):
        try:
            plugin = plugin_type.make(plugin_type.parameters(), Random(0))
        except (TypeError, ValueError):  # it cannot be made without parameters
            return Consumes(), produces_of(plugin)
    return consumes_of(plugin), produces_of(plugin)


def _names(keys: Iterable[Key]) -> tuple[str, ...]:
    return tuple(sorted(key.name for key in keys))


def _default(field: attrs.Attribute[Any]) -> str:
    value = field.default
    if value is attrs.NOTHING:
        return ""
    if not isinstance(value, str | int | float | bool | None):
        return "..."
    return json.dumps(value)


# -- what is printed --------------------------------------------------------------------------


def text(listed: Sequence[Entry]) -> Iterator[str]:
    """A line for each."""
    width = max(len(entry.name) for entry in listed)
    for entry in listed:
        yield f"{entry.name:{width}}  {entry.summary}"


def details(entry: Entry) -> Iterator[str]:
    """All there is to say about one type."""
    yield f"{entry.name}: {', '.join(entry.roles)}"
    yield f"  {entry.summary}"
    if entry.experimental:
        yield "  experimental: needs --allow-experimental-plugins"
    if entry.name in entry.aliases:
        yield "  deprecated"
    if others := [name for name in entry.aliases if name != entry.name]:
        yield f"  deprecated names: {', '.join(others)}"
    for title, names in (
        ("consumes", entry.required),
        ("consumes where it is produced", entry.optional),
        ("produces", entry.produces),
    ):
        if names:
            yield f"  {title}: {', '.join(names)}"
    for name, default in entry.parameters.items():
        yield f"  parameter {name}" + (f" = {default}" if default else " (required)")


def markdown(listed: Sequence[Entry]) -> Iterator[str]:
    """The table of the README."""
    yield "| type | role | consumes | produces | parameters |"
    yield "| --- | --- | --- | --- | --- |"
    for entry in listed:
        name = " ".join([f"`{entry.name}`", *_remarks(entry)])
        reads = ", ".join(filter(None, (_code(entry.required), _code(entry.optional, "?"))))
        cells = (name, ", ".join(entry.roles), reads, _code(entry.produces), _taken(entry))
        yield f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _remarks(entry: Entry) -> Iterator[str]:
    if entry.experimental:
        yield "(alpha)"
    if entry.name in entry.aliases:
        yield "(deprecated)"
    if others := [name for name in entry.aliases if name != entry.name]:
        yield f"(once {_code(others)})"


def _code(names: Iterable[str], after: str = "") -> str:
    return ", ".join(f"`{name}`{after}" for name in names)


def _taken(entry: Entry) -> str:
    return ", ".join(
        f"`{name}`" + (f" {default}" if default not in ("", "...", "null", '""') else "")
        for name, default in entry.parameters.items()
    )


_FORMS: Final[Mapping[str, Callable[[Sequence[Entry]], Iterator[str]]]] = {
    "text": text,
    "markdown": markdown,
    "json": lambda listed: iter([json.dumps([attrs.asdict(each) for each in listed], indent=2)]),
}


def plugins(options: argparse.Namespace) -> int:
    """Print the catalogue, or the types that *options* name."""
    registry = make_registry()
    listed = entries(registry)
    if not options.types:
        print("\n".join(_FORMS[options.format](listed)))
        return 0
    try:
        wanted = {registry.find(name).name for name in options.types}
    except UnknownType as exc:
        hint = did_you_mean(exc.name, exc.nearest)
        return complain(f"{exc}" + (f"; {hint}" if hint else ""))
    chosen = [entry for entry in listed if entry.name in wanted]
    lines = _FORMS[options.format](chosen)
    if options.format == "text":
        lines = (line for entry in chosen for line in details(entry))
    print("\n".join(lines))
    return 0
