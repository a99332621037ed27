"""The reference system's `EndpointPickerConfig`, as frozen settings.

What a field means and its default are the reference's. Reading is strict and finds all
mistakes in one go; whether the named plugins exist and fit together is the wiring's question.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from attrs import evolve, field, frozen

from .document import Document, Path, read_document
from .structure import (
    CONVERTER,
    Duration,
    Quantity,
    at_least,
    not_blank,
    structure,
    unknown_name,
    within,
)

API_VERSION: Final = "llm-d.ai/v1alpha1"
OLD_API_VERSION: Final = "inference.networking.x-k8s.io/v1alpha1"
KIND: Final = "EndpointPickerConfig"
GATES: Final[Mapping[str, bool]] = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
"""The feature gates and whether they are open when nothing is said."""


@final
@frozen
class KeyChoice:
    """Which keys a plugin entry consumes."""

    only: frozenset[str] | None = None
    """Narrows the subscription to these; None leaves it as declared."""
    bound: Mapping[str, str] = field(factory=dict[str, str])
    """Own name to published name."""


def _key_choice(value: Any, _: Any) -> KeyChoice:
    if isinstance(value, list):
        return KeyChoice(only=frozenset(CONVERTER.structure(value, tuple[str, ...])))
    if isinstance(value, Mapping):
        return KeyChoice(bound=CONVERTER.structure(value, dict[str, str]))
    raise ValueError(f"must be a list of keys or a mapping of own to published keys: {value!r}")


CONVERTER.register_structure_hook(KeyChoice, _key_choice)


@final
@frozen(kw_only=True)
class PluginEntry:
    """One plugin instance."""

    type: str = field(validator=not_blank)
    name: str = ""
    """Empty: the type is the name."""
    parameters: Mapping[str, Any] = field(factory=dict[str, Any])
    """Read by the plugin type's own parameters class."""
    consumes: KeyChoice = KeyChoice()
    produces: Mapping[str, str] = field(factory=dict[str, str])
    """Renames what is produced: own name to published name."""
    at: Path = field(default=(), eq=False, repr=False)

    @property
    def instance(self) -> str:
        return self.name or self.type


@final
@frozen(kw_only=True)
class Reference:
    """Names a plugin instance."""

    plugin_ref: str = field(validator=not_blank)
    at: Path = field(default=(), eq=False, repr=False)


@final
@frozen(kw_only=True)
class ProfilePlugin:
    plugin_ref: str = field(validator=not_blank)
    weight: float | None = field(default=None, validator=within(-1e9, 1e9))
    """For scorers; left out means 1."""
    at: Path = field(default=(), eq=False, repr=False)


@final
@frozen(kw_only=True)
class Profile:
    name: str = field(validator=not_blank)
    plugins: tuple[ProfilePlugin, ...] = ()
    at: Path = field(default=(), eq=False, repr=False)


@final
@frozen(kw_only=True)
class SourceEntry:
    """A data source and what reads its answers."""

    plugin_ref: str = field(validator=not_blank)
    extractors: tuple[Reference, ...] = ()
    at: Path = field(default=(), eq=False, repr=False)


@final
@frozen(kw_only=True)
class DataLayer:
    inject_defaults: bool = True
    """Whether metrics-data-source with core-metrics-extractor is added when not listed."""
    sources: tuple[SourceEntry, ...] = ()
    discovery: Reference | None = None
    """Set: endpoints come from this plugin and no Kubernetes is contacted."""
    peer_discovery: Reference | None = None
    cross_replica_syncer_plugin_ref: str | None = None
    cross_replica_sync_interval: Duration = Duration(0.2)


@final
@frozen(kw_only=True)
class PriorityBand:
    """0 for a limit means the default, never unlimited."""

    priority: int = 0
    max_bytes: Quantity = Quantity(1_000_000_000)
    max_requests: Quantity = Quantity(5000)
    fairness_policy_ref: str = "global-strict-fairness-policy"
    ordering_policy_ref: str = "fcfs-ordering-policy"


@final
@frozen(kw_only=True)
class FlowControl:
    max_bytes: Quantity = Quantity(0)
    """0: no limit."""
    max_requests: Quantity = Quantity(0)
    default_request_ttl: Duration = field(
        default=Duration(60.0), validator=at_least(0), metadata={"key": "defaultRequestTTL"}
    )
    """0: requests wait for ever."""
    no_endpoint_request_ttl: Duration | None = field(
        default=None, validator=at_least(0), metadata={"key": "noEndpointRequestTTL"}
    )
    default_priority_band: PriorityBand | None = None
    default_negative_priority_band: PriorityBand | None = None
    priority_bands: tuple[PriorityBand, ...] = ()
    usage_limit_policy_plugin_ref: str = "static-usage-limit-policy"
    saturation_detector: Reference | None = None
    enable_eviction: bool = False
    at: Path = field(default=(), eq=False, repr=False)


@final
@frozen(kw_only=True)
class RequestHandler:
    parsers: tuple[Reference, ...] = ()


@final
@frozen(kw_only=True)
class EndpointPickerConfig:
    """The whole document."""

    api_version: str = API_VERSION
    kind: str = KIND
    feature_gates: tuple[str, ...] = ()
    plugins: tuple[PluginEntry, ...] = ()
    scheduling_profiles: tuple[Profile, ...] = ()
    data_layer: DataLayer = DataLayer()
    flow_control: FlowControl | None = None
    request_handler: RequestHandler = RequestHandler()
    saturation_detector: Reference | None = None
    """Deprecated spelling of ``flowControl.saturationDetector``."""
    parser: Reference | None = None
    """Deprecated spelling of ``requestHandler.parsers[0]``."""
    at: Path = field(default=(), eq=False, repr=False)


@final
@frozen(kw_only=True)
class Config:
    """A configuration that was read, with what there is to say about it."""

    settings: EndpointPickerConfig
    document: Document
    gates: Mapping[str, bool]
    warnings: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return self.document.source


def read_config(text: str, source: str) -> Config:
    """Read a configuration text; *source* names it in messages.

    Mistakes are collected in ``config.document``: the wiring adds its own and then refuses.

    Raises:
        ConfigError: nothing of it can be read.
    """
    document = read_document(text, source)
    data: object = {} if document.data is None else document.data
    settings = structure(document, data, EndpointPickerConfig)
    if settings is None:
        document.refuse_if_mistaken()
        raise AssertionError("a document that cannot be read has mistakes")
    warnings: list[str] = []
    _check_header(document, settings, warnings)
    gates = _gates(document, settings)
    _warn_of_flow_control(settings.flow_control, gates["flowControl"], warnings)
    settings = _modern(settings, warnings)
    return Config(settings=settings, document=document, gates=gates, warnings=tuple(warnings))


def _warn_of_flow_control(flow: FlowControl | None, is_open: bool, warnings: list[str]) -> None:
    if is_open:
        warnings.append(
            "the gate flowControl is open, but requests are not queued yet: that takes effect with"
            " a later version, and until then they are admitted as with the gate closed"
        )
    elif flow is not None and evolve(flow, saturation_detector=None) != FlowControl():
        warnings.append("`flowControl` has no effect: its feature gate is not open")


def _check_header(document: Document, settings: EndpointPickerConfig, warnings: list[str]) -> None:
    if settings.api_version == OLD_API_VERSION:
        warnings.append(f"apiVersion {OLD_API_VERSION} is deprecated: write {API_VERSION}")
    elif settings.api_version != API_VERSION:
        message, hint = unknown_name("apiVersion", settings.api_version, [API_VERSION])
        document.blame(("apiVersion",), message, hint)
    if settings.kind != KIND:
        document.blame(("kind",), f"must be {KIND}, not {settings.kind!r}")


def _gates(document: Document, settings: EndpointPickerConfig) -> Mapping[str, bool]:
    gates = dict(GATES)
    for index, entry in enumerate(settings.feature_gates):
        name, _, value = entry.partition("=")
        where: Path = ("featureGates", index)
        if name not in GATES:
            document.blame(where, *unknown_name("feature gate", name, list(GATES)))
        elif value not in ("", "true", "false"):
            document.blame(where, f"must be {name}=true or {name}=false, not {entry!r}")
        else:
            gates[name] = value != "false"
    return gates


def _modern(settings: EndpointPickerConfig, warnings: list[str]) -> EndpointPickerConfig:
    """Move what stands under deprecated names; the new name wins where both are there."""
    if settings.parser is not None:
        warnings.append("`parser` is deprecated: write requestHandler.parsers")
        if not settings.request_handler.parsers:
            handler = RequestHandler(parsers=(settings.parser,))
            settings = evolve(settings, request_handler=handler)
    if settings.saturation_detector is not None:
        warnings.append("`saturationDetector` is deprecated: write flowControl.saturationDetector")
        flow = settings.flow_control or FlowControl()
        if flow.saturation_detector is None:
            flow = evolve(flow, saturation_detector=settings.saturation_detector)
            settings = evolve(settings, flow_control=flow)
    return settings
