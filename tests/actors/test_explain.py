"""What the daemon says of its endpoints and plugins, as JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import msgspec
import pytest

from pointsman import plugins
from pointsman.actors.explain import endpoints, plain, plugin_states
from pointsman.actors.signals import Signals
from pointsman.kernel.channel import Latest
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    LORA_ADAPTERS,
    WAITING_QUEUE_SIZE,
    CacheConfig,
    Endpoint,
    Freshness,
    LoraAdapters,
)
from pointsman.kernel.plugin import Mask, Results
from pointsman.kernel.testing import endpoint, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.prefix_index import BlockHashes, root_hash

CONFIG: Final = """
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: choosy-filter}
- {type: both}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer}]
- name: choosy
  plugins: [{pluginRef: choosy-filter}, {pluginRef: queue-scorer}]
"""


class ChoosyFilter:
    """Keeps whoever has a label."""

    type_name: ClassVar = "choosy-filter"
    consumes: ClassVar = Consumes(optional=[LORA_ADAPTERS])

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        return [bool(endpoint.labels) for endpoint in endpoints]

    def dump_state(self) -> object:
        return {"kept": 1}


class BothProfiles:
    """Runs every profile."""

    type_name: ClassVar = "both"

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return () if results else available

    def primary(self, data: DataView, results: Results) -> str:
        return "default"

    def dump_state(self) -> object:
        raise RuntimeError("a prompt")


POOL: Final = (
    endpoint("a", address="10.0.0.1", labels={"app": "vllm"}),
    endpoint("b", address="fd00::7", port=9000),
)
REPORTS: Final[Mapping[Any, Any]] = {
    WAITING_QUEUE_SIZE: [0.0, 4.0],
    KV_CACHE_USAGE: [0.25, None],
    FRESHNESS: [Freshness.FRESH, None],
}


@pytest.fixture
def wiring() -> Wiring:
    return wired(CONFIG, *plugins.BUILT_IN, ChoosyFilter, BothProfiles)


def test_each_endpoint_is_shown_with_what_it_reports_and_how_it_is_rated(wiring: Wiring) -> None:
    POOL[1].identity.note_pick()
    a, b = endpoints(wiring, pool(POOL, REPORTS))
    assert a == {
        "id": "default/a",
        "address": "10.0.0.1:8000",
        "labels": {"app": "vllm"},
        "picks": 0,
        "values": {
            "kv-cache-usage": 0.25,
            "metrics-freshness": "fresh",
            "waiting-queue-size": 0.0,
        },
        "scores": {"default": 2.75, "choosy": 1.0},
    }
    assert (b["address"], b["picks"]) == ("[fd00::7]:9000", 1)
    assert b["scores"] == {"default": 0.75, "choosy": None}


def test_a_pool_of_nobody_is_an_empty_list(wiring: Wiring) -> None:
    assert endpoints(wiring, pool([])) == []


def test_a_profile_that_keeps_nobody_has_no_scores(wiring: Wiring) -> None:
    (b,) = endpoints(wiring, pool(POOL[1:]))
    assert set(b["scores"]) == {"default"}  # type: ignore[call-overload]


def test_looking_is_no_pick(wiring: Wiring) -> None:
    before = [one.identity.picks for one in POOL]
    endpoints(wiring, pool(POOL, REPORTS))
    assert [one.identity.picks for one in POOL] == before


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (1.5, 1.5),
        (Freshness.STALE, "stale"),
        (frozenset({"b", "a"}), ["a", "b"]),
        (
            LoraAdapters(frozenset({"x"}), frozenset(), 2),
            {"running": ["x"], "waiting": [], "most": 2},
        ),
        (CacheConfig(32, None), {"block_size": 32, "blocks": None}),
    ],
)
def test_values_are_put_in_json_s_terms(value: object, shown: object) -> None:
    assert plain(value) == shown
    msgspec.json.encode(plain(value))


def signals(wiring: Wiring) -> Signals:
    """What is dead when nobody reports the use of a cache."""
    reports = {**REPORTS, KV_CACHE_USAGE: [None, None]}
    made = Signals(Latest(wiring), lambda: pool(POOL, reports))
    made.look()
    return made


def test_each_plugin_says_what_it_keeps(wiring: Wiring) -> None:
    report: Any = plugin_states(wiring, signals(wiring))
    assert datetime.fromisoformat(report["timestamp"]).utcoffset() == timedelta(0)
    assert report["plugins"].keys() == wiring.installed.keys()
    shown = report["plugins"]["choosy-filter"]
    assert shown == {
        "name": "choosy-filter",
        "type": "choosy-filter",
        "requests": 0,
        "reaped": 0,
        "failures": 0,
        "state": {"kept": 1},
    }
    assert report["plugins"]["queue-scorer"]["message"] == "keeps no state of its own"


def test_a_signal_that_cannot_work_is_shown_with_its_reason(wiring: Wiring) -> None:
    report: Any = plugin_states(wiring, signals(wiring))
    assert report["dead_signals"] == [
        {"plugin": plugin, "signal": "kv-cache-usage", "reason": "no endpoint reports it"}
        for plugin in ("kv-cache-utilization-scorer", "utilization-detector")
    ]


def test_a_plugin_whose_state_cannot_be_shown_is_named_without_its_words(wiring: Wiring) -> None:
    report: Any = plugin_states(wiring, signals(wiring))
    message = report["plugins"]["both"]["message"]
    assert message.startswith("its state cannot be shown: RuntimeError at test_explain.py:")
    assert "a prompt" not in message


def test_z_05_what_plugins_show_of_a_million_entries_is_short_and_has_no_prompt() -> None:
    """Numbers only, of at most a hundred endpoints."""
    wiring = wired("plugins: [{type: prefix-cache-scorer}]", *plugins.BUILT_IN)
    index = wiring.installed["approx-prefix-cache-producer"].plugin.index
    root = root_hash("SECRET")
    for number in range(1000):
        prompt = BlockHashes(b"SECRETPROMPT%04d" % number * 250, 4, root)
        index.record(endpoint(f"pod-{number}").identity, prompt)
    assert len(index) == 1_000_000
    page = msgspec.json.encode(plugin_states(wiring, signals(wiring)))
    assert len(page) < 20_000
    assert b"1000000" in page
    assert b"SECRET" not in page
