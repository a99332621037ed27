"""The metrics actor under a virtual clock: when it asks, whom, and what it reports.

M-xx are field reports whose fault a test keeps away.
"""

from __future__ import annotations

from random import Random
from typing import Final

import anyio
import pytest
from attrs import evolve
from trio.testing import MockClock

from pointsman.actors.fetching import FetchError
from pointsman.kernel.model import (
    FRESHNESS,
    KV_CACHE_USAGE,
    WAITING_QUEUE_SIZE,
    Freshness,
)
from pointsman.kernel.testing import wired

from .metrics_rig import (
    BUSY,
    IDLE,
    LOAD,
    NOTHING,
    QUEUE_AND_CACHE,
    QUEUE_ONLY,
    TYPES,
    URL,
    A,
    Web,
    many,
    running,
    url,
)

# -- how often ------------------------------------------------------------------------------------


async def test_an_endpoint_with_traffic_is_asked_often(autojump_clock: MockClock) -> None:
    async with running(A, config=LOAD, web=Web({URL: BUSY})) as rig:
        await anyio.sleep(2.1)
        assert rig.web.gaps(URL) == pytest.approx([0.2] * 10)


async def test_an_idle_endpoint_is_asked_less_and_less(autojump_clock: MockClock) -> None:
    async with running(A) as rig:
        await anyio.sleep(11)
        gaps = [0.3, 0.45, 0.675, 1.0125, 1.51875, 2.0, 2.0, 2.0]
        assert rig.web.gaps(URL) == pytest.approx(gaps)


async def test_a_pick_wakes_an_idle_endpoint(autojump_clock: MockClock) -> None:
    async with running(A) as rig:
        await anyio.sleep(20)
        last = rig.web.times(URL)[-1]
        await anyio.sleep(last + 2.1 - anyio.current_time())  # a moment after a scrape
        rig.pick()
        picked = anyio.current_time()
        await anyio.sleep(0.5)
        assert rig.web.times(URL)[-1] == pytest.approx(picked + 0.2)


async def test_the_pauses_begin_anew_after_traffic(autojump_clock: MockClock) -> None:
    async with running(A, config=LOAD) as rig:
        await anyio.sleep(20)
        rig.web.answers[URL] = BUSY
        await anyio.sleep(3)
        rig.web.answers[URL] = IDLE
        seen = len(rig.web.asked)
        await anyio.sleep(1)
        assert rig.web.gaps(URL)[seen : seen + 2] == pytest.approx([0.3, 0.45])


async def test_a_pick_while_the_endpoint_answers_counts_as_traffic(
    autojump_clock: MockClock,
) -> None:
    async with running(A, web=Web(delay=0.5)) as rig:
        await anyio.sleep(0.25)
        rig.pick()
        await anyio.sleep(1)
        assert rig.web.gaps(URL) == pytest.approx([0.5 + 0.2])


async def test_traffic_is_seen_under_whatever_name_it_is_published(
    autojump_clock: MockClock,
) -> None:
    config = (
        "plugins:\n- {type: core-metrics-extractor, produces: {waiting-queue-size: queue}}\n"
        "- {type: queue-scorer, consumes: {waiting-queue-size: queue}}\n"
    )
    async with running(A, config=config, web=Web({URL: BUSY})) as rig:
        await anyio.sleep(1.1)
        assert rig.web.gaps(URL) == pytest.approx([0.2] * 5)


OWN_INTERVAL: Final = (
    "plugins:\n- {type: queue-scorer}\n"
    "- {type: metrics-data-source, parameters: {interval: 5s}}\n"
    "- {type: core-metrics-extractor}\n"
    "dataLayer:\n  sources:\n"
    "  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}\n"
)


@pytest.mark.parametrize("text", [IDLE, BUSY])
async def test_a_source_s_own_interval_is_the_shortest(
    autojump_clock: MockClock, text: bytes
) -> None:
    async with running(A, config=OWN_INTERVAL, web=Web({URL: text})) as rig:
        await anyio.sleep(21)
        assert rig.web.gaps(URL) == pytest.approx([5.0] * 4)


async def test_endpoints_do_not_ask_in_step(autojump_clock: MockClock) -> None:
    async with running(A, config=LOAD, web=Web({URL: BUSY})) as rig:
        rig.actor.random = Random(1)
        rig.have()
        await anyio.sleep(0.1)
        rig.have(evolve(A, uid="again"))
        await anyio.sleep(2)
        gaps = rig.web.gaps(URL)[1:]
        assert len({round(gap, 6) for gap in gaps}) == len(gaps)
        assert all(0.18 <= gap <= 0.22 for gap in gaps)


# -- what is asked, and where ---------------------------------------------------------------------


async def test_nothing_is_asked_when_nobody_consumes_anything(autojump_clock: MockClock) -> None:
    async with running(A, config=NOTHING) as rig:
        await anyio.sleep(60)
        await rig.actor.first_round()
        assert rig.web.asked == []
        assert rig.web.open_connections == 0


async def test_only_what_is_consumed_is_reported(autojump_clock: MockClock) -> None:
    async with running(A, config=QUEUE_ONLY) as rig:
        await anyio.sleep(1)
        named = {name for report in rig.reports for name in report.values}
        assert named == {WAITING_QUEUE_SIZE.name, FRESHNESS.name}


async def test_another_wiring_changes_what_is_read(autojump_clock: MockClock) -> None:
    async with running(A, config=QUEUE_ONLY, web=Web({URL: BUSY})) as rig:
        await anyio.sleep(1)
        assert list(rig.column(KV_CACHE_USAGE)) == [None]
        rig.wiring.set(wired(QUEUE_AND_CACHE, *TYPES))
        await anyio.sleep(0.1)
        assert list(rig.column(KV_CACHE_USAGE)) == [1.0]
        assert rig.web.open_connections == 1


async def test_a_wiring_that_consumes_nothing_ends_the_asking(autojump_clock: MockClock) -> None:
    async with running(A) as rig:
        await anyio.sleep(1)
        rig.wiring.set(wired(NOTHING, *TYPES))
        await anyio.sleep(1)
        seen = len(rig.web.asked)
        await anyio.sleep(60)
        assert len(rig.web.asked) == seen
        rig.wiring.set(wired(QUEUE_ONLY, *TYPES))
        await anyio.sleep(0.1)
        assert len(rig.web.asked) == seen + 1


async def test_m_07_the_next_scrape_goes_to_the_new_port(autojump_clock: MockClock) -> None:
    async with running(A) as rig:
        await anyio.sleep(30)
        rig.have(evolve(A, port=9000))
        changed = anyio.current_time()
        await anyio.sleep(5)
        after = [asked for time, asked in rig.web.asked if time >= changed]
        assert set(after) == {"http://10.0.0.1:9000/metrics"}
        assert rig.web.times("http://10.0.0.1:9000/metrics")[0] == pytest.approx(changed)


async def test_m_07_an_ipv6_address_is_put_in_brackets(autojump_clock: MockClock) -> None:
    async with running(evolve(A, address="fd00::7", port=9000)) as rig:
        await anyio.sleep(0.1)
        assert [asked for _, asked in rig.web.asked] == ["http://[fd00::7]:9000/metrics"]


@pytest.mark.parametrize(
    ("parameters", "asked"),
    [
        ("{port: 9100}", "http://10.0.0.1:9100/metrics"),
        ("{path: stats/all}", "http://10.0.0.1:8000/stats/all"),
        ("{scheme: https, path: /m}", "https://10.0.0.1:8000/m"),
    ],
)
async def test_a_source_says_where_the_text_is(
    autojump_clock: MockClock, parameters: str, asked: str
) -> None:
    config = OWN_INTERVAL.replace("{interval: 5s}", parameters)
    async with running(A, config=config) as rig:
        await anyio.sleep(0.1)
        assert [url for _, url in rig.web.asked] == [asked]


async def test_labels_say_how_the_text_is_read(autojump_clock: MockClock) -> None:
    web = Web({URL: b"sglang:num_queue_reqs 7\nvllm:num_requests_waiting 1\n"})
    async with running(A, config=QUEUE_ONLY, web=web) as rig:
        await anyio.sleep(0.1)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [1.0]
        rig.have(evolve(A, labels={"llm-d.ai/engine-type": "sglang"}))
        await anyio.sleep(0.1)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [7.0]


# -- what is reported -----------------------------------------------------------------------------


async def test_values_and_freshness_are_reported_when_they_change_and_only_then(
    autojump_clock: MockClock,
) -> None:
    async with running(A) as rig:
        await anyio.sleep(60)
        (first,) = rig.reports
        assert first.values == {
            WAITING_QUEUE_SIZE.name: 0.0,
            KV_CACHE_USAGE.name: 0.0,
            FRESHNESS.name: Freshness.FRESH,
        }
        rig.web.answers[URL] = BUSY.replace(b"perc 1", b"perc 0")
        await anyio.sleep(10)
        assert [dict(report.values) for report in rig.reports[1:]] == [
            {WAITING_QUEUE_SIZE.name: 2.0}
        ]


async def test_m_01_a_family_that_is_missing_is_named_once_and_once_when_it_is_back(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    web = Web({URL: b"vllm:num_requests_waiting 0\n"})
    async with running(A, web=web) as rig:
        await anyio.sleep(30)
        assert [r.getMessage() for r in caplog.records] == [
            "metrics of default/a lack: kv-cache-usage"
        ]
        assert list(rig.column(KV_CACHE_USAGE)) == [None]
        rig.web.answers[URL] = IDLE
        await anyio.sleep(30)
        assert [r.getMessage() for r in caplog.records][1:] == [
            "metrics of default/a lack: nothing any more"
        ]


# -- endpoints come and go ------------------------------------------------------------------------


async def test_an_endpoint_that_is_gone_is_not_asked_any_more(autojump_clock: MockClock) -> None:
    async with running(*many(2)) as rig:
        await anyio.sleep(1)
        rig.have(*many(2)[1:])
        await anyio.sleep(0.001)
        assert (len(rig.actor), rig.web.open_connections) == (1, 1)
        seen = len(rig.web.times(url(1)))
        await anyio.sleep(60)
        assert len(rig.web.times(url(1))) == seen


async def test_an_endpoint_that_hangs_can_be_removed_in_the_middle_of_it(
    autojump_clock: MockClock,
) -> None:
    async with running(A, web=Web({URL: None})) as rig:
        await anyio.sleep(0.5)
        rig.have()
        await anyio.sleep(0.001)
        assert (len(rig.actor), rig.web.open_connections) == (0, 0)


async def test_a_stale_endpoint_that_is_gone_is_not_counted_any_more(
    autojump_clock: MockClock,
) -> None:
    async with running(A, web=Web({URL: FetchError("down")})) as rig:
        await anyio.sleep(10)
        assert rig.actor.stale == 1
        rig.have()
        await anyio.sleep(0.001)
        assert rig.actor.stale == 0


async def test_a_pod_that_is_created_again_under_its_name_is_asked_anew(
    autojump_clock: MockClock,
) -> None:
    async with running(A) as rig:
        await anyio.sleep(10)
        rig.have(evolve(A, uid="another"))
        await anyio.sleep(0.1)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [0.0]
        assert rig.reports[-1].identity.uid == "another"
        assert rig.web.open_connections == 1


async def test_new_endpoints_are_asked_at_once(autojump_clock: MockClock) -> None:
    async with running() as rig:
        await anyio.sleep(10)
        rig.have(A)
        await anyio.sleep(0.001)
        assert rig.web.times(URL) == [pytest.approx(10.0)]


async def test_the_first_round_ends_when_everybody_was_asked(autojump_clock: MockClock) -> None:
    web = Web({url(2): None})
    async with running(*many(3), web=web) as rig:
        await rig.actor.first_round()
        assert 1.0 <= anyio.current_time() < 1.1
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [0.0, None, 0.0]


async def test_a_refresher_that_crashes_is_restarted(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(A, web=Web({URL: RuntimeError("a bug")})) as rig:
        await anyio.sleep(0.01)
        rig.web.answers[URL] = IDLE
        await anyio.sleep(1)
        assert list(rig.column(WAITING_QUEUE_SIZE)) == [0.0]
    assert "refresher of default/a crashed" in caplog.text
