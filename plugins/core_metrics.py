"""What model servers say of their load and cache, engine by engine."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, final

from attrs import define, evolve, field, frozen

from pointsman.kernel.keys import EndpointKey, Key, Keys, keys
from pointsman.kernel.model import (
    CACHE_CONFIG,
    KV_CACHE_USAGE,
    LORA_ADAPTERS,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    CacheConfig,
    LoraAdapters,
)
from pointsman.kernel.registry import Stability, did_you_mean
from pointsman.kernel.structure import FieldError, not_blank

from .exposition import Sample, samples, unescape

_SPEC: Final = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s*$")
_PAIR: Final = re.compile(
    r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",{}]+))\s*(?:,|$)'
)
OLD_ENGINE_LABEL: Final = "inference.networking.k8s.io/engine-type"


@final
@frozen
class MetricSpec:
    """A family, and the labels that its series must have: ``name{label=value}``."""

    name: bytes
    labels: Mapping[str, str] = field(factory=dict[str, str])

    @classmethod
    def parse(cls, text: str) -> MetricSpec:
        """Raises ValueError for anything but ``name`` or ``name{label=value,...}``."""
        found = _SPEC.match(text)
        if found is None:
            raise ValueError(f"{text!r} is no metric such as 'name' or 'name{{label=value}}'")
        return cls(found[1].encode("ascii"), _spec_labels((found[2] or "").strip()))

    def find(self, text: bytes) -> list[Sample]:
        """The samples of a text that fit."""
        found = samples(text, self.name)
        if not self.labels:
            return list(found)
        return [s for s in found if self.labels.items() <= s.labels.items()]


def _spec_labels(text: str) -> Mapping[str, str]:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ValueError(f"{text[at:]!r} is no label such as 'label=value'")
        labels[pair[1]] = pair[3] if pair[2] is None else unescape(pair[2])
        at = pair.end()
    return labels


def _is_spec(_: object, attribute: Any, value: str) -> None:
    """Validator: empty, which disables the signal, or a readable spec."""
    try:
        if value:
            MetricSpec.parse(value)
    except ValueError as exc:
        raise FieldError(attribute.name, str(exc)) from None


@final
@frozen(kw_only=True)
class CustomMetric:
    """A number of the endpoint under a name of one's own."""

    attribute_key: str = field(validator=not_blank)
    metric_spec: str = field(validator=_is_spec)


@final
@frozen(kw_only=True)
class EngineConfig:
    """Where one kind of model server keeps its figures. An empty spec disables the signal."""

    name: str = field(validator=not_blank)
    queued_requests_spec: str = field(default="", validator=_is_spec)
    running_requests_spec: str = field(default="", validator=_is_spec)
    kv_usage_spec: str = field(default="", validator=_is_spec)
    """A fraction from 0 to 1."""
    lora_spec: str = field(default="", validator=_is_spec)
    cache_info_spec: str = field(default="", validator=_is_spec)
    """A series whose labels say block size and number of blocks."""
    cache_block_size_label_name: str = "block_size"
    cache_num_blocks_label_name: str = "num_gpu_blocks"
    cache_block_size_spec: str = field(default="", validator=_is_spec)
    """A gauge instead of a label."""
    cache_num_blocks_spec: str = field(default="", validator=_is_spec)
    custom_metrics: tuple[CustomMetric, ...] = ()


VLLM: Final = EngineConfig(
    name="vllm",
    queued_requests_spec="vllm:num_requests_waiting",
    running_requests_spec="vllm:num_requests_running",
    kv_usage_spec="vllm:kv_cache_usage_perc",
    lora_spec="vllm:lora_requests_info",
    cache_info_spec="vllm:cache_config_info",
)
BUILT_IN: Final = (
    VLLM,
    EngineConfig(
        name="sglang",
        queued_requests_spec="sglang:num_queue_reqs",
        running_requests_spec="sglang:num_running_reqs",
        kv_usage_spec="sglang:token_usage",
        cache_info_spec="sglang:cache_config_info",
        cache_block_size_label_name="page_size",
        cache_num_blocks_label_name="num_pages",
    ),
    EngineConfig(
        name="trtllm-serve",
        queued_requests_spec="trtllm_num_requests_waiting",
        running_requests_spec="trtllm_num_requests_running",
        kv_usage_spec="trtllm_kv_cache_utilization",
        cache_block_size_spec="trtllm_kv_cache_tokens_per_block",
        cache_num_blocks_spec="trtllm_kv_cache_max_blocks",
    ),
    EngineConfig(
        name="triton-tensorrt-llm",
        queued_requests_spec="nv_trt_llm_request_metrics{request_type=waiting}",
        running_requests_spec="nv_trt_llm_request_metrics{request_type=scheduled}",
        kv_usage_spec="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}",
        cache_block_size_spec="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}",
        cache_num_blocks_spec="nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}",
    ),
    EngineConfig(
        name="triton",
        queued_requests_spec="nv_inference_pending_request_count",
        running_requests_spec="nv_inference_exec_count",
    ),
)
OLDER_NAMES: Final[Mapping[str, str]] = {"vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc"}
"""What a family was called before; looked at when the new name is not there."""


@final
@frozen(kw_only=True)
class CoreMetricsParameters:
    engine_label_key: str = "llm-d.ai/engine-type"
    """The pod label that names the engine."""
    default_engine: str = "vllm"
    """For pods without the label, or with one that names no known engine."""
    engine_configs: tuple[EngineConfig, ...] = ()
    """Further engines, or others' figures for built-in ones."""

    @property
    def engines(self) -> Mapping[str, EngineConfig]:
        return {engine.name: engine for engine in (*BUILT_IN, *self.engine_configs)}


Read = Callable[[bytes], Any]
SIGNALS: Final = keys(
    WAITING_QUEUE_SIZE, RUNNING_REQUESTS, KV_CACHE_USAGE, LORA_ADAPTERS, CACHE_CONFIG
)
"""What every engine may report."""


@final
@define(eq=False)
class CoreMetricsExtractor:
    """Reads queue, running requests, KV cache use, LoRA adapters and cache layout."""

    type_name: ClassVar = "core-metrics-extractor"
    stability: ClassVar = Stability.BETA
    parameters: CoreMetricsParameters
    _custom: Mapping[str, EndpointKey[float]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        names = [engine.name for engine in self.parameters.engine_configs]
        if "default" in names or len(set(names)) < len(names):
            raise ValueError("engine names must be unique, and none may be 'default'")
        if self.parameters.default_engine not in self.parameters.engines:
            hint = did_you_mean(self.parameters.default_engine, self.parameters.engines)
            unknown = f"defaultEngine {self.parameters.default_engine!r} is not known"
            raise ValueError(f"{unknown}; {hint}" if hint else unknown)
        self._custom = {
            metric.attribute_key: EndpointKey(metric.attribute_key, float)
            for engine in self.parameters.engines.values()
            for metric in engine.custom_metrics
        }
        for taken in sorted(self._custom.keys() & {key.name for key in SIGNALS}):
            raise ValueError(f"customMetrics: the attributeKey {taken!r} is a built-in signal's")

    @property
    def produces(self) -> Keys:
        return SIGNALS | keys(*self._custom.values())

    def engine(self, labels: Mapping[str, str]) -> EngineConfig:
        """The engine of a pod with *labels*."""
        label = labels.get(self.parameters.engine_label_key) or labels.get(OLD_ENGINE_LABEL)
        engines = self.parameters.engines
        return engines.get(label or "") or engines[self.parameters.default_engine]

    def extractor(
        self, labels: Mapping[str, str], wanted: Keys
    ) -> Callable[[bytes], Mapping[Key, Any]]:
        readers = [(key, read) for key, read in self._readers(self.engine(labels)) if key in wanted]

        def extract(text: bytes) -> Mapping[Key, Any]:
            return {key: read(text) for key, read in readers}

        return extract

    def _readers(self, engine: EngineConfig) -> Iterable[tuple[Key, Read]]:
        yield WAITING_QUEUE_SIZE, _gauge(engine.queued_requests_spec, sum)
        yield RUNNING_REQUESTS, _gauge(engine.running_requests_spec, sum)
        yield KV_CACHE_USAGE, _fraction(engine.kv_usage_spec)
        yield LORA_ADAPTERS, _lora(engine.lora_spec)
        yield CACHE_CONFIG, _cache_config(engine)
        for metric in engine.custom_metrics:
            yield self._custom[metric.attribute_key], _gauge(metric.metric_spec, _last)


Together = Callable[[Sequence[float]], float]


def _last(values: Sequence[float]) -> float:
    return values[-1]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _nothing(text: bytes) -> None:
    return None


def _gauge(spec_text: str, together: Together) -> Callable[[bytes], float | None]:
    """One number of all series that fit: several engines may report behind one port."""
    if not spec_text:
        return _nothing
    spec = MetricSpec.parse(spec_text)

    def read(text: bytes) -> float | None:
        values = [s.value for s in spec.find(text) if math.isfinite(s.value)]
        return together(values) + 0.0 if values else None

    return read


def _fraction(spec_text: str) -> Callable[[bytes], float | None]:
    """A gauge between 0 and 1, the mean of several; an older name serves where it is alone."""
    read_new = _gauge(spec_text, _mean)
    read_old = _gauge(OLDER_NAMES.get(spec_text, ""), _mean)

    def read(text: bytes) -> float | None:
        value = read_new(text)
        if value is None:
            value = read_old(text)
        return None if value is None else min(1.0, max(0.0, value))

    return read


def _lora(spec_text: str) -> Callable[[bytes], LoraAdapters]:
    """The series with the largest value is the current one: the value is a time.

    A server without adapters prints no series at all, which is no error.
    """
    if not spec_text:
        return lambda text: LoraAdapters()
    spec = MetricSpec.parse(spec_text)

    def read(text: bytes) -> LoraAdapters:
        latest = max(spec.find(text), key=lambda sample: sample.value, default=None)
        if latest is None:
            return LoraAdapters()
        labels = latest.labels
        return LoraAdapters(
            running=_names(labels.get("running_lora_adapters", "")),
            waiting=_names(labels.get("waiting_lora_adapters", "")),
            most=_whole(labels.get("max_lora")) or 0,
        )

    return read


def _names(listed: str) -> frozenset[str]:
    return frozenset(name.strip() for name in listed.split(",") if name.strip())


def _whole(text: str | None) -> int | None:
    """A positive whole number, or None for anything else, such as the word None."""
    try:
        number = int(text or "")
    except ValueError:
        return None
    return number if number > 0 else None


def _cache_config(engine: EngineConfig) -> Callable[[bytes], CacheConfig | None]:
    read_labels = _cache_labels(engine)
    read_size = _gauge(engine.cache_block_size_spec, _last)
    read_blocks = _gauge(engine.cache_num_blocks_spec, sum)

    def read(text: bytes) -> CacheConfig | None:
        found = read_labels(text)
        if (size := read_size(text)) is not None and size >= 1:
            found = evolve(found, block_size=int(size))
        if (blocks := read_blocks(text)) is not None and blocks >= 1:
            found = evolve(found, blocks=int(blocks))
        return None if found == CacheConfig() else found

    return read


def _cache_labels(engine: EngineConfig) -> Callable[[bytes], CacheConfig]:
    """Block size and blocks from labels; blocks of several engines add up."""
    if not engine.cache_info_spec:
        return lambda text: CacheConfig()
    spec = MetricSpec.parse(engine.cache_info_spec)

    @lru_cache(maxsize=1)  # a server says the same each time, in thirty labels
    def read_labels(samples: tuple[Sample, ...]) -> CacheConfig:
        labels = [sample.labels for sample in samples]
        sizes = [_whole(one.get(engine.cache_block_size_label_name)) for one in labels]
        blocks = [_whole(one.get(engine.cache_num_blocks_label_name)) for one in labels]
        return CacheConfig(
            block_size=next((size for size in sizes if size), None),
            blocks=sum(number for number in blocks if number) or None,
        )

    def read(text: bytes) -> CacheConfig:
        return read_labels(tuple(spec.find(text)))

    return read
