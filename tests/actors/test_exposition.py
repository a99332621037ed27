"""The page of figures: its forms, and that writing it leaves room for others."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pointsman.actors.exposition import accepts_gzip, figures_page
from pointsman.actors.http import Request, Response
from pointsman.actors.tallies import PART, Tallies, histograms
from pointsman.kernel.tally import Tally

OPEN = "application/openmetrics-text; version=1.0.0"
generate_open, _ = choose_encoder(OPEN)


class Families(Collector):
    def collect(self) -> Iterator[Metric]:
        for number in range(50):
            yield GaugeMetricFamily(f"things_{number}", "Things.", value=number)


class Yielding(Collector):
    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self.families = families

    def collect(self) -> Iterable[Metric]:
        return self.families()


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("requests_total", "Requests.", registry=registry).inc()
    registry.register(Families())
    return registry


async def page(registry: CollectorRegistry, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await figures_page(registry, Request("GET", "/metrics", headers=named))


def body(response: Response) -> bytes:
    assert isinstance(response.body, bytes)
    return response.body


async def test_by_default_the_page_is_prometheus_text(registry: CollectorRegistry) -> None:
    response = await page(registry)
    assert body(response) == generate_latest(registry)
    assert dict(response.headers)["content-type"].startswith("text/plain; version=0.0.4")


async def test_open_metrics_has_one_end(registry: CollectorRegistry) -> None:
    response = await page(registry, accept=f"{OPEN},text/plain;version=0.0.4;q=0.5")
    assert body(response) == generate_open(registry)
    assert body(response).count(b"# EOF") == 1
    assert b"# TYPE requests counter" in body(response)
    assert dict(response.headers)["content-type"].startswith("application/openmetrics-text")


@pytest.mark.parametrize("accept", ["", OPEN])
async def test_a_family_in_parts_has_one_heading(accept: str) -> None:
    registry, whole = CollectorRegistry(), CollectorRegistry()
    few = [((f"{number:03}",), Tally((1.0, 2.0))) for number in range(3 * PART)]
    for _, tally in few:
        tally.observe(1.5)
    registry.register(Yielding(lambda: histograms("h", "A text.", ("name",), few)))
    whole.register(Yielding(lambda: [Tallies("h", "A text.", ("name",), few)]))
    encode, _ = choose_encoder(accept)
    assert body(await page(registry, accept=accept)) == encode(whole)


async def test_the_page_is_compressed_for_whoever_accepts_that(
    registry: CollectorRegistry,
) -> None:
    response = await page(registry, accept=OPEN, accept_encoding="gzip")
    assert dict(response.headers)["content-encoding"] == "gzip"
    assert gzip.decompress(body(response)) == generate_open(registry)
    assert "content-encoding" not in dict((await page(registry)).headers)


async def test_the_task_gives_way_after_each_family(registry: CollectorRegistry) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_turns)
        await page(registry)
        nursery.cancel_scope.cancel()
    assert turns > 25


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.8, *;q=0.1", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("deflate, gzip ; q=0.001", True),
        ("identity", False),
        ("gzipped", False),
        ("*", False),
        ("", False),
    ],
)
def test_whether_compression_is_accepted(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted


@given(st.text())
def test_any_header_can_be_read(header: str) -> None:
    assert accepts_gzip(header) in (True, False)
