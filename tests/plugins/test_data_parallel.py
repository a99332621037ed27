"""The handler for ranks behind one port."""

from __future__ import annotations

from typing import Final

import pytest
from tests.kernel.zoo import giving, refusal, refused

from pointsman.kernel.model import Decision, ProfileResult
from pointsman.kernel.testing import Bench, decide, endpoint, pool, wired
from pointsman.plugins.data_parallel import DataParallelParameters, DataParallelProfileHandler
from pointsman.plugins.pickers import MaxScorePicker

RANK_1: Final = endpoint("pod-rank-1", address="127.0.1.7", port=8001)
RANK_2: Final = endpoint("pod-rank-2", address="127.0.1.7", port=8002)
V6: Final = endpoint("six-rank-1", address="fd00::7", port=8001)
RESULT: Final = ProfileResult((RANK_1,), (RANK_1,), (1.0,))


def decision(parameters: str = "{}", picker: str = "{}") -> Decision:
    best = giving("best", 0, 0, 1)
    text = (
        "plugins:\n"
        f"- {{type: data-parallel-profile-handler, parameters: {parameters}}}\n"
        f"- {{type: max-score-picker, parameters: {picker}}}\n"
        "- {type: best}\n"
    )
    wiring = wired(text, DataParallelProfileHandler, MaxScorePicker, best)
    return decide(wiring, pool([RANK_1, V6, RANK_2])).decision


def test_the_request_goes_to_the_primary_port_and_says_whom_it_is_for() -> None:
    made = decision()
    assert made.destination == "127.0.1.7:8000"
    assert made.upstream_headers == {"x-data-parallel-host-port": "127.0.1.7:8002"}


def test_the_primary_port_can_be_another() -> None:
    assert decision("{primaryPort: 9000}").destination == "127.0.1.7:9000"


def test_every_fallback_is_sent_to_its_primary_port() -> None:
    destinations = decision(picker="{maxNumOfEndpoints: 3}").destination.split(",")
    assert sorted(destinations) == ["127.0.1.7:8000", "127.0.1.7:8000", "[fd00::7]:8000"]


def test_an_ipv6_address_has_brackets() -> None:
    bench = Bench(DataParallelProfileHandler(DataParallelParameters(primary_port=80)))
    assert bench.call("destination", None, V6) == "[fd00::7]:80"


def test_the_profile_runs_once_and_must_succeed() -> None:
    bench = Bench(DataParallelProfileHandler(DataParallelParameters()))
    assert bench.call("profiles", None, ("only",), {}) == ("only",)
    assert bench.call("profiles", None, ("only",), {"only": None}) == ()
    assert bench.call("primary", None, {"only": RESULT}) == "only"
    assert refusal(lambda: bench.call("primary", None, {"only": None})).status == 429


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_is_from_1_to_65535(port: int) -> None:
    """The reference takes 0, and sends to port 0."""
    text = (
        f"plugins: [{{type: data-parallel-profile-handler, parameters: {{primaryPort: {port}}}}}]"
    )
    (mistake,) = refused(text, DataParallelProfileHandler)
    assert f"parameters.primaryPort: must be from 1 to 65535, not {port}" in mistake


def test_several_profiles_are_refused() -> None:
    text = (
        "plugins: [{type: data-parallel-profile-handler}]\n"
        "schedulingProfiles: [{name: a}, {name: b}]\n"
    )
    (mistake,) = refused(text, DataParallelProfileHandler)
    assert "handles 1 at most, not 2" in mistake
