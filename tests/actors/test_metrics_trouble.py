"""The metrics actor among endpoints and plugins that misbehave, under a virtual clock.

M-xx are field reports whose fault a test keeps away.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import anyio
import pytest
from trio.testing import MockClock

from pointsman.actors.fetching import FetchError
from pointsman.actors.metrics import Rhythm
from pointsman.kernel.keys import Consumes, DataView, EndpointKey, Key, Keys, keys
from pointsman.kernel.model import (
    FRESHNESS,
    WAITING_QUEUE_SIZE,
    Endpoint,
    Freshness,
)
from pointsman.kernel.testing import wired

from .metrics_rig import (
    BUSY,
    IDLE,
    LOAD,
    QUEUE_ONLY,
    TYPES,
    URL,
    A,
    Answer,
    Web,
    many,
    running,
    url,
)

# -- endpoints in trouble -------------------------------------------------------------------------

TROUBLE: Final[Mapping[str, Answer]] = {
    "hangs": None,
    "refuses": FetchError("ConnectError: all connection attempts failed"),
    "500": FetchError("HTTP status 500"),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
async def test_an_endpoint_in_trouble_goes_stale_alone_and_recovers(
    autojump_clock: MockClock, trouble: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(*many(2)) as rig:
        await anyio.sleep(1)
        rig.web.answers[url(1)] = trouble
        await anyio.sleep(10)
        assert list(rig.column(FRESHNESS)) == [Freshness.STALE, Freshness.FRESH]
        assert rig.actor.stale == 1
        assert rig.failed_scrapes >= 3
        rig.web.answers[url(1)] = IDLE
        await anyio.sleep(2)
        assert list(rig.column(FRESHNESS)) == [Freshness.FRESH, Freshness.FRESH]
        assert rig.actor.stale == 0
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("scrapes of default/e1 fail: ")
    assert said[1:] == ["metrics of default/e1 are stale", "scrapes of default/e1 work again"]


async def test_an_endpoint_that_never_answered_at_all_goes_stale(autojump_clock: MockClock) -> None:
    async with running(A, web=Web({URL: None})) as rig:
        await anyio.sleep(1.9)
        assert rig.reports == []
        await anyio.sleep(2)
        assert [dict(report.values) for report in rig.reports] == [
            {FRESHNESS.name: Freshness.STALE}
        ]


async def test_garbage_is_counted_and_costs_the_values_it_does_not_hold(
    autojump_clock: MockClock,
) -> None:
    async with running(*many(2), web=Web({url(1): b"<html>\0\xff"})) as rig:
        await anyio.sleep(3)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [None, 0.0]
        errors = "llm_d_epp_datalayer_extract_errors_total"
        labels = {
            "source_type": "metrics-data-source",
            "extractor_type": "core-metrics-extractor",
        }
        assert rig.figure(errors, **labels) == len(rig.web.times(url(1)))


async def test_m_05_a_single_slow_answer_makes_nothing_stale(autojump_clock: MockClock) -> None:
    async with running(A, rhythm=Rhythm(busy=1.0, stale_after=3.0)) as rig:
        await anyio.sleep(5)
        rig.web.answers[URL] = None
        await anyio.sleep(1.5)
        rig.web.answers[URL] = IDLE
        await anyio.sleep(10)
        assert Freshness.STALE not in [report.values.get(FRESHNESS.name) for report in rig.reports]


async def test_m_05_all_endpoints_stale_are_counted_and_recover_within_two_intervals(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(*many(3)) as rig:
        await anyio.sleep(1)
        rig.web.answers.update({url(number): FetchError("down") for number in (1, 2, 3)})
        await anyio.sleep(30)
        assert rig.actor.stale == 3
        assert len(caplog.records) == 6
        rig.web.answers.clear()
        await anyio.sleep(2 * rig.rhythm.busy + 0.01)
        assert rig.actor.stale == 0


@pytest.mark.long
async def test_m_06_a_minute_of_errors_makes_two_lines_an_endpoint(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    web = Web({url(number): FetchError("HTTP status 500") for number in range(1, 11)})
    async with running(*many(10), web=web, rhythm=Rhythm(busy=0.05)) as rig:
        await anyio.sleep(60.01)
        assert len(caplog.records) == 2 * 10
        assert rig.failed_scrapes == pytest.approx(10 * 60 / 0.05, rel=0.01)


async def test_m_14_one_endpoint_that_hangs_delays_no_other(autojump_clock: MockClock) -> None:
    web = Web({url(number): BUSY for number in range(2, 21)})
    web.answers[url(1)] = None
    async with running(*many(20), config=LOAD, web=web) as rig:
        await anyio.sleep(10)
        for number in range(2, 21):
            assert max(web.gaps(url(number))) < 2 * rig.rhythm.busy
        assert web.open_connections == 20
        assert len(web.times(url(1))) <= 10  # one at a time: nothing piles up


# -- several sources, and plugins in trouble ------------------------------------------------------

MOOD: Final = EndpointKey("mood", float)


class MoodScorer:
    """Wants what the extractors here produce."""

    type_name: ClassVar = "mood-scorer"
    consumes: ClassVar = Consumes(MOOD)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        return [1.0] * len(endpoints)


class MoodExtractor:
    """Reads a mood of 1 from any text but a bad one."""

    type_name: ClassVar = "mood-extractor"
    produces: ClassVar = keys(MOOD)

    def extractor(
        self, labels: Mapping[str, str], wanted: Keys
    ) -> Callable[[bytes], Mapping[Key, Any]]:
        def extract(text: bytes) -> Mapping[Key, Any]:
            if b"bad" in text:
                raise RuntimeError("no mood")
            return {MOOD: 1.0}

        return extract


class HopelessExtractor(MoodExtractor):
    """Cannot even begin."""

    def extractor(
        self, labels: Mapping[str, str], wanted: Keys
    ) -> Callable[[bytes], Mapping[Key, Any]]:
        raise RuntimeError("no extractor")


EXTRACTORS: Final = """\
plugins:
- {type: queue-scorer}
- {type: mood-scorer}
- {type: core-metrics-extractor}
- {type: mood-extractor}
- {name: one, type: metrics-data-source}
- {name: two, type: metrics-data-source, parameters: {port: 9100}}
dataLayer:
  injectDefaults: false
  sources:
"""
ONE_SOURCE: Final = EXTRACTORS + (
    "  - {pluginRef: one,"
    " extractors: [{pluginRef: mood-extractor}, {pluginRef: core-metrics-extractor}]}\n"
)
TWO_SOURCES: Final = EXTRACTORS + (
    "  - {pluginRef: one, extractors: [{pluginRef: core-metrics-extractor}]}\n"
    "  - {pluginRef: two, extractors: [{pluginRef: mood-extractor}]}\n"
)
OTHER_URL: Final = "http://10.0.0.1:9100/metrics"


async def test_an_extractor_that_raises_costs_its_own_values_and_says_so_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    types = (MoodScorer, MoodExtractor)
    web = Web({URL: IDLE + b"bad"})
    async with running(A, config=ONE_SOURCE, types=types, web=web) as rig:
        rig.datastore.track([WAITING_QUEUE_SIZE.name, MOOD.name])
        await anyio.sleep(30)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [0.0]
        assert list(rig.column(MOOD)) == [None]
        assert [r.getMessage().partition(":")[0] for r in caplog.records] == [
            "plugin mood-extractor fails as Extractor, its contribution is dropped"
        ]
        errors = "llm_d_epp_datalayer_extract_errors_total"
        labels = {"source_type": "metrics-data-source", "extractor_type": "mood-extractor"}
        assert rig.figure(errors, **labels) == len(web.asked)
        web.answers[URL] = IDLE
        await anyio.sleep(3)
        assert list(rig.column(MOOD)) == [1.0]


async def test_an_extractor_that_cannot_be_made_costs_its_own_values(
    autojump_clock: MockClock,
) -> None:
    types = (MoodScorer, HopelessExtractor)
    async with running(A, config=ONE_SOURCE, types=types) as rig:
        await anyio.sleep(30)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [0.0]


async def test_several_sources_of_an_endpoint_are_read_side_by_side(
    autojump_clock: MockClock,
) -> None:
    types = (MoodScorer, MoodExtractor)
    web = Web({OTHER_URL: b"bad", URL: IDLE})
    async with running(A, config=TWO_SOURCES, types=types, web=web) as rig:
        await anyio.sleep(30)
        assert web.open_connections == 2
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [0.0]


async def test_m_06_a_source_that_fails_beside_one_that_works_floods_no_log(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    types = (MoodScorer, MoodExtractor)
    web = Web({OTHER_URL: FetchError("down"), URL: b"no queue here"})
    async with running(A, config=TWO_SOURCES, types=types, web=web) as rig:
        await anyio.sleep(30)
        assert sorted(record.getMessage() for record in caplog.records) == [
            "metrics of default/a are stale",
            "metrics of default/a lack: waiting-queue-size",
            "scrapes of default/a fail: down",
        ]
        assert list(rig.column(FRESHNESS)) == [Freshness.STALE]
        del web.answers[OTHER_URL]
        await anyio.sleep(3)
        assert list(rig.column(FRESHNESS)) == [Freshness.FRESH]


async def test_m_06_only_a_source_of_load_can_make_load_stale(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without /v1/models is as good as any other."""
    config = TWO_SOURCES.replace("two, type: metrics-data-source", "two, type: models-data-source")
    web = Web({"http://10.0.0.1:9100/v1/models": FetchError("HTTP status 404"), URL: IDLE})
    types = (MoodScorer, MoodExtractor)
    async with running(A, config=config, types=types, web=web) as rig:
        await anyio.sleep(60)
        assert list(rig.column(FRESHNESS)) == [Freshness.FRESH]
        said = [record.getMessage() for record in caplog.records]
        assert said == ["scrapes of default/a fail: HTTP status 404"]


async def test_a_source_that_fails_says_nothing_more_after_a_reload(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(A, web=Web({URL: FetchError("down")})) as rig:
        await anyio.sleep(10)
        rig.wiring.set(wired(QUEUE_ONLY, *TYPES))
        await anyio.sleep(10)
        assert len(caplog.records) == 2
        assert rig.actor.stale == 1
