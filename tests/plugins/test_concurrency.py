"""How full endpoints are of what was sent to them. F-xx and S-xx are field reports."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import always, in_profile, producer, refusal, refused

from pointsman.kernel.keys import keys
from pointsman.kernel.testing import Bench, decide, endpoints, make_request, pool, wired
from pointsman.plugins.concurrency import ConcurrencyDetector, ConcurrencyDetectorParameters
from pointsman.plugins.keys import IN_FLIGHT_LOAD, TOKENIZED_PROMPT, InFlightLoad

from .stand_ins import CountedAtThePick

PROMPT: Final = keys(TOKENIZED_PROMPT)
SILENT: Final = producer("token-producer", always(None), PROMPT, default_for=PROMPT)
MODES: Final = st.sampled_from(["requests", "tokens", "hybrid"])
LOADS: Final = st.lists(
    st.none() | st.builds(InFlightLoad, st.integers(0, 500), st.integers(0, 10**7)),
    min_size=1,
    max_size=8,
)


def detector(mode: str = "requests", **parameters: Any) -> ConcurrencyDetector:
    return ConcurrencyDetector(ConcurrencyDetectorParameters(concurrency_mode=mode, **parameters))


def bench(plugin: ConcurrencyDetector, number: int) -> Bench:
    return Bench(plugin, endpoints(*(f"e{i}" for i in range(number))))


def saturation(*loads: InFlightLoad | None, mode: str = "requests", **parameters: Any) -> float:
    one = bench(detector(mode, **parameters), len(loads))
    found: float = one.call("saturation", {IN_FLIGHT_LOAD: loads}, one.endpoints)
    return found


def kept(*loads: InFlightLoad | None, mode: str = "requests", **parameters: Any) -> str:
    """The numbers of those that stay, in one text."""
    one = bench(detector(mode, **parameters), len(loads))
    found = one.keep({IN_FLIGHT_LOAD: loads})
    return "".join(endpoint.name.removeprefix("e") for endpoint in found)


def test_requests_count_as_a_share_of_what_all_may_have() -> None:
    assert saturation(InFlightLoad(50), InFlightLoad(0)) == 0.25
    assert saturation(InFlightLoad(8), InFlightLoad(4), max_concurrency=4) == 1.5


def test_tokens_count_instead_if_wanted() -> None:
    loads = (InFlightLoad(100, 250_000), InFlightLoad(100, 0))
    assert saturation(*loads, mode="tokens") == 0.125
    assert saturation(*loads, mode="tokens", max_token_concurrency=250_000) == 0.5


def test_in_hybrid_mode_the_fuller_of_both_counts_for_each_endpoint() -> None:
    loads = (InFlightLoad(10, 900_000), InFlightLoad(70, 100_000))
    assert saturation(*loads, mode="hybrid") == pytest.approx((0.9 + 0.7) / 2)


def test_f_08_endpoints_that_were_sent_nothing_are_room() -> None:
    assert saturation(None, None) == 0.0
    assert saturation(None, InFlightLoad(100)) == 0.5


def test_no_endpoints_are_full_by_definition() -> None:
    assert saturation() == 1.0


@pytest.mark.parametrize("mode", ["requests", "hybrid"])
def test_the_filter_drops_who_has_as_many_requests_as_it_may(mode: str) -> None:
    loads = (InFlightLoad(99), InFlightLoad(100), None, InFlightLoad(101))
    assert kept(*loads, mode=mode) == "02"


@pytest.mark.parametrize("mode", ["tokens", "hybrid"])
def test_the_filter_drops_who_has_as_many_tokens_as_it_may(mode: str) -> None:
    assert kept(InFlightLoad(1, 999_999), InFlightLoad(1, 1_000_000), None, mode=mode) == "02"


def test_what_is_not_counted_is_not_limited() -> None:
    loads = (InFlightLoad(1, 10**9), InFlightLoad(10**9, 1))
    assert kept(*loads, mode="requests") == "0"
    assert kept(*loads, mode="tokens") == "1"


@pytest.mark.parametrize(
    ("headroom", "most"), [(0.0, 100), (0.1, 110), (0.29, 129), (0.005, 100), (0.15, 115), (1, 200)]
)
def test_headroom_is_a_share_of_the_limit_in_whole_requests(headroom: float, most: int) -> None:
    assert kept(InFlightLoad(most - 1), InFlightLoad(most), headroom=headroom) == "0"


def test_s_05_where_all_are_full_nobody_stays_and_the_answer_is_429() -> None:
    assert kept(InFlightLoad(100), InFlightLoad(200)) == ""
    wiring = wired(in_profile(ConcurrencyDetector), ConcurrencyDetector, CountedAtThePick)
    both = pool(endpoints("a", "b"))
    counts: Counter[Any] = wiring.installed["inflight-load-producer"].plugin.requests
    counts.update({endpoint.identity: 100 for endpoint in both.endpoints})
    found = refusal(lambda: decide(wiring, both))
    assert (found.status, found.reason) == (429, "rejected-saturated")


@given(LOADS, MODES)
def test_an_endpoint_is_full_to_the_filter_just_when_it_alone_is_saturated(
    loads: list[InFlightLoad | None], mode: str
) -> None:
    full = [saturation(load, mode=mode) >= 1.0 for load in loads]
    expected = "".join(str(number) for number, one in enumerate(full) if not one)
    assert kept(*loads, mode=mode) == expected


@given(LOADS, MODES)
def test_saturation_is_the_mean_over_the_endpoints(
    loads: list[InFlightLoad | None], mode: str
) -> None:
    alone = [saturation(load, mode=mode) for load in loads]
    assert saturation(*loads, mode=mode) == pytest.approx(sum(alone) / len(alone))


def test_s_01_a_burst_of_a_negative_priority_is_stopped_at_the_limit() -> None:
    """Unlike with reported queues, which are as they were until the next scrape."""
    text = (
        "flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n"
        "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 5}}]"
    )
    wiring = wired(text, ConcurrencyDetector, CountedAtThePick)
    single = pool(endpoints("a"))
    for _ in range(5):
        decide(wiring, single, make_request(priority=-1))
    late = make_request(priority=-1)
    assert refusal(lambda: decide(wiring, single, late)).status == 429
    assert decide(wiring, single, make_request(priority=0)).decision.result.target.name == "a"


def test_the_load_of_a_named_producer_is_read() -> None:
    text = (
        "plugins:\n"
        "- {type: concurrency-detector, parameters:"
        " {maxConcurrency: 1, inFlightLoadProducerName: mine}}\n"
        "- {type: inflight-load-producer}\n"
        "- {type: inflight-load-producer, name: mine, produces:"
        " {in-flight-load: my-load, uncached-request-tokens: my-tokens}}\n"
        "schedulingProfiles: [{name: only, plugins: [{pluginRef: concurrency-detector}]}]"
    )
    wiring = wired(text, ConcurrencyDetector, CountedAtThePick)
    both = pool(endpoints("a", "b"))
    wiring.installed["mine"].plugin.requests[both.endpoints[0].identity] = 1
    assert decide(wiring, both).decision.result.target.name == "b"


@pytest.mark.parametrize(
    ("mode", "asks"), [("requests", False), ("tokens", True), ("hybrid", True)]
)
def test_prompts_are_tokenized_only_where_tokens_count(mode: str, asks: bool) -> None:
    parameters = f"parameters: {{concurrencyMode: {mode}}}"
    text = f"plugins: [{{type: concurrency-detector, {parameters}}}]"
    wiring = wired(text, ConcurrencyDetector, CountedAtThePick, SILENT)
    assert ("token-producer" in wiring.added) == asks


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{maxConcurrency: 0}", "maxConcurrency: must be at least 1"),
        ("{maxConcurrency: 1.5}", "maxConcurrency: must be a whole number"),
        ("{maxTokenConcurrency: -1}", "maxTokenConcurrency: must be at least 1"),
        ("{headroom: -1}", "headroom: must be at least 0"),
        ("{concurrencyMode: both}", "concurrencyMode: must be one of requests, tokens, hybrid"),
        ("{maxConcurency: 5}", "did you mean 'maxConcurrency'"),
        ("{inFlightLoadProducerName: nobody}", "no plugin is named 'nobody'"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: concurrency-detector, parameters: {parameters}}}]"
    (mistake,) = refused(text, ConcurrencyDetector, CountedAtThePick, SILENT)
    assert complaint in mistake
