"""The metrics text, beside an excerpt of the real one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.actors.sim.engine import Engine
from pointsman.actors.sim.exposition import Exposition
from pointsman.actors.sim.work import EngineConfig, Work

REAL = (Path(__file__).parent / "data" / "vllm-metrics.txt").read_text()
_NAMES = """
    num_requests_running num_requests_waiting kv_cache_usage_perc lora_requests_info
    cache_config_info prompt_tokens generation_tokens request_success prefix_cache_queries
    prefix_cache_hits time_to_first_token_seconds inter_token_latency_seconds
    request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
    request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds
    request_prompt_tokens request_generation_tokens request_params_max_tokens
    request_max_num_generation_tokens
"""


@pytest.fixture
def engine() -> Engine:
    """One that has answered, and has someone running and waiting."""
    engine = Engine(EngineConfig(max_num_seqs=1, max_loras=2))
    for adapter in ("a", "b", None):
        engine.submit(
            Work(prompt_tokens=40, output_tokens=50, asked_tokens=60, adapter=adapter), 0.0
        )
    engine.advance(1.0)
    return engine


@pytest.fixture
def exposition(engine: Engine) -> Exposition:
    return Exposition(engine, "llama", 1_795_964_768.5, lambda time: 1_795_964_768.5 + time)


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def value(text: bytes, name: str, **labels: str) -> float:
    found = [
        number
        for sample, own, number in samples(text.decode())
        if sample == name and labels.items() <= own.items()
    ]
    assert len(found) == 1
    return found[0]


def shapes(text: str) -> dict[str, set[frozenset[str]]]:
    """The sets of label names under each sample name."""
    found: dict[str, set[frozenset[str]]] = defaultdict(set)
    for name, labels, _value in samples(text):
        found[name].add(frozenset(labels))
    return found


def types(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def test_every_sample_has_the_name_and_the_labels_of_a_real_one(exposition: Exposition) -> None:
    real = shapes(REAL)
    for name, labels in shapes(exposition.text().decode()).items():
        assert labels <= real[name], name


def test_every_family_has_the_type_of_the_real_one(exposition: Exposition) -> None:
    ours = types(exposition.text().decode())
    assert ours.items() <= types(REAL).items()


def test_every_family_that_pickers_and_dashboards_read_is_there(exposition: Exposition) -> None:
    ours = types(exposition.text().decode())
    names = {name.removeprefix("vllm:").removesuffix("_total") for name in ours}
    assert set(_NAMES.split()) <= names


@pytest.mark.parametrize(
    "name",
    [
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:e2e_request_latency_seconds",
    ],
)
def test_histograms_have_the_real_buckets(exposition: Exposition, name: str) -> None:
    def bounds(text: str) -> list[str]:
        return [labels["le"] for each, labels, _ in samples(text) if each == f"{name}_bucket"]

    assert bounds(exposition.text().decode()) == bounds(REAL)


def test_gauges_tell_the_engines_state(exposition: Exposition, engine: Engine) -> None:
    text = exposition.text()
    assert value(text, "vllm:num_requests_running") == engine.running == 1
    assert value(text, "vllm:num_requests_waiting") == engine.waiting == 1
    assert value(text, "vllm:kv_cache_usage_perc") == engine.kv_cache_usage > 0


def test_counters_tell_its_totals(exposition: Exposition) -> None:
    text = exposition.text()
    assert value(text, "vllm:request_success_total", finished_reason="length") == 1
    assert value(text, "vllm:prompt_tokens_total") == 80
    assert value(text, "vllm:generation_tokens_total") > 50
    assert value(text, "vllm:e2e_request_latency_seconds_count") == 1
    assert value(text, "vllm:request_params_max_tokens_sum") == 60


def test_a_histogram_is_told_anew_after_an_observation(
    exposition: Exposition, engine: Engine
) -> None:
    assert value(exposition.text(), "vllm:request_prompt_tokens_count") == 1
    engine.advance(100.0)
    text = exposition.text()
    assert value(text, "vllm:request_prompt_tokens_count") == 3
    assert value(text, "vllm:request_prompt_tokens_bucket", le="20.0") == 0
    assert value(text, "vllm:request_prompt_tokens_bucket", le="50.0") == 3
    assert value(text, "vllm:request_prompt_tokens_bucket", le="+Inf") == 3


def test_the_last_state_of_the_adapters_has_the_latest_time(exposition: Exposition) -> None:
    states = {
        (labels["running_lora_adapters"], labels["waiting_lora_adapters"]): at
        for name, labels, at in samples(exposition.text().decode())
        if name == "vllm:lora_requests_info"
    }
    assert max(states, key=lambda state: states[state]) == ("b", "")
    assert states["a", ""] == 1_795_964_768.5


def test_the_shape_of_the_cache_is_told(exposition: Exposition) -> None:
    labels = {"block_size": "16", "num_gpu_blocks": "2048"}
    assert value(exposition.text(), "vllm:cache_config_info", **labels) == 1.0


def test_families_can_be_missing(exposition: Exposition) -> None:
    text = exposition.text(missing=("vllm:kv_cache_usage_perc", "vllm:lora_requests_info"))
    assert b"kv_cache_usage_perc" not in text
    assert b"lora_requests_info" not in text
    assert value(text, "vllm:num_requests_running") == 1


def test_gauges_can_tell_what_they_are_told_to(exposition: Exposition) -> None:
    text = exposition.text(overrides={"vllm:num_requests_waiting": 17})
    assert value(text, "vllm:num_requests_waiting") == 17


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0.0"),
        (999_999, "999999.0"),
        (1_000_000, "1e+06"),
        (1_234_567.5, "1.2345675e+06"),
        (12_345_678_901, "1.2345678901e+10"),
        (0.001, "0.001"),
    ],
)
def test_numbers_are_written_as_clients_write_them(
    exposition: Exposition, number: float, text: str
) -> None:
    told = exposition.text(overrides={"vllm:num_requests_waiting": number}).decode()
    assert re.search(r"^vllm:num_requests_waiting\{.*\} (.*)$", told, re.MULTILINE)
    assert f'vllm:num_requests_waiting{{engine="0",model_name="llama"}} {text}\n' in told


def test_label_values_are_escaped(engine: Engine) -> None:
    text = Exposition(engine, 'a"b\\c\nd', 0.0, float).text().decode()
    models = {labels["model_name"] for _, labels, _ in samples(text) if "model_name" in labels}
    assert models == {'a"b\\c\nd'}
