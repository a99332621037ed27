from __future__ import annotations

import http.client
from collections.abc import Generator
from contextlib import closing

import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from .model_servers import FAULTS
from .server import Models, get, model_servers
from .vllm_metrics import Load, text

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def models() -> Generator[Models]:
    with model_servers("127.0.1", 3) as models:
        yield models


def test_every_address_answers_scrapes_on_one_connection(models: Models) -> None:
    before = models.scrapes()
    for host in models.hosts:
        with closing(http.client.HTTPConnection(host, models.port, timeout=5.0)) as connection:
            for _ in range(2):
                connection.request("GET", "/metrics")
                body = connection.getresponse().read()
                assert b"vllm:num_requests_waiting{" in body
    assert models.scrapes() - before == 6


def test_the_metrics_are_as_large_as_those_of_a_loaded_server() -> None:
    found = text(Load(waiting=8, running=16, kv_usage=0.25))
    assert 48_000 < len(found) < 58_000
    assert found.count("# TYPE ") == 89


def test_the_metrics_tell_the_load() -> None:
    samples = {
        sample.name: sample.value
        for family in families(text(Load(waiting=8, running=16, kv_usage=0.25)))
        for sample in family.samples
    }
    assert samples["vllm:num_requests_waiting"] == 8.0
    assert samples["vllm:num_requests_running"] == 16.0
    assert samples["vllm:kv_cache_usage_perc"] == 0.25


def test_a_completion_is_answered_once_its_body_is_whole(models: Models) -> None:
    host = models.hosts[0]
    with closing(http.client.HTTPConnection(host, models.port, timeout=5.0)) as connection:
        connection.request("POST", "/v1/chat/completions", body=b"x" * 200_000)
        assert b"total_tokens" in connection.getresponse().read()
        connection.request("POST", "/v1/chat/completions", body=iter([b"{", b"}"]))
        assert b"total_tokens" in connection.getresponse().read()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_misbehaves_until_it_is_told_not_to(models: Models, fault: str) -> None:
    host = models.hosts[1]
    models.misbehave(1, fault)
    with pytest.raises((OSError, http.client.HTTPException, AssertionError)):
        assert "vllm:num_requests_running{" in get(host, models.port, "/metrics", timeout=0.2)
    assert "vllm:num_requests_running{" in get(models.hosts[2], models.port, "/metrics")
    models.misbehave(1, "")
    assert "vllm:num_requests_running{" in get(host, models.port, "/metrics")
