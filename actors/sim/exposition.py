"""What ``/metrics`` of a simulated server says: vLLM's families, labels and buckets.

The text is built here and not by a client library, because it is read several times a second:
parts that cannot change are prepared once, and a histogram is written anew only after it has seen
something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, final

from attrs import define, field

from .engine import Engine
from .stats import EngineStats, Histogram

CONTENT_TYPE: Final = "text/plain; version=1.0.0; charset=utf-8"
_CACHE_CONFIG: Final = {
    "_block_size_resolved": "True",
    "cache_dtype": "auto",
    "cache_hit_alignment_tokens": "None",
    "enable_mamba_shared_prefix_checkpoint": "False",
    "enable_prefix_caching": "True",
    "engine": "0",
    "gpu_memory_utilization": "0.92",
    "hash_block_size": "None",
    "is_attention_free": "False",
    "kv_cache_dtype_skip_layers": "[]",
    "kv_cache_layout": "None",
    "kv_cache_memory_bytes": "None",
    "kv_offloading_backend": "native",
    "kv_offloading_size": "None",
    "kv_sharing_fast_prefill": "False",
    "mamba_block_size": "None",
    "mamba_cache_dtype": "auto",
    "mamba_cache_mode": "none",
    "mamba_page_size_padded": "None",
    "mamba_ssm_cache_dtype": "float32",
    "num_cpu_blocks": "None",
    "num_gpu_blocks_override": "None",
    "prefix_cache_retention_interval": "0",
    "prefix_caching_hash_algo": "sha256",
    "prefix_match_unit": "None",
    "replayssm_buffer_len": "16",
    "skip_page_size_padded": "None",
    "sliding_window": "None",
    "swa_bounded_replay": "True",
    "use_kda_recoverssm": "False",
    "use_replayssm": "False",
    "user_specified_block_size": "True",
}
_HISTOGRAMS: Final[Mapping[str, tuple[str, Callable[[EngineStats], Histogram]]]] = {
    "vllm:request_prompt_tokens": ("Prompt tokens per request.", lambda s: s.request_prompt),
    "vllm:request_generation_tokens": ("Tokens per answer.", lambda s: s.request_generation),
    "vllm:request_max_num_generation_tokens": (
        "Tokens of a request's longest answer.",
        lambda s: s.request_most,
    ),
    "vllm:request_params_max_tokens": ("The clients' max_tokens.", lambda s: s.request_asked),
    "vllm:time_to_first_token_seconds": ("Arrival to first token.", lambda s: s.first_token),
    "vllm:inter_token_latency_seconds": ("One token to the next.", lambda s: s.inter_token),
    "vllm:request_time_per_output_token_seconds": (
        "Mean time between a request's tokens.",
        lambda s: s.per_output_token,
    ),
    "vllm:e2e_request_latency_seconds": ("Arrival to last token.", lambda s: s.end_to_end),
    "vllm:request_queue_time_seconds": ("Arrival to start.", lambda s: s.queued),
    "vllm:request_inference_time_seconds": ("Start to last token.", lambda s: s.inference),
    "vllm:request_prefill_time_seconds": ("Start to first token.", lambda s: s.prefill),
    "vllm:request_decode_time_seconds": ("First to last token.", lambda s: s.decode),
}

Samples = Iterable[tuple[str, float]]
"""Labels in braces, and a value."""


@final
@define(eq=False)
class Exposition:
    """Writes the metrics of one engine."""

    engine: Engine
    model: str
    created: float
    """Unix time of the server's start."""
    unix: Callable[[float], float]
    """Unix time of an engine's time."""
    _engine_labels: str = field(init=False)
    _histograms: dict[str, _HistogramText] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._engine_labels = _braces(self._labels())
        self._histograms = {
            name: _HistogramText(name, text, pick(self.engine.stats), self.model, self.created)
            for name, (text, pick) in _HISTOGRAMS.items()
        }

    def text(
        self, *, missing: tuple[str, ...] = (), overrides: Mapping[str, float] | None = None
    ) -> bytes:
        """All families but the *missing* ones; gauges named in *overrides* tell those values."""
        gauges = {**self._gauges(), **(overrides or {})}
        families = [
            *((name, self._gauge(name, value)) for name, value in gauges.items()),
            *self._counters(),
            *((name, each.text()) for name, each in self._histograms.items()),
            ("vllm:num_requests_waiting_by_reason", self._waiting_by_reason()),
            ("vllm:lora_requests_info", self._adapters()),
            ("vllm:cache_config_info", self._cache_config),
        ]
        return "".join(text for name, text in families if name not in missing).encode()

    def _gauges(self) -> dict[str, float]:
        return {
            "vllm:num_requests_running": self.engine.running,
            "vllm:num_requests_waiting": self.engine.waiting,
            "vllm:kv_cache_usage_perc": self.engine.kv_cache_usage,
        }

    def _gauge(self, name: str, value: float) -> str:
        return _family(name, "gauge", "Of the engine, now.", [(self._engine_labels, value)])

    def _counters(self) -> Iterator[tuple[str, str]]:
        stats, engine = self.engine.stats, self._engine_labels
        plain = {
            "prefix_cache_queries": stats.queried_tokens,
            "prefix_cache_hits": stats.cached_tokens,
            "prompt_tokens": stats.prompt_tokens,
            "prompt_tokens_cached": stats.cached_tokens,
            "generation_tokens": stats.generated_tokens,
            "num_preemptions": 0,
        }
        for name, value in plain.items():
            yield self._counter(f"vllm:{name}", [(engine, value)])
        yield self._counter(
            "vllm:request_success",
            [(self._finished_labels[reason], count) for reason, count in stats.finished.items()],
        )
        refused = _braces({"model_name": self.model, "reason": "max_num_queued_reqs"})
        yield self._counter("vllm:admission_rejections", [(refused, stats.rejected)])

    @cached_property
    def _finished_labels(self) -> dict[str, str]:
        reasons = self.engine.stats.finished
        return {reason: _braces(self._labels(finished_reason=reason)) for reason in reasons}

    def _counter(self, name: str, samples: Samples) -> tuple[str, str]:
        created = [(labels, self.created) for labels, _value in samples]
        help_text = "Since the engine started."
        total = _family(f"{name}_total", "counter", help_text, samples)
        return f"{name}_total", total + _family(f"{name}_created", "gauge", help_text, created)

    def _waiting_by_reason(self) -> str:
        deferred = self.engine.deferred
        reasons = {"capacity": self.engine.waiting - deferred, "deferred": deferred}
        samples = [(_braces(self._labels(reason=name)), count) for name, count in reasons.items()]
        return _family("vllm:num_requests_waiting_by_reason", "gauge", "Why they wait.", samples)

    def _adapters(self) -> str:
        samples: list[tuple[str, float]] = []
        for (running, waiting), at in self.engine.adapters.changes.items():
            labels = {
                "max_lora": str(self.engine.config.max_loras),
                "running_lora_adapters": running,
                "waiting_lora_adapters": waiting,
            }
            samples.append((_braces(labels), self.unix(at)))
        return _family("vllm:lora_requests_info", "gauge", "Unix time of each state.", samples)

    @cached_property
    def _cache_config(self) -> str:
        config = self.engine.config
        tokens = config.num_gpu_blocks * config.block_size
        labels = _CACHE_CONFIG | {
            "block_size": str(config.block_size),
            "effective_attention_block_size": str(config.block_size),
            "kv_cache_max_concurrency": str(tokens / config.max_model_len),
            "kv_cache_size_tokens": str(tokens),
            "num_gpu_blocks": str(config.num_gpu_blocks),
        }
        return _family(
            "vllm:cache_config_info", "gauge", "The cache's shape.", [(_braces(labels), 1.0)]
        )

    def _labels(self, **more: str) -> dict[str, str]:
        return {"engine": "0", "model_name": self.model} | more


@final
@define(eq=False)
class _HistogramText:
    """One histogram and its text, which is kept until the next observation."""

    name: str
    help: str
    histogram: Histogram
    model: str
    created: float
    _lines: list[str] = field(init=False)
    _written: str = field(default="", init=False)
    _count: int = field(default=-1, init=False)

    def __attrs_post_init__(self) -> None:
        bounds = [_number(bound) for bound in (*self.histogram.bounds, math.inf)]
        model = {"model_name": self.model}
        self._lines = [
            f"{self.name}_bucket{_braces({'engine': '0', 'le': bound} | model)} "
            for bound in bounds
        ]

    def text(self) -> str:
        if self._count != self.histogram.count:
            self._count = self.histogram.count
            self._written = "\n".join(self._write())
        return self._written

    def _write(self) -> Iterator[str]:
        braces = _braces({"engine": "0", "model_name": self.model})
        yield f"# HELP {self.name} {self.help}\n# TYPE {self.name} histogram"
        seen = 0
        for line, count in zip(self._lines, self.histogram.counts, strict=True):
            seen += count
            yield f"{line}{_number(seen)}"
        yield f"{self.name}_count{braces} {_number(self.histogram.count)}"
        yield f"{self.name}_sum{braces} {_number(self.histogram.sum)}"
        yield _family(f"{self.name}_created", "gauge", self.help, [(braces, self.created)])


def _family(name: str, kind: str, help_text: str, samples: Samples) -> str:
    lines = [f"{name}{labels} {_number(value)}\n" for labels, value in samples]
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{''.join(lines)}"


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    """As Go and the Python client write it: with an exponent from a million on."""
    if value == math.inf:
        return "+Inf"
    text = repr(float(value))
    whole = text.find(".")
    if whole <= 6 or "e" in text:
        return text
    digits = (text[:whole] + text[whole + 1 :]).rstrip("0")
    fraction = f".{digits[1:]}" if digits[1:] else ""
    return f"{digits[0]}{fraction}e+{whole - 1:02d}"
