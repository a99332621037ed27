"""The filter by which conformance tests choose the endpoint."""

from __future__ import annotations

import pytest
from tests.kernel.zoo import in_profile, refusal

from pointsman.kernel.model import REQUEST_HEADERS, Headers
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, make_request, pool, wired
from pointsman.plugins.testing_filter import SELECTION, HeaderBasedTestingFilter

CANDIDATES = (
    endpoint("a", address="10.0.0.1", port=8000),
    endpoint("b", address="10.0.0.1", port=8001),
    endpoint("c", address="10.0.0.2", port=8000),
    endpoint("six", address="fd00::1", port=8000),
)


def kept(selection: str | None) -> list[str]:
    headers = {} if selection is None else {SELECTION: selection.encode()}
    bench = Bench(HeaderBasedTestingFilter(), CANDIDATES)
    return [one.name for one in bench.keep({REQUEST_HEADERS: Headers(headers)})]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("10.0.0.1", ["a", "b"]),
        ("10.0.0.1:8001", ["b"]),
        ("10.0.0.2, 10.0.0.1:8000", ["a", "c"]),
        ("10.0.0.2,10.0.0.2:8000,10.0.0.2", ["c"]),
        (" 10.0.0.2 ,", ["c"]),
        ("fd00::1", ["six"]),
        ("[fd00::1]", ["six"]),
        ("[fd00::1]:8000", ["six"]),
        ("FD00:0:0::1", ["six"]),
        ("10.0.0.9,10.0.0.2", ["c"]),
    ],
)
def test_the_listed_endpoints_stay(selection: str, expected: list[str]) -> None:
    assert kept(selection) == expected


@pytest.mark.parametrize(
    "selection", [None, "", " ", ",", "10.0.0.9", "10.0.0.2:9", "10.0.0.2:x", "[fd00::1]:1", "c"]
)
def test_without_a_list_or_when_nobody_is_on_it_nobody_stays(selection: str | None) -> None:
    assert kept(selection) == []


def test_the_request_goes_to_whom_it_lists_and_is_refused_without_a_list() -> None:
    wiring = wired(in_profile(HeaderBasedTestingFilter), HeaderBasedTestingFilter)
    snapshot = pool(endpoints("a", "b", "c"))
    request = make_request(headers={SELECTION: "127.0.1.2"})
    assert decide(wiring, snapshot, request).decision.result.target.name == "b"
    assert refusal(lambda: decide(wiring, snapshot)).status == 429
