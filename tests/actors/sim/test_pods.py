"""Settings of servers, read from the texts of a command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.faults import Faults
from pointsman.actors.sim.pods import (
    BadSetting,
    Pod,
    PodSettings,
    descriptions,
    read_override,
    read_settings,
)


def test_settings_have_the_types_of_their_fields() -> None:
    settings = read_settings(
        {"max-num-seqs": "4", "failure_rate": "2.5", "lora-modules": "a+b", "waiting": "3"}
    )
    assert settings == PodSettings(
        max_num_seqs=4, failure_rate=2.5, lora_modules=("a", "b"), waiting="3"
    )


def test_what_is_not_given_is_the_default() -> None:
    assert read_settings({}) == PodSettings()


def test_every_setting_is_described() -> None:
    assert all(descriptions().values())
    assert set(descriptions()) == set(PodSettings.__struct_fields__)


def test_the_context_is_as_large_as_the_cache_unless_said() -> None:
    assert read_settings({"num-gpu-blocks": "10"}).engine_config().max_model_len == 160
    assert read_settings({"max-model-len": "99"}).engine_config().max_model_len == 99


def test_single_latencies_replace_those_of_the_profile() -> None:
    settings = read_settings({"profile": "70b-tp8", "inter-token-latency": "0.5"})
    profile = settings.latency_profile()
    assert (profile.prefill_overhead, profile.inter_token_latency) == (0.080, 0.5)


def test_faults_are_the_part_that_may_change() -> None:
    assert read_settings({"kv": "0.5", "background": "3"}).faults() == Faults(
        kv="0.5", background=3
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max-num-seqs": "x"}, "--max-num-seqs: Expected `int`, got `str` (requests that run"),
        ({"max-num-seqs": "0"}, "--max-num-seqs: Expected `int` >= 1"),
        ({"max-num-seq": "1"}, "--unknown setting 'max-num-seq', did you mean 'max-num-seqs'?"),
        ({"profile": "h100"}, "--profile: Invalid enum value 'h100' (how fast it is: 8b-h100, "),
        ({"kv": "wave:0:1:2"}, "--kv: 'wave:0:1:2' is neither a number nor SHAPE:START:END:PER"),
        ({"max-model-len": "99999"}, "--max-model-len: the cache's blocks do not hold as many"),
        ({"labels": "zone"}, "--labels: 'zone' is not KEY:VALUE"),
        ({"failure-types": "x"}, "--failure-types: Invalid enum value 'x' (how they fail: some"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, str], text: str) -> None:
    with pytest.raises(BadSetting) as bad:
        read_settings(settings, "--")
    assert str(bad.value).startswith(text)


def test_an_override_is_a_name_and_its_settings() -> None:
    assert read_override("sim-1:background=12,waiting=ramp:0:9:5s") == (
        "sim-1",
        {"background": "12", "waiting": "ramp:0:9:5s"},
    )


@pytest.mark.parametrize("text", ["", "sim-1", "sim-1:", "sim-1:background", ":a=1", "a:b=1,,"])
def test_an_override_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadSetting, match="expected NAME:key=value"):
        read_override(text)


@given(st.dictionaries(st.sampled_from(sorted(PodSettings.__struct_fields__)), st.text()))
def test_settings_fail_in_one_line(texts: dict[str, str]) -> None:
    try:
        read_settings(texts)
    except BadSetting as bad:
        assert str(bad)  # noqa: PT017


def test_a_pod_is_listed_as_file_discovery_reads_it() -> None:
    pod = Pod("sim-1", "127.0.1.1", 8000, read_settings({"labels": "zone:a+url:x:y"}))
    assert pod.endpoint() == {
        "name": "sim-1",
        "namespace": "default",
        "address": "127.0.1.1",
        "port": "8000",
        "labels": {"zone": "a", "url": "x:y"},
    }
