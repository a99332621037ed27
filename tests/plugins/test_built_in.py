"""The built-in plugins together, as a configuration wires them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from itertools import chain
from pkgutil import walk_packages
from typing import Any

import pytest
from tests.kernel.zoo import refusal

from pointsman import plugins
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import FRESHNESS, KV_CACHE_USAGE, WAITING_QUEUE_SIZE, Endpoint
from pointsman.kernel.plugin import Role, roles_of
from pointsman.kernel.registry import Registry
from pointsman.kernel.testing import decide, endpoints, pool, wired
from pointsman.kernel.wiring import Wiring

LOAD_SCORERS = ("queue-scorer", "kv-cache-utilization-scorer", "running-requests-size-scorer")


def config(*types: str, more: str = "") -> Wiring:
    listed = "".join(f"- type: {name}\n" for name in types)
    return wired(f"plugins:\n{listed}{more}", *plugins.BUILT_IN)


def test_every_built_in_type_can_be_registered() -> None:
    registry = Registry()
    for plugin_class in plugins.BUILT_IN:
        assert registry.register(plugin_class).summary.endswith(".")


def test_every_plugin_of_the_package_is_listed() -> None:
    modules = walk_packages(plugins.__path__, f"{plugins.__name__}.")
    members = [vars(import_module(module.name)).values() for module in modules]
    found = {one for one in chain(*members) if isinstance(one, type) and "type_name" in vars(one)}
    assert found == set(plugins.BUILT_IN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("by-label-selector", "label-selector-filter"),
        ("by-label", "by-label"),
        ("tokenizer", "token-producer"),
        ("disagg-headers-handler", "disagg-headers-handler"),
        ("prefill-header-handler", "disagg-headers-handler"),
        ("pd-profile-handler", "pd-profile-handler"),
    ],
)
def test_deprecated_names_of_the_reference_are_known_as_such(old: str, new: str) -> None:
    registry = Registry()
    for plugin_class in plugins.BUILT_IN:
        registry.register(plugin_class)
    found = registry.find(old)
    assert found.name == new
    assert old in found.aliases


def test_a_detector_can_be_a_filter_beside_others() -> None:
    text = """
plugins:
- {type: utilization-detector}
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: max-score-picker}
flowControl: {saturationDetector: {pluginRef: concurrency-detector}}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: utilization-detector}, {pluginRef: concurrency-detector}]
"""
    wiring = wired(text, *plugins.BUILT_IN)
    loads = {WAITING_QUEUE_SIZE: [9.0, 0.0], KV_CACHE_USAGE: [0.1, 0.2]}
    snapshot = pool(endpoints("full", "idle"), loads)
    for _ in range(2):
        assert decide(wiring, snapshot).decision.result.target.name == "idle"
    assert refusal(lambda: decide(wiring, snapshot)).status == 429


ALL_SCORERS = [
    one.type_name for one in plugins.BUILT_IN if Role.SCORER in roles_of(one, one.type_name)
]


NEEDED = {
    "endpoint-attribute-scorer": {
        "attributeKey": "waiting-queue-size",
        "algorithm": "{type: linear_lower_is_better}",
    },
    "header-label-affinity-scorer": {"headerName": "x-zone", "labelKey": "zone"},
}
"""What cannot be guessed."""


@pytest.mark.parametrize("scorer", ALL_SCORERS)
def test_c_04_each_scorer_alone_makes_a_configuration_that_picks(scorer: str) -> None:
    """What it needs is added, and it says so; nothing of it fails."""
    needed = ", ".join(f"{name}: {value}" for name, value in NEEDED.get(scorer, {}).items())
    wiring = wired(f"plugins: [{{type: {scorer}, parameters: {{{needed}}}}}]", *plugins.BUILT_IN)
    assert decide(wiring, pool(endpoints("a", "b"))).decision.result.target.name in ("a", "b")
    assert wiring.shape.listed >= {"core-metrics-extractor", "single-profile-handler"}
    assert wiring.installed.keys() == {scorer, *wiring.added}
    assert not [name for name, one in wiring.installed.items() if one.failures]


@pytest.mark.parametrize("scorer", NEEDED)
def test_c_04_what_a_scorer_cannot_do_without_is_named(scorer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(scorer)
    for name in NEEDED[scorer]:
        assert f"parameters.{name}: is required" in str(caught.value)


@pytest.mark.parametrize("picker", ["max-score-picker", "random-picker", "weighted-random-picker"])
def test_each_picker_picks_somebody_of_a_pool_that_reports_nothing(picker: str) -> None:
    wiring = config(*LOAD_SCORERS, picker)
    names = {
        decide(wiring, pool(endpoints("a", "b"))).decision.result.target.name for _ in range(40)
    }
    assert names == {"a", "b"}


def test_the_shipped_default_prefers_the_endpoint_with_less_load() -> None:
    text = files("pointsman").joinpath("conf/default.yaml").read_text()
    wiring = wired(text, *plugins.BUILT_IN)
    loads: dict[Any, Sequence[Any]] = {WAITING_QUEUE_SIZE: [4.0, 0.0], KV_CACHE_USAGE: [0.1, 0.2]}
    assert decide(wiring, pool(endpoints("a", "b"), loads)).decision.result.target.name == "b"


def test_the_shipped_file_discovery_configuration_is_valid() -> None:
    text = files("pointsman").joinpath("conf/file-discovery.yaml").read_text()
    assert wired(text, *plugins.BUILT_IN).discovery is not None


def test_m_10_an_endpoint_that_lacks_a_metric_still_gets_traffic() -> None:
    wiring = config("queue-scorer", "kv-cache-utilization-scorer", "max-score-picker")
    loads = {WAITING_QUEUE_SIZE: [None, 0.0, 4.0], KV_CACHE_USAGE: [0.0, 0.9, 0.9]}
    assert decide(wiring, pool(endpoints("a", "b", "c"), loads)).decision.result.target.name == "a"


class OddScorer:
    """Gives what no scorer may give."""

    type_name = "odd-scorer"
    consumes = Consumes(optional=[FRESHNESS])
    odd: Sequence[float] = (float("nan"), -1.0, 5.0, 0.5)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        return self.odd[: len(endpoints)]


def test_s_02_odd_scores_of_a_plugin_leave_the_pick_valid() -> None:
    types = (*plugins.BUILT_IN, OddScorer)
    wiring = wired("plugins: [{type: odd-scorer}, {type: weighted-random-picker}]", *types)
    snapshot = pool(endpoints("nan", "negative", "five", "half"))
    found = Counter(decide(wiring, snapshot).decision.result.target.name for _ in range(300))
    assert set(found) == {"five", "half"}


@pytest.mark.parametrize("values", [[0.0] * 4, [7.0] * 4])
def test_s_02_equal_queues_spread_evenly(values: list[float]) -> None:
    wiring = config("queue-scorer", "max-score-picker")
    snapshot = pool(endpoints("a", "b", "c", "d"), {WAITING_QUEUE_SIZE: values})
    found = Counter(decide(wiring, snapshot).decision.result.target.name for _ in range(800))
    assert all(150 <= found[name] <= 250 for name in "abcd")


def test_s_01_single_requests_one_after_the_other_spread() -> None:
    wiring = config("queue-scorer", "max-score-picker")
    snapshot = pool(endpoints("a", "b"), {WAITING_QUEUE_SIZE: [1.0, 1.0]})
    found = Counter(decide(wiring, snapshot).decision.result.target.name for _ in range(200))
    assert 70 <= found["a"] <= 130


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "plugins:\n- type: max-score-picker\n  parameters: {maxNumOfEndpoint: 2}",
            r"line 3: plugins\[0\]\.parameters\.maxNumOfEndpoint: unknown field"
            r" .did you mean 'maxNumOfEndpoints'",
        ),
        (
            "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n"
            "  - {pluginRef: queue-scorer, weigth: 2}",
            r"line 6: .*weigth: unknown field .did you mean 'weight'",
        ),
        ("schedulingProfile: []", "schedulingProfile: unknown field .did you mean"),
        ("plugins: [{type: queue-score}]", "unknown plugin type 'queue-score' .did you mean"),
        ("plugins: [{type: queue-scorer, parameters: {x: 1}}]", r"parameters\.x: unknown field"),
        (
            "plugins: [{type: core-metrics-extractor, parameters: {defaultEngine: vlm}}]",
            "did you mean 'vllm'",
        ),
    ],
)
def test_c_01_a_typo_anywhere_is_refused_with_its_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        wired(text, *plugins.BUILT_IN)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("plugins: [{type: queue-scorer}, {type: queue-scorer}]", "'queue-scorer' is taken"),
        (
            "schedulingProfiles: [{name: a}, {name: a}]",
            r"schedulingProfiles\[1\]\.name: the name 'a' is taken already",
        ),
        (
            "schedulingProfiles: [{name: a, plugins: [{pluginRef: nobody}]}]",
            "no plugin is named 'nobody'",
        ),
        (
            "plugins: [{type: single-profile-handler},"
            " {name: other, type: single-profile-handler}]",
            "more than one profile handler: 'single-profile-handler' and 'other'",
        ),
        ("plugins: []\nplugins: []", "line 2: plugins: this key stands twice"),
    ],
)
def test_c_07_duplicate_and_undefined_names_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        wired(text, *plugins.BUILT_IN)


def test_c_07_two_instances_of_one_type_work_under_two_names() -> None:
    wiring = config("queue-scorer", more="- {name: again, type: queue-scorer}\n")
    assert {"queue-scorer", "again"} <= wiring.installed.keys()
