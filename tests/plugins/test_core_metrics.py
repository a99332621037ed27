"""What is read of model servers' metrics. M-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from itertools import permutations
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.document import read_document
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.keys import EndpointKey, Key, keys
from pointsman.kernel.model import (
    CACHE_CONFIG,
    KV_CACHE_USAGE,
    LORA_ADAPTERS,
    RUNNING_REQUESTS,
    WAITING_QUEUE_SIZE,
    CacheConfig,
    LoraAdapters,
)
from pointsman.kernel.structure import structure
from pointsman.plugins.core_metrics import (
    SIGNALS,
    CoreMetricsExtractor,
    CoreMetricsParameters,
    MetricSpec,
)

NO_SPEC: Final = re.compile(r"is no (metric|label) such as")
DATA = Path(__file__).parent / "data"
SCALARS = (WAITING_QUEUE_SIZE, RUNNING_REQUESTS, KV_CACHE_USAGE)


def configured(yaml: str = "") -> CoreMetricsExtractor:
    """The plugin as a configuration's *parameters* make it. Raises ConfigError."""
    document = read_document(yaml or "{}", "test")
    parameters = structure(document, document.data, CoreMetricsParameters)
    document.refuse_if_mistaken()
    assert parameters is not None
    return CoreMetricsExtractor(parameters)


def extract(
    text: str | bytes, engine: str = "vllm", *, wanted: frozenset[Key] = SIGNALS, yaml: str = ""
) -> Mapping[Key, Any]:
    read = configured(yaml).extractor({"llm-d.ai/engine-type": engine}, wanted)
    return read(text if isinstance(text, bytes) else text.encode())


def real(name: str) -> Mapping[Key, Any]:
    return extract((DATA / f"vllm-{name}.txt").read_bytes())


# -- vLLM 0.32 as it prints -----------------------------------------------------------------------


def test_an_idle_vllm_reports_zeros_and_its_cache() -> None:
    assert real("idle") == {
        WAITING_QUEUE_SIZE: 0.0,
        RUNNING_REQUESTS: 0.0,
        KV_CACHE_USAGE: 0.0,
        LORA_ADAPTERS: LoraAdapters(),
        CACHE_CONFIG: CacheConfig(block_size=32, blocks=16384),
    }


def test_a_loaded_vllm_reports_its_load_and_the_current_adapters() -> None:
    assert real("load") == {
        WAITING_QUEUE_SIZE: 8.0,
        RUNNING_REQUESTS: 16.0,
        KV_CACHE_USAGE: 0.008301287920405298,
        LORA_ADAPTERS: LoraAdapters(frozenset({"adapter-a"}), frozenset({"adapter-a"}), 2),
        CACHE_CONFIG: CacheConfig(block_size=32, blocks=16384),
    }


def test_an_overloaded_vllm_reports_a_full_cache_and_no_adapters_any_more() -> None:
    assert real("overload") == {
        WAITING_QUEUE_SIZE: 0.0,
        RUNNING_REQUESTS: 6.0,
        KV_CACHE_USAGE: 0.7021276595744681,
        LORA_ADAPTERS: LoraAdapters(most=2),
        CACHE_CONFIG: CacheConfig(block_size=32, blocks=48),
    }


def test_only_what_is_wanted_is_read() -> None:
    wanted = keys(KV_CACHE_USAGE)
    assert extract("vllm:num_requests_waiting 3\n", wanted=wanted) == {KV_CACHE_USAGE: None}


@pytest.mark.parametrize("text", ["", "<html>502</html>", "vllm:num_requests_waiting\n", "\0\xff"])
def test_garbage_reports_nothing(text: str) -> None:
    assert extract(text) == {
        **dict.fromkeys((*SCALARS, CACHE_CONFIG)),
        LORA_ADAPTERS: LoraAdapters(),
    }


looking_alike = st.text('vllm:num_requests_waiting{}="\\, \n019', max_size=200).map(str.encode)


@given(st.binary() | looking_alike)
def test_no_text_makes_the_extractor_raise(text: bytes) -> None:
    prefix = b"vllm:cache_config_info{block_size="
    assert set(extract(prefix + text + b"\nvllm:lora_requests_info" + text)) == set(SIGNALS)


# -- the field reports ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.7\n',
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.7\n',
        "vllm:gpu_cache_usage_perc 0.1\nvllm:kv_cache_usage_perc 0.7\n",
    ],
)
def test_m_01_a_renamed_family_is_read_under_either_name_and_the_new_one_wins(text: str) -> None:
    assert extract(text)[KV_CACHE_USAGE] == 0.7


@pytest.mark.parametrize(
    "lora",
    [
        "",
        "# HELP vllm:lora_requests_info Running.\n# TYPE vllm:lora_requests_info gauge\n",
    ],
)
def test_m_02_no_adapters_is_no_error(lora: str) -> None:
    found = extract(lora + "vllm:num_requests_waiting 2\n")
    assert found[LORA_ADAPTERS] == LoraAdapters()
    assert found[WAITING_QUEUE_SIZE] == 2.0


ADAPTERS: Final = (
    'vllm:lora_requests_info{max_lora="2",running_lora_adapters="%s",waiting_lora_adapters=""} %s'
)


@pytest.mark.parametrize(("earlier", "later", "current"), [("a, b", "", ()), ("", "a, b", "ab")])
def test_m_03_the_latest_adapters_count_in_whatever_order(
    earlier: str, later: str, current: str
) -> None:
    first = ADAPTERS % (earlier, "1.7959646266372478e+09")
    second = ADAPTERS % (later, "1.7959646402656558e+09")
    for lines in permutations([first, second]):
        assert extract("\n".join(lines))[LORA_ADAPTERS] == LoraAdapters(frozenset(current), most=2)


def test_m_04_several_engines_behind_one_port_add_up() -> None:
    waiting = (
        'vllm:num_requests_waiting{engine="0",model_name="m"} 0',
        'vllm:num_requests_waiting{model_name="m",engine="1"} 8',
    )
    for lines in permutations(waiting):
        assert extract("\n".join(lines))[WAITING_QUEUE_SIZE] == 8.0


def test_m_04_cache_use_of_several_engines_is_their_mean() -> None:
    text = 'vllm:kv_cache_usage_perc{engine="0"} 0.25\nvllm:kv_cache_usage_perc{engine="1"} 0.75'
    assert extract(text)[KV_CACHE_USAGE] == 0.5


def test_m_04_blocks_of_several_engines_add_up() -> None:
    line = 'vllm:cache_config_info{engine="%s",block_size="16",num_gpu_blocks="100"} 1'
    assert extract(f"{line % 0}\n{line % 1}")[CACHE_CONFIG] == CacheConfig(16, 200)


@pytest.mark.parametrize("nothing", ["None", "", "0", "-1", "x", "1e3", "9" * 5000])
def test_m_08_a_label_that_is_no_number_is_unknown_and_spoils_nothing(nothing: str) -> None:
    text = (
        f'vllm:cache_config_info{{block_size="32",num_gpu_blocks="{nothing}",'
        'prefix_match_unit="None"} 1.0'
    )
    assert extract(text)[CACHE_CONFIG] == CacheConfig(block_size=32)


def test_m_08_a_cache_config_without_any_number_is_unknown() -> None:
    text = 'vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1.0'
    assert extract(text)[CACHE_CONFIG] is None


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_m_09_a_value_that_is_no_number_is_missing(value: str) -> None:
    text = f"vllm:kv_cache_usage_perc {value}\nvllm:num_requests_waiting {value}\n"
    found = extract(text)
    assert found[KV_CACHE_USAGE] is None
    assert found[WAITING_QUEUE_SIZE] is None


def test_m_09_interleaved_series_all_count() -> None:
    text = (
        'vllm:num_requests_running {model_name="a"} 3 1700000000000\nother 1\n'
        'vllm:num_requests_running {model_name="b"} 4'
    )
    assert extract(text)[RUNNING_REQUESTS] == 7.0


def test_m_10_one_missing_family_leaves_the_others() -> None:
    found = extract("vllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5\n")
    assert [found[key] for key in SCALARS] == [None, 2.0, 0.5]


@pytest.mark.parametrize(
    ("printed", "value"), [("1.0000001", 1.0), ("-0.0", 0.0), ("-0.3", 0.0), ("75", 1.0)]
)
def test_m_13_cache_use_stays_between_0_and_1(printed: str, value: float) -> None:
    found = extract(f"vllm:kv_cache_usage_perc {printed}\n")[KV_CACHE_USAGE]
    assert repr(found) == repr(value)


# -- other engines --------------------------------------------------------------------------------


def test_sglang_is_read() -> None:
    text = (
        "sglang:num_queue_reqs 3\nsglang:num_running_reqs 5\nsglang:token_usage 0.25\n"
        'sglang:cache_config_info{page_size="64",num_pages="1000"} 1\n'
    )
    found = extract(text, "sglang")
    assert [found[key] for key in SCALARS] == [3.0, 5.0, 0.25]
    assert found[CACHE_CONFIG] == CacheConfig(64, 1000)


def test_trtllm_serve_keeps_its_cache_layout_in_gauges() -> None:
    text = (
        "trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\n"
        "trtllm_kv_cache_utilization 0.5\ntrtllm_kv_cache_tokens_per_block 32\n"
        "trtllm_kv_cache_max_blocks 500\n"
    )
    found = extract(text, "trtllm-serve")
    assert [found[key] for key in SCALARS] == [1.0, 2.0, 0.5]
    assert found[CACHE_CONFIG] == CacheConfig(32, 500)


def test_triton_with_tensorrt_llm_tells_figures_apart_by_label() -> None:
    requests = "nv_trt_llm_request_metrics{request_type=%r,model=%r} %d\n"
    blocks = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=%r} %g\n"
    text = "".join(
        [
            *(requests % row for row in [("waiting", "m", 4), ("scheduled", "m", 6)]),
            *(blocks % row for row in [("fraction", 0.5), ("tokens_per", 64), ("max", 100)]),
        ]
    ).replace("'", '"')
    found = extract(text, "triton-tensorrt-llm")
    assert [found[key] for key in SCALARS] == [4.0, 6.0, 0.5]
    assert found[CACHE_CONFIG] == CacheConfig(64, 100)
    assert found[LORA_ADAPTERS] == LoraAdapters()


def test_an_engine_without_a_signal_reports_none_of_it() -> None:
    text = "nv_inference_pending_request_count 2\nnv_inference_exec_count 1\n"
    assert [extract(text, "triton")[key] for key in SCALARS] == [2.0, 1.0, None]


def test_a_cache_layout_of_nothing_is_unknown() -> None:
    text = "trtllm_kv_cache_tokens_per_block 0\ntrtllm_kv_cache_max_blocks 0\n"
    assert extract(text, "trtllm-serve")[CACHE_CONFIG] is None


@pytest.mark.parametrize(
    ("labels", "engine"),
    [
        ({}, "vllm"),
        ({"llm-d.ai/engine-type": "sglang"}, "sglang"),
        ({"inference.networking.k8s.io/engine-type": "triton"}, "triton"),
        ({"llm-d.ai/engine-type": "unheard-of"}, "vllm"),
    ],
)
def test_a_pod_s_label_names_its_engine(labels: Mapping[str, str], engine: str) -> None:
    assert configured().engine(labels).name == engine


def test_the_label_and_the_default_engine_can_be_others() -> None:
    extractor = configured("{engineLabelKey: engine, defaultEngine: sglang}")
    assert extractor.engine({"engine": "triton"}).name == "triton"
    assert extractor.engine({"llm-d.ai/engine-type": "triton"}).name == "sglang"


# -- configured engines ---------------------------------------------------------------------------

OWN_ENGINE = """
engineConfigs:
- name: mine
  queuedRequestsSpec: 'queue{kind="a,b", state=waiting}'
  customMetrics:
  - {attributeKey: temperature, metricSpec: gpu_temperature}
"""


def test_a_configured_engine_has_its_own_names_labels_and_numbers() -> None:
    extractor = configured(OWN_ENGINE)
    (custom,) = (key for key in extractor.produces if key.name == "temperature")
    assert isinstance(custom, EndpointKey)
    assert custom.type is float
    read = extractor.extractor({"llm-d.ai/engine-type": "mine"}, extractor.produces)
    text = (
        b'queue{kind="a,b",state="waiting"} 3\nqueue{kind="a,b",state="done"} 9\n'
        b"gpu_temperature 70\ngpu_temperature 75\n"
    )
    found = read(text)
    assert found[WAITING_QUEUE_SIZE] == 3.0
    assert found[custom] == 75.0


def test_a_configured_engine_replaces_the_built_in_one_of_its_name() -> None:
    yaml = "engineConfigs: [{name: vllm, queuedRequestsSpec: my_queue}]"
    found = extract("my_queue 4\nvllm:num_requests_running 1\n", yaml=yaml)
    assert [found[key] for key in SCALARS] == [4.0, None, None]


@pytest.mark.parametrize(
    ("yaml", "complaint"),
    [
        ("engineConfigs: [{name: a}, {name: a}]", "unique"),
        ("engineConfigs: [{name: default}]", "'default'"),
        ("defaultEngine: vlm", "did you mean 'vllm'"),
        ("defaultEngine: zzzz", "defaultEngine 'zzzz' is not known"),
        (
            "engineConfigs: [{name: a, customMetrics:"
            " [{attributeKey: kv-cache-usage, metricSpec: x}]}]",
            "'kv-cache-usage' is a built-in signal's",
        ),
    ],
)
def test_engines_that_contradict_each_other_are_refused(yaml: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        configured(yaml)


@pytest.mark.parametrize(
    ("yaml", "complaint"),
    [
        ("engineConfigs: [{name: ''}]", r"line 1: engineConfigs\[0\]\.name: must not be empty"),
        (
            "engineConfigs:\n- name: a\n  kvUsageSpec: 'a b'",
            r"line 3: engineConfigs\[0\]\.kvUsageSpec: 'a b' is no metric",
        ),
        (
            "engineConfigs:\n- {name: a, customMetrics: [{attributeKey: k, metricSpec: 'x{'}]}",
            r"line 2: engineConfigs\[0\]\.customMetrics\[0\]\.metricSpec",
        ),
        ("engineConfig: []", "engineConfig: unknown field .did you mean 'engineConfigs'"),
    ],
)
def test_c_01_mistakes_in_parameters_are_named_with_line_and_field(
    yaml: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        configured(yaml)


# -- specs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("vllm:x", b"vllm:x", {}),
        (" x ", b"x", {}),
        ("x{}", b"x", {}),
        ("x { a = b }", b"x", {"a": "b"}),
        ('x{a="b",c=d,}', b"x", {"a": "b", "c": "d"}),
        (r'x{a="b,\"c\" d\\",e=f}', b"x", {"a": 'b,"c" d\\', "e": "f"}),
        ('x{a=""}', b"x", {"a": ""}),
    ],
)
def test_a_spec_is_a_name_and_labels(text: str, name: bytes, labels: Mapping[str, str]) -> None:
    assert MetricSpec.parse(text) == MetricSpec(name, labels)


@pytest.mark.parametrize(
    "text",
    ["", "1x", "x y", "x{", "x}", "x{a}", "x{a=}", "x{a=b c}", "x{a=b,,c=d}", 'x{a="b}', "ü"],
)
def test_anything_else_is_no_spec(text: str) -> None:
    with pytest.raises(ValueError, match=NO_SPEC):
        MetricSpec.parse(text)


@given(st.text())
def test_no_text_makes_the_spec_parser_fail_otherwise(text: str) -> None:
    with suppress(ValueError):
        MetricSpec.parse(text)
