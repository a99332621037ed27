"""What can be set of one simulated server, and how it is read from a command line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Final, Literal, final, get_args

import attrs
import msgspec
from attrs import frozen
from msgspec import Meta

from .faults import Faults
from .latency import PROFILES, LatencyProfile
from .work import EngineConfig

NotNegative = Annotated[float, Meta(ge=0)]
Profile = Literal["8b-h100", "70b-tp8", "small-l40s"]
LISTS: Final = frozenset({"failure_types", "metrics_missing", "lora_modules", "labels"})
"""Settings that hold several values, joined by plus signs on the command line."""


@final
class PodSettings(Faults, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a server but its name and address. The part in `Faults` may change."""

    model: Annotated[str, Meta(min_length=1, description="the model it serves")] = "llama-8b"
    lora_modules: Annotated[
        tuple[str, ...], Meta(description="adapters it has loaded at the start")
    ] = ()
    namespace: Annotated[str, Meta(min_length=1, description="the pod's namespace")] = "default"
    labels: Annotated[
        tuple[str, ...], Meta(description="labels in the endpoints file, as KEY:VALUE")
    ] = ()
    seed: Annotated[int, Meta(ge=0, description="of everything random; each pod adds its own")] = 0
    startup_duration: Annotated[
        float, Meta(ge=0, description="seconds for which /health answers 503")
    ] = 0.0
    output_tokens: Annotated[
        int, Meta(ge=1, description="how long answers are on average when nothing limits them")
    ] = 128
    max_num_seqs: Annotated[int, Meta(ge=1, description="requests that run together")] = 8
    max_num_batched_tokens: Annotated[
        int, Meta(ge=1, description="tokens computed in one iteration")
    ] = 2048
    max_num_queued_reqs: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="requests that may wait; more are answered 503"),
    ] = None
    max_loras: Annotated[int, Meta(ge=1, description="adapters that run together")] = 1
    max_model_len: Annotated[
        Annotated[int, Meta(ge=2)] | None,
        Meta(description="tokens of prompt and answer; as many as the cache holds when not given"),
    ] = None
    block_size: Annotated[int, Meta(ge=1, description="tokens of a block of the cache")] = 16
    num_gpu_blocks: Annotated[int, Meta(ge=1, description="blocks of the cache")] = 2048
    profile: Annotated[Profile, Meta(description=f"how fast it is: {', '.join(PROFILES)}")] = (
        "8b-h100"
    )
    prefill_overhead: Annotated[
        NotNegative | None, Meta(description="seconds before a prompt is computed")
    ] = None
    prefill_time_per_token: Annotated[
        NotNegative | None, Meta(description="seconds per token that is not cached")
    ] = None
    inter_token_latency: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="seconds between tokens of a request alone"),
    ] = None
    time_factor_under_load: Annotated[
        Annotated[float, Meta(ge=1)] | None, Meta(description="how much slower a full server is")
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.max_model_len or 0) > self.block_size * self.num_gpu_blocks:
            raise ValueError("max-model-len: the cache's blocks do not hold as many tokens")
        for label in self.labels:
            if ":" not in label:
                raise ValueError(f"labels: {label!r} is not KEY:VALUE")

    def faults(self) -> Faults:
        return Faults(**{name: getattr(self, name) for name in Faults.__struct_fields__})

    def engine_config(self) -> EngineConfig:
        return EngineConfig(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_queued_reqs=self.max_num_queued_reqs,
            max_loras=self.max_loras,
            max_model_len=self.max_model_len or self.block_size * self.num_gpu_blocks,
            block_size=self.block_size,
            num_gpu_blocks=self.num_gpu_blocks,
            profile=self.latency_profile(),
        )

    def latency_profile(self) -> LatencyProfile:
        changes = {
            "prefill_overhead": self.prefill_overhead,
            "prefill_time_per_token": self.prefill_time_per_token,
            "inter_token_latency": self.inter_token_latency,
            "time_factor_under_load": self.time_factor_under_load,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        return attrs.evolve(PROFILES[self.profile], **given)


@frozen
class Pod:
    """One simulated server: where it is and how it behaves."""

    name: str
    address: str
    port: int
    settings: PodSettings

    def endpoint(self) -> dict[str, object]:
        """Its entry in an endpoints file."""
        return {
            "name": self.name,
            "namespace": self.settings.namespace,
            "address": self.address,
            "port": str(self.port),
            "labels": dict(label.split(":", 1) for label in self.settings.labels),
        }


class BadSetting(Exception):
    """A setting that cannot be used; the text says which and why."""


def descriptions() -> dict[str, str]:
    """What each setting means."""
    return {each.name: _description(each.type) for each in msgspec.structs.fields(PodSettings)}


def read_settings(texts: Mapping[str, str], where: str = "") -> PodSettings:
    """Settings from their texts; names may be spelled with dashes, as options are.

    Raises:
        BadSetting: *where* and the name are part of its text.
    """
    values: dict[str, str | list[str]] = {}
    for spelled, text in texts.items():
        name = spelled.replace("-", "_")
        if name not in PodSettings.__struct_fields__:
            raise BadSetting(f"{where}unknown setting {spelled!r}{_nearest(name)}")
        values[name] = [each for each in text.split("+") if each] if name in LISTS else text
    try:
        return msgspec.convert(values, PodSettings, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{where}{_explained(str(error))}") from None


def _explained(message: str) -> str:
    reason, at, path = message.partition(" - at `$.")
    if not at:
        return reason
    name = re.split(r"\W", path)[0]
    return f"{name.replace('_', '-')}: {reason} ({descriptions()[name]})"


def _nearest(name: str) -> str:
    near = get_close_matches(name, PodSettings.__struct_fields__, 1)
    return f", did you mean {near[0].replace('_', '-')!r}?" if near else ""


def _description(annotated: object) -> str:
    metas = [meta for meta in get_args(annotated) if isinstance(meta, Meta)]
    return metas[0].description or "" if metas else ""


def read_override(text: str) -> tuple[str, dict[str, str]]:
    """Read ``NAME:key=value,...``.

    Raises:
        BadSetting: it has another form.
    """
    name, colon, pairs = text.partition(":")
    settings = [pair.partition("=") for pair in pairs.split(",")]
    if not name or not colon or not all(key and sign for key, sign, _value in settings):
        raise BadSetting(f"--pod {text}: expected NAME:key=value,...")
    return name, {key: value for key, _sign, value in settings}
