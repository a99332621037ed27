"""What a configuration leaves out: profile, picker, handler, parsers, sources, producers.

The rules are the reference system's, less its arbitrary choices: where it takes any, the first
in the configuration's order is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from attrs import frozen

from .candidates import Candidates
from .config import Profile, ProfilePlugin, Reference
from .document import Path
from .graph import missing
from .keys import Key
from .plugin import IN_PROFILES, Role
from .registry import PluginType, deciders_of, did_you_mean

DEFAULT_PARSERS: Final = (
    "openai-parser",
    "anthropic-parser",
    "vllmhttp-parser",
    "passthrough-parser",
)
DEFAULT_SOURCE: Final = "metrics-data-source"
DEFAULT_EXTRACTOR: Final = "core-metrics-extractor"
DEFAULT_PICKER: Final = "max-score-picker"
DEFAULT_HANDLER: Final = "single-profile-handler"
DEFAULT_PROFILE: Final = "default"
DEFAULT_DETECTOR: Final = "utilization-detector"


@final
@frozen(kw_only=True)
class Shape:
    """Which plugin plays which part."""

    profiles: tuple[Profile, ...]
    pickers: dict[str, str]
    """By profile."""
    handler: str
    parsers: tuple[str, ...]
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    """Data sources, each with its extractors."""
    discovery: str | None
    detector: str | None

    @property
    def listed(self) -> frozenset[str]:
        """Plugins that take part because something names them."""
        extractors = (name for _, names in self.sources for name in names)
        return frozenset((self.handler, *self.parsers, *extractors))


def shape(candidates: Candidates) -> Shape:
    """Settle every part, adding plugins where the configuration names none."""
    profiles = candidates.config.settings.scheduling_profiles or (_only_profile(candidates),)
    _check_profiles(candidates, profiles)
    layer = candidates.config.settings.data_layer
    made = Shape(
        profiles=profiles,
        handler=_handler(candidates, profiles),
        pickers={profile.name: _picker(candidates, profile) for profile in profiles},
        parsers=_parsers(candidates),
        sources=tuple(_sources(candidates)),
        discovery=candidates.named(layer.discovery, Role.DISCOVERY, "discovery"),
        detector=_detector(candidates),
    )
    _add_default_producers(candidates)
    _warn_of_idle(candidates, made)
    return made


def _detector(candidates: Candidates) -> str | None:
    """Who refuses negative priorities; without Kubernetes there are no objectives to set any."""
    settings = candidates.config.settings
    flow = settings.flow_control
    if flow is not None and flow.saturation_detector is not None:
        detector = flow.saturation_detector
        return candidates.named(detector, Role.DETECTOR, "saturation detector")
    if settings.data_layer.discovery is not None:
        return None
    if DEFAULT_DETECTOR not in candidates.around.registry:
        return None
    return candidates.add(DEFAULT_DETECTOR, "negative priorities are refused at saturation")


def _only_profile(candidates: Candidates) -> Profile:
    detectors = candidates.with_role(Role.DETECTOR)
    names = [name for name in candidates.with_role(*IN_PROFILES) if name not in detectors]
    return Profile(name=DEFAULT_PROFILE, plugins=tuple(ProfilePlugin(plugin_ref=n) for n in names))


def _check_profiles(candidates: Candidates, profiles: tuple[Profile, ...]) -> None:
    seen: set[str] = set()
    for profile in profiles:
        if profile.name in seen:
            where = (*profile.at, "name")
            candidates.blame(where, f"the name {profile.name!r} is taken already")
        seen.add(profile.name)
        _check_profile(candidates, profile)


def _check_profile(candidates: Candidates, profile: Profile) -> None:
    pickers: list[str] = []
    for reference in profile.plugins:
        name = _in_profile(candidates, reference.plugin_ref, reference.at)
        if name is None:
            continue
        roles = candidates[name].node.roles
        if Role.PICKER in roles:
            pickers.append(name)
        if reference.weight is not None and Role.SCORER not in roles:
            candidates.warnings.append(f"{name!r} is no scorer: its weight has no effect")
    if len(pickers) > 1:
        both = " and ".join(map(repr, pickers))
        message = f"profile {profile.name!r} has more than one picker: {both}"
        candidates.blame(profile.at, message)


def _in_profile(candidates: Candidates, name: str, at: Path) -> str | None:
    candidate = candidates.get(name)
    where = (*at, "pluginRef")
    if candidate is None:
        candidates.blame_missing(where, name)
        return None
    if not IN_PROFILES & candidate.node.roles:
        candidates.blame(where, f"{name!r} is neither filter nor scorer nor picker")
        return None
    return name


def _handler(candidates: Candidates, profiles: tuple[Profile, ...]) -> str:
    handlers = candidates.with_role(Role.PROFILE_HANDLER)
    if len(handlers) > 1:
        both = " and ".join(map(repr, handlers))
        candidates.blame(("plugins",), f"more than one profile handler: {both}")
    if handlers:
        _check_number(candidates, handlers[0], len(profiles))
        _check_deciders(candidates, handlers[0])
        _check_needed(candidates, handlers[0], profiles)
        return handlers[0]
    if len(profiles) > 1:
        candidates.blame(("schedulingProfiles",), "several profiles need a profile handler")
    return candidates.add(DEFAULT_HANDLER, "the only profile needs a handler")


def _check_deciders(candidates: Candidates, handler: str) -> None:
    """A handler names in ``deciders`` whom it asks."""
    candidate = candidates[handler]
    for name in deciders_of(candidate.plugin):
        reference = Reference(plugin_ref=name, at=(*candidate.entry.at, "parameters"))
        candidates.named(reference, Role.DECIDER, "decider")


def _check_needed(candidates: Candidates, handler: str, profiles: tuple[Profile, ...]) -> None:
    """A handler names in ``needs_profiles`` those without which it can serve nothing."""
    needed: Sequence[str] = getattr(candidates[handler].plugin, "needs_profiles", ())
    known = [profile.name for profile in profiles]
    for name in needed:
        if name not in known:
            message = f"{handler!r} needs a profile named {name!r}"
            candidates.blame(("schedulingProfiles",), message, did_you_mean(name, known))


def _check_number(candidates: Candidates, handler: str, profiles: int) -> None:
    """A handler may say in ``most_profiles`` how many it can tell apart."""
    most = getattr(candidates[handler].plugin, "most_profiles", profiles)
    if profiles > most:
        message = f"{handler!r} handles {most} at most, not {profiles}"
        candidates.blame(("schedulingProfiles",), message)


def _picker(candidates: Candidates, profile: Profile) -> str:
    for reference in profile.plugins:
        candidate = candidates.get(reference.plugin_ref)
        if candidate is not None and Role.PICKER in candidate.node.roles:
            return reference.plugin_ref
    configured = [n for n in candidates.with_role(Role.PICKER) if n not in candidates.added]
    if configured:
        return configured[0]
    return candidates.add(DEFAULT_PICKER, f"profile {profile.name!r} has no picker")


def _parsers(candidates: Candidates) -> tuple[str, ...]:
    listed = candidates.config.settings.request_handler.parsers
    if not listed:
        known = (name for name in DEFAULT_PARSERS if name in candidates.around.registry)
        return tuple(candidates.add(name, "no parsers are configured") for name in known)
    names: list[str] = []
    for reference in listed:
        ref = reference.plugin_ref
        if candidates.get(ref) is None and ref in candidates.around.registry:
            candidates.add(ref, "requestHandler.parsers names it")
        name = candidates.named(reference, Role.PARSER, "parser")
        if name is not None:
            names.append(name)
    return tuple(names)


def _warn_of_idle(candidates: Candidates, made: Shape) -> None:
    """Parsers and extractors take part by being listed: one that is only configured is idle."""
    sections = {Role.PARSER: "requestHandler.parsers", Role.EXTRACTOR: "dataLayer.sources"}
    for role, section in sections.items():
        for name in candidates.with_role(role):
            if candidates[name].node.roles <= {role} and name not in made.listed:
                message = f"{name!r} has no effect: `{section}` does not list it"
                candidates.warnings.append(message)


def _sources(candidates: Candidates) -> list[tuple[str, tuple[str, ...]]]:
    settled: list[tuple[str, tuple[str, ...]]] = []
    layer = candidates.config.settings.data_layer
    for entry in layer.sources:
        reference = Reference(plugin_ref=entry.plugin_ref, at=entry.at)
        source = candidates.named(reference, Role.SOURCE, "data source")
        extractors = [candidates.named(e, Role.EXTRACTOR, "extractor") for e in entry.extractors]
        if source is not None:
            settled.append((source, tuple(name for name in extractors if name is not None)))
    if layer.inject_defaults and DEFAULT_SOURCE not in [name for name, _ in settled]:
        why = "dataLayer.injectDefaults"
        extractor = candidates.add(DEFAULT_EXTRACTOR, why)
        settled.append((candidates.add(DEFAULT_SOURCE, why), (extractor,)))
    return settled


def _add_default_producers(candidates: Candidates) -> None:
    """Supply what required keys lack, until nothing more can be added."""
    tried: set[str] = set()
    while True:
        found = {
            key.name: plugin_type.name
            for key in missing(c.node for c in candidates).values()
            if (plugin_type := _default_producer(candidates, key)) is not None
        }
        wanted = sorted(set(found.values()) - tried)
        if not wanted:
            return
        for name in wanted:
            tried.add(name)
            lacking = ", ".join(sorted(key for key, producer in found.items() if producer == name))
            candidates.add(name, f"default producer of {lacking}")


def _default_producer(candidates: Candidates, key: Key) -> PluginType | None:
    for plugin_type in candidates.around.registry:
        defaults = getattr(plugin_type.plugin_class, "default_for", frozenset[Key]())
        if key.name in {own.name for own in defaults}:
            return plugin_type
    return None
