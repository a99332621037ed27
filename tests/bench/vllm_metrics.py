"""The /metrics text of a vLLM 0.32 server under load: its families and labels, in its order.

About 51 KB in 89 families, like the real thing. Only what a picker reads differs from text to text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import frozen

MODEL: Final = "bench-chat"
CREATED: Final = "1.7959647683603437e+09"  # seconds since the epoch

_LABELS: Final = f'{{engine="0",model_name="{MODEL}"}}'
# The upper bounds of the histograms' buckets, as they are written.
_TOKENS: Final = "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0"
_BATCH: Final = "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0"
_FEW: Final = "1.0 2.0 5.0 10.0 20.0"
_PREEMPTIONS: Final = "1.0 2.0 3.0 4.0 5.0 10.0 20.0"
_FIRST_TOKEN: Final = (
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0"
    " 160.0 640.0 2560.0"
)
_TOKEN_GAP: Final = (
    "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0"
)
_LATENCY: Final = (
    "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0"
    " 1920.0 7680.0"
)
_HTTP: Final = (
    "0.01 0.025 0.05 0.075 0.1 0.25 0.5 0.75 1.0 1.5 2.0 2.5 3.0 3.5 4.0 4.5 5.0 7.5 10.0 30.0 60.0"
)

_CACHE_CONFIG: Final = (
    '_block_size_resolved="True",block_size="32",cache_dtype="auto",'
    'cache_hit_alignment_tokens="None",effective_attention_block_size="32",'
    'enable_mamba_shared_prefix_checkpoint="False",enable_prefix_caching="True",engine="0",'
    'gpu_memory_utilization="0.92",hash_block_size="None",is_attention_free="False",'
    'kv_cache_dtype_skip_layers="[]",kv_cache_layout="None",kv_cache_max_concurrency="256.0",'
    'kv_cache_memory_bytes="1073741824",kv_cache_size_tokens="524288",'
    'kv_offloading_backend="native",kv_offloading_size="None",kv_sharing_fast_prefill="False",'
    'mamba_block_size="None",mamba_cache_dtype="auto",mamba_cache_mode="none",'
    'mamba_page_size_padded="None",mamba_ssm_cache_dtype="float32",num_cpu_blocks="None",'
    'num_gpu_blocks="16384",num_gpu_blocks_override="None",prefix_cache_retention_interval="0",'
    'prefix_caching_hash_algo="sha256",prefix_match_unit="None",replayssm_buffer_len="16",'
    'skip_page_size_padded="None",sliding_window="None",swa_bounded_replay="True",'
    'use_kda_recoverssm="False",use_replayssm="False",user_specified_block_size="True"'
)


@frozen
class Load:
    """What a picker reads of a model server."""

    waiting: int
    running: int
    kv_usage: float
    """Share of the KV cache in use, 0 to 1."""


@frozen
class _Family:
    name: str
    kind: str
    help: str
    samples: Sequence[tuple[str, str]]
    """What follows the family's name in a line, and the value."""


def text(load: Load) -> str:
    """The whole exposition of one server."""
    families = (*_process(), *_engine(load), *_histograms(), *_cache(load), *_http())
    return "".join(line for family in families for line in _lines(family))


def _lines(family: _Family) -> Iterable[str]:
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
    yield from (f"{family.name}{labels} {value}\n" for labels, value in family.samples)


def _process() -> Iterable[_Family]:
    generations = [f'{{generation="{n}"}}' for n in range(3)]
    collected = [(labels, "14601.0") for labels in generations]
    version = '{implementation="CPython",major="3",minor="11",patchlevel="7",version="3.11.7"}'
    yield _Family(
        "python_gc_objects_collected_total", "counter", "Objects a gc run freed", collected
    )
    yield _Family(
        "python_gc_objects_uncollectable_total", "counter", "Objects no gc run can free", collected
    )
    yield _Family(
        "python_gc_collections_total", "counter", "Runs of the gc by generation", collected
    )
    yield _Family("python_info", "gauge", "The Python this runs on", [(version, "1.0")])
    for name, kind, about, value in (
        ("virtual_memory_bytes", "gauge", "Address space in bytes.", "1.994375168e+09"),
        ("resident_memory_bytes", "gauge", "Memory in use in bytes.", "6.49777152e+08"),
        ("start_time_seconds", "gauge", "When it started, since the epoch.", "1.795964e+09"),
        ("cpu_seconds_total", "counter", "User and system time so far.", "8.46"),
        ("open_fds", "gauge", "File descriptors in use.", "58.0"),
        ("max_fds", "gauge", "File descriptors it may have.", "20000.0"),
    ):
        yield _Family(f"process_{name}", kind, about, [("", value)])


def _engine(load: Load) -> Iterable[_Family]:
    for what in ("flops", "read_bytes", "write_bytes"):
        about = f"How many {what} one GPU has spent, by the estimate that utilization is based on."
        yield from _counter(f"estimated_{what}_per_gpu", about)
    yield _gauge("num_requests_running", "Requests in the current batches.", f"{load.running}.0")
    yield _gauge("num_requests_waiting", "Requests that wait for a batch.", f"{load.waiting}.0")
    reasons = [("capacity", f"{load.waiting}.0"), ("deferred", "0.0")]
    about = "Requests that wait, by what they wait for: room in a batch, or something passing."
    yield _split("num_requests_waiting_by_reason", "gauge", about, "reason", reasons)
    states = [("awake", "1.0"), ("weights_offloaded", "0.0"), ("discard_all", "0.0")]
    about = "1 for the state that the engine is in: awake, or one of two depths of sleep."
    yield _split("engine_sleep_state", "gauge", about, "sleep_state", states)
    yield _gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", f"{load.kv_usage}")
    yield from _tokens()
    yield from _endings()


def _tokens() -> Iterable[_Family]:
    for kind in ("prefix", "external_prefix", "mm"):
        about = f"What was looked up in the {kind} cache, in units of that cache."
        yield from _counter(f"{kind}_cache_queries", about)
        yield from _counter(f"{kind}_cache_hits", f"What the {kind} cache could answer of it.")
    yield from _counter("num_preemptions", "How often the engine took a request out again.")
    yield from _counter("prompt_tokens", "Prompt tokens taken in.")
    sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
    yield from _counters("prompt_tokens_by_source", "The same by origin.", "source", sources)
    yield from _counter("prompt_tokens_cached", "Prompt tokens that some cache held.")
    tiers = ("device", "host", "p2p", "disk", "external_unspecified")
    about = (
        "The same by the tier of the cache that held them, from the device's own memory outward."
    )
    yield from _counters("prompt_tokens_cached_by_source", about, "source", tiers)
    yield from _counter("generation_tokens", "Tokens produced.")


def _endings() -> Iterable[_Family]:
    endings = ("stop", "length", "abort", "error", "repetition")
    about = "Requests that came to an end, by its cause."
    yield from _counters("request_success", about, "finished_reason", endings)
    queued = f'{{model_name="{MODEL}",reason="max_num_queued_%s"}}'
    reasons = [(queued % unit, "0.0") for unit in ("reqs", "tokens")]
    about = "Requests turned away because a queue was full."
    yield from _with_created("admission_rejections", "counter", about, reasons)


def _histograms() -> Iterable[_Family]:
    for name, about, bounds in (
        ("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS),
        ("request_generation_tokens", "Tokens produced for a request.", _TOKENS),
        ("iteration_tokens_total", "Tokens that one engine step handled.", _BATCH),
        ("request_max_num_generation_tokens", "Most tokens that a request asked for.", _TOKENS),
        ("request_params_n", "Answers that a request asked for.", _FEW),
        ("request_params_max_tokens", "The limit of tokens that a request set.", _TOKENS),
        ("time_to_first_token_seconds", "Wait for the first token.", _FIRST_TOKEN),
        ("inter_token_latency_seconds", "Wait for each further token.", _TOKEN_GAP),
        ("request_time_per_output_token_seconds", "The same, a request's mean.", _TOKEN_GAP),
        ("e2e_request_latency_seconds", "A request's whole time in the server.", _LATENCY),
        ("request_queue_time_seconds", "The part of it spent in the queue.", _LATENCY),
        ("request_inference_time_seconds", "The part of it spent in batches.", _LATENCY),
        ("request_prefill_time_seconds", "The part of it spent on the prompt.", _LATENCY),
        ("request_decode_time_seconds", "The part of it spent on the answer.", _LATENCY),
        ("request_num_preemptions", "How often a request was taken out.", _PREEMPTIONS),
        ("request_prefill_kv_computed_tokens", "Prompt tokens no cache held.", _TOKENS),
    ):
        labels = f'engine="0",le="%s",model_name="{MODEL}"'
        yield _histogram(f"vllm:{name}", about, bounds, labels)
        yield _gauge(f"{name}_created", about, CREATED)


def _cache(load: Load) -> Iterable[_Family]:
    set_up = '{max_lora="2",running_lora_adapters="%s",waiting_lora_adapters="%s"}'
    # The newest of these lines counts, and its value is its time.
    since = f"{CREATED[:-5]}{load.running % 10}e+09"
    adapters = [(set_up % ("", ""), CREATED), (set_up % ("adapter-a", "adapter-a"), since)]
    yield _Family("vllm:lora_requests_info", "gauge", "Adapters in use and in demand.", adapters)
    config = [(f"{{{_CACHE_CONFIG}}}", "1.0")]
    yield _Family("vllm:cache_config_info", "gauge", "How the KV cache is set up.", config)


def _http() -> Iterable[_Family]:
    sized = "By handler; taken from the content-length header alone, so without those that lack it."
    yield _Family("http_requests_total", "counter", "Requests by method, status, handler.", ())
    yield _Family("http_request_size_bytes", "summary", f"Size of requests. {sized}", ())
    yield _Family("http_response_size_bytes", "summary", f"Size of responses. {sized}", ())
    name, about = "http_request_duration_highr_seconds", "Latency in fine steps, all handlers."
    yield _histogram(name, about, _HTTP, 'le="%s"')
    yield _Family(f"{name}_created", "gauge", about, [("", CREATED)])
    about = "Latency in coarse steps, by handler."
    yield _Family("http_request_duration_seconds", "histogram", about, ())


def _histogram(name: str, about: str, bounds: str, labels: str) -> _Family:
    """*labels* with ``le="%s"`` among them."""
    others = labels.replace('le="%s",', "")
    plain = "" if others == labels else f"{{{others}}}"
    limits = (*bounds.split(), "+Inf")
    buckets = [(f"_bucket{{{labels % limit}}}", "16.0") for limit in limits]
    totals = [(f"_count{plain}", "16.0"), (f"_sum{plain}", "7.488819599151611")]
    return _Family(name, "histogram", about, [*buckets, *totals])


def _gauge(name: str, about: str, value: str) -> _Family:
    return _Family(f"vllm:{name}", "gauge", about, [(_LABELS, value)])


def _counter(name: str, about: str) -> Iterable[_Family]:
    return _with_created(name, "counter", about, [(_LABELS, "2928.0")])


def _counters(name: str, about: str, label: str, values: Sequence[str]) -> Iterable[_Family]:
    samples = [(_labels(label, value), "1280.0") for value in values]
    return _with_created(name, "counter", about, samples)


def _split(
    name: str, kind: str, about: str, label: str, values: Sequence[tuple[str, str]]
) -> _Family:
    return _Family(f"vllm:{name}", kind, about, [(_labels(label, of), is_) for of, is_ in values])


def _labels(label: str, value: str) -> str:
    """With one more label, in alphabetical order as the client library writes them."""
    pairs = sorted([("engine", "0"), ("model_name", MODEL), (label, value)])
    return "{" + ",".join(f'{name}="{of}"' for name, of in pairs) + "}"


def _with_created(
    name: str, kind: str, about: str, samples: Sequence[tuple[str, str]]
) -> Iterable[_Family]:
    yield _Family(f"vllm:{name}_total", kind, about, samples)
    created = [(labels, CREATED) for labels, _ in samples]
    yield _Family(f"vllm:{name}_created", "gauge", about, created)
