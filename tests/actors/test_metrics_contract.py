"""Every name that the daemon exposes, as docs/metrics.md has it; ``--golden`` writes it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from pointsman.actors import tallies

from .daemons import Make
from .metrics_table import CONFIG, FLAGS, Row, exercise, rows, tables

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
HEADING: Final = "## All of them\n\n"
L: Final = ("model_name", "target_model_name", "fairness_id", "priority")
CALL: Final = ("extension_point", "plugin_type", "plugin_name")
WHOSE: Final = ("plugin_name", "plugin_type")
SHARE: Final = ("endpoint_name", "namespace", "producer_name", "fairness_id", "priority")
COMPATIBLE: Final = {
    "request_total": ("counter", L),
    "request_error_total": ("counter", (*L, "error_code")),
    "request_duration_seconds": ("histogram", L),
    "request_size_bytes": ("histogram", L),
    "response_size_bytes": ("histogram", L),
    "request_input_tokens": ("histogram", L),
    "request_cached_tokens": ("histogram", L),
    "request_output_tokens": ("histogram", L),
    "request_running": ("gauge", L),
    "request_ntpot_seconds": ("histogram", L),
    "request_ttft_seconds": ("histogram", (*L, "streaming")),
    "request_streaming_tpot_seconds": ("histogram", L),
    "request_streaming_itl_seconds": ("histogram", L),
    "request_processing_duration_seconds": ("histogram", ()),
    "response_processing_duration_seconds": ("histogram", ()),
    "average_kv_cache_utilization": ("gauge", ("name",)),
    "average_queue_size": ("gauge", ("name",)),
    "average_running_requests": ("gauge", ("name",)),
    "std_dev_kv_cache_utilization": ("gauge", ("name",)),
    "std_dev_queue_size": ("gauge", ("name",)),
    "std_dev_running_requests": ("gauge", ("name",)),
    "ready_endpoints": ("gauge", ("name",)),
    "per_endpoint_queue_size": ("gauge", ("name", "model_server_endpoint")),
    "scheduler_e2e_duration_seconds": ("histogram", ()),
    "scheduler_attempts_total": (
        "counter",
        ("status", "target_model_name", "endpoint_name", "namespace", "port"),
    ),
    "plugin_duration_seconds": ("histogram", CALL),
    "plugin_data_scope_violations_total": ("counter", (*CALL, "access")),
    "prefix_indexer_size": ("gauge", WHOSE),
    "prefix_indexer_hit_ratio": ("histogram", WHOSE),
    "prefix_indexer_hit_bytes": ("histogram", WHOSE),
    "inflight_requests": ("gauge", SHARE),
    "inflight_tokens": ("gauge", SHARE),
    "datalayer_poll_errors_total": ("counter", ("source_type",)),
    "datalayer_extract_errors_total": ("counter", ("source_type", "extractor_type")),
    "model_rewrite_decisions_total": (
        "counter",
        ("model_rewrite_name", "model_name", "target_model"),
    ),
    "info": ("gauge", ("commit", "build_ref")),
    "extproc_streams_inflight": ("gauge", ()),
    "extproc_stream_duration_seconds": ("histogram", ()),
    "extproc_streams_total": ("counter", ("code",)),
}
"""What dashboards made for the reference system rely on, less its prefix."""


@pytest.fixture
def found(make: Make) -> list[Row]:
    daemon = make(*FLAGS, config=CONFIG)
    exercise(daemon)
    return rows(daemon)


def test_the_page_lists_every_name(found: list[Row], request: pytest.FixtureRequest) -> None:
    introduction, _, _ = PAGE.read_text().partition(HEADING)
    text = introduction + HEADING + tables(found)
    if request.config.getoption("--golden"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


def test_the_names_of_the_reference_system_are_there(found: list[Row]) -> None:
    shown = {row.name: (row.type, row.labels) for row in found}
    expected = {f"llm_d_epp_{name}": form for name, form in COMPATIBLE.items()}
    assert {name: shown.get(name) for name in expected} == expected


def test_token_buckets_keep_the_misprint_that_dashboards_know(found: list[Row]) -> None:
    (tokens,) = (row for row in found if row.name == "llm_d_epp_request_input_tokens")
    assert tokens.buckets == tallies.MANY_TOKENS
    assert 32778 in tokens.buckets


def test_everything_says_what_it_is(found: list[Row]) -> None:
    assert [row.name for row in found if not row.text.endswith(".")] == []


def test_by_default_there_are_no_old_names_and_no_streams(make: Make) -> None:
    daemon = make(config=CONFIG)
    names = {family.name for family in daemon.figures.registry.collect()}
    assert "llm_d_epp_request" in names
    assert not any(name.startswith(("inference_", "llm_d_inference_")) for name in names)
    assert not any("extproc" in name for name in names)
