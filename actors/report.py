"""What a configuration comes to, for people, for programs and for drawing tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pointsman.kernel.errors import Mistake
from pointsman.kernel.graph import KERNEL, Edge
from pointsman.kernel.keys import EventKey
from pointsman.kernel.plugin import Role
from pointsman.kernel.wiring import Wiring

Report = Mapping[str, Any]


def mistakes_report(mistakes: Sequence[Mistake]) -> Report:
    """A configuration that cannot be used, as JSON data."""
    return {
        "valid": False,
        "mistakes": [
            {"line": m.line, "path": m.path, "message": m.message, "hint": m.hint} for m in mistakes
        ],
    }


def wiring_report(wiring: Wiring) -> Report:
    """The effective wiring, as JSON data."""
    processing = wiring.processing
    return {
        "valid": True,
        "warnings": list(wiring.warnings),
        "handler": wiring.shape.handler,
        "profiles": [_profile(wiring, profile.name) for profile in wiring.shape.profiles],
        "parsers": list(wiring.shape.parsers),
        "sources": [
            {"source": source, "extractors": list(extractors)}
            for source, extractors in wiring.shape.sources
        ],
        "discovery": wiring.shape.discovery,
        "producers": _producers(wiring),
        "bindings": list(_bindings(wiring)),
        "added": dict(wiring.added),
        "unused": {plugin: list(names) for plugin, names in wiring.plan.unused.items()},
        "unmet": {plugin: list(names) for plugin, names in wiring.plan.unmet.items()},
        "processing": {
            "request_body": processing.body,
            "body_keys": sorted(wiring.director.slots.body),
            "response_headers": processing.response_headers,
            "response_chunks": processing.response_chunks,
            "usage": processing.usage,
            "response_end": processing.response_end,
            "endpoint_values": sorted(processing.endpoint_values),
            "events": sorted({listener.topic for listener in wiring.listeners}),
        },
    }


def _profile(wiring: Wiring, name: str) -> Report:
    (profile,) = (p for p in wiring.shape.profiles if p.name == name)
    runner = wiring.director.scheduler.profiles[name]
    return {
        "name": profile.name,
        "filters": [one.name for one in runner.filters],
        "scorers": [
            {"name": scorer.installed.name, "weight": scorer.weight} for scorer in runner.scorers
        ],
        "picker": runner.picker.name,
    }


def _producers(wiring: Wiring) -> list[str]:
    return [producer.installed.name for producer in wiring.director.producers]


def _bindings(wiring: Wiring) -> Iterator[Report]:
    """Where a plugin's name for a key is not the published one."""
    for candidate in wiring.entries:
        for own, published in candidate.consumes.bound.items():
            yield {"plugin": candidate.instance, "consumes": own, "published": published}
        for own, published in candidate.produces.items():
            yield {"plugin": candidate.instance, "produces": own, "published": published}


def text(wiring: Wiring) -> Iterator[str]:
    """The effective wiring, line by line."""
    report = wiring_report(wiring)
    yield f"{wiring.config.source} is valid"
    yield from (f"warning: {warning}" for warning in report["warnings"])
    yield f"profile handler: {wiring.installed[report['handler']]}"
    for profile in report["profiles"]:
        yield f"profile {profile['name']}:"
        yield from (f"  filter {wiring.installed[name]}" for name in profile["filters"])
        for scorer in profile["scorers"]:
            yield f"  scorer {wiring.installed[scorer['name']]}, weight {scorer['weight']:g}"
        yield f"  picker {wiring.installed[profile['picker']]}"
    if report["producers"]:
        yield f"producers, in order: {', '.join(report['producers'])}"
    for binding in report["bindings"]:
        verb = "consumes" if "consumes" in binding else "produces"
        yield f"{binding['plugin']} {verb} {binding[verb]} as {binding['published']}"
    yield f"parsers: {', '.join(report['parsers'])}"
    for source in report["sources"]:
        yield f"source {source['source']}, read by {', '.join(source['extractors']) or 'nobody'}"
    if report["discovery"]:
        yield f"endpoints from: {wiring.installed[report['discovery']]}"
    yield from (f"added {name}: {why}" for name, why in report["added"].items())
    for plugin, names in report["unused"].items():
        yield f"note: nobody reads {', '.join(names)} of {plugin}"
    for plugin, names in report["unmet"].items():
        yield f"note: nobody produces {', '.join(names)}, which {plugin} would use"
    yield from cost(wiring)


def cost(wiring: Wiring) -> Iterator[str]:
    """What the plan makes the daemon look at, line by line; the rest is left alone."""
    yield from _processing_text(wiring_report(wiring)["processing"])


def _processing_text(processing: Report) -> Iterator[str]:
    wanted = ", ".join(processing["body_keys"])
    read = f"read for the model's name{' and ' + wanted if wanted else ''}"
    yield f"request bodies: {read if processing['request_body'] else 'left alone'}"
    looked_at = [
        what.replace("_", " ")
        for what in ("response_headers", "response_chunks", "usage", "response_end")
        if processing[what]
    ]
    yield f"responses: {', '.join(looked_at) or 'left alone'}"
    yield f"asked of endpoints: {', '.join(processing['endpoint_values']) or 'nothing'}"
    if processing["events"]:
        yield f"events: {', '.join(processing['events'])}"


# -- the graph ------------------------------------------------------------------------------------


def graph_text(wiring: Wiring) -> Iterator[str]:
    """An edge a line; optional ones say so."""
    for edge in wiring.plan.edges:
        optional = "" if edge.required else " (optional)"
        yield f"{edge.producer} -> {edge.consumer}: {edge.key}{optional}"


def graph_mermaid(wiring: Wiring) -> Iterator[str]:
    """A Mermaid flowchart; dashed edges are optional, thick ones are events."""
    yield "flowchart LR"
    for number, name in _numbered(wiring).items():
        yield f"  {number}{_mermaid_box(wiring, name)}"
    numbers = {name: number for number, name in _numbered(wiring).items()}
    for edge in wiring.plan.edges:
        arrow = "==>" if _is_event(wiring, edge) else "-->" if edge.required else "-.->"
        yield f'  {numbers[edge.producer]} {arrow}|"{edge.key}"| {numbers[edge.consumer]}'


def _quoted(text: str) -> str:
    """A string as DOT writes it; line breaks in a label stay what they are."""
    return '"' + text.replace('"', '\\"') + '"'


def graph_dot(wiring: Wiring) -> Iterator[str]:
    """A Graphviz digraph with the same conventions."""
    yield "digraph pointsman {"
    yield "  rankdir=LR;"
    for name in _numbered(wiring).values():
        yield f"  {_quoted(name)} [label={_quoted(_label(wiring, name))}];"
    for edge in wiring.plan.edges:
        style = "bold" if _is_event(wiring, edge) else "solid" if edge.required else "dashed"
        ends = f"{_quoted(edge.producer)} -> {_quoted(edge.consumer)}"
        yield f"  {ends} [label={_quoted(edge.key)}, style={style}];"
    yield "}"


def _numbered(wiring: Wiring) -> Mapping[str, str]:
    """Every plugin that takes part in an edge or a profile, under a short name."""
    touched = {end for edge in wiring.plan.edges for end in (edge.producer, edge.consumer)}
    names = [KERNEL, *wiring.plan.order]
    return {f"n{number}": name for number, name in enumerate(names) if name in touched}


def _is_event(wiring: Wiring, edge: Edge) -> bool:
    return isinstance(wiring.plan.keys[edge.key], EventKey)


def _mermaid_box(wiring: Wiring, name: str) -> str:
    return f'(["{_label(wiring, name)}"])' if name == KERNEL else f'["{_label(wiring, name)}"]'


def _label(wiring: Wiring, name: str) -> str:
    if name == KERNEL:
        return KERNEL
    roles = wiring.roles[name]
    return f"{name}: {', '.join(sorted(_role_name(role) for role in roles))}" if roles else name


def _role_name(role: Role) -> str:
    return role.name.lower().replace("_", " ")
