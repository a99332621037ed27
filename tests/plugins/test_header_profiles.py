"""The handler that runs the profile which the request names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from tests.kernel.zoo import refusal, refused

from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import REQUEST_HEADERS, Headers, ProfileResult
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, make_request, pool, wired
from pointsman.plugins.header_profiles import HeaderProfileHandler, HeaderProfileParameters

from .stand_ins import only

RESULT: Final = ProfileResult(endpoints("a"), endpoints("a"), (1.0,))
NAMES: Final = ("decode", "prefill")


def asked(
    headers: Mapping[str, bytes], available: tuple[str, ...] = NAMES, **parameters: Any
) -> list[str]:
    bench = Bench(HeaderProfileHandler(HeaderProfileParameters(**parameters)))
    return list(bench.call("profiles", {REQUEST_HEADERS: Headers(headers)}, available, {}))


def test_the_named_profile_runs() -> None:
    assert asked({"epp-profile": b"prefill"}) == ["prefill"]


def test_blanks_around_the_name_do_not_matter() -> None:
    assert asked({"epp-profile": b"  prefill\t"}) == ["prefill"]


@pytest.mark.parametrize("headers", [{}, {"epp-profile": b""}, {"epp-profile": b"  "}])
def test_a_request_that_names_none_gets_the_default(headers: Mapping[str, bytes]) -> None:
    assert asked(headers) == ["decode"]
    assert asked(headers, default_profile=" prefill ") == ["prefill"]
    assert asked(headers, default_profile=" ") == ["decode"]


def test_the_only_profile_runs_whatever_is_named() -> None:
    assert asked({"epp-profile": b"unheard-of"}, ("main",)) == ["main"]
    assert asked({}, ("main",)) == ["main"]


@pytest.mark.parametrize("name", [" X-Stage ", "x-stage"])
def test_the_header_can_be_another(name: str) -> None:
    assert asked({"x-stage": b"prefill", "epp-profile": b"?"}, header_name=name) == ["prefill"]


def test_a_blank_header_name_means_the_default_one() -> None:
    assert asked({"epp-profile": b"prefill"}, header_name=" ") == ["prefill"]


@pytest.mark.parametrize("name", [b"Prefill", b"unheard-of", b"\xff"])
def test_a_request_that_names_an_unknown_profile_is_bad(name: bytes) -> None:
    found = refusal(lambda: asked({"epp-profile": name}))
    assert found.status == 400
    assert "epp-profile names no profile" in found.message


def test_a_default_profile_that_is_not_there_serves_nobody() -> None:
    found = refusal(lambda: asked({}, default_profile="main"))
    assert (found.status, found.message) == (503, "the default profile 'main' is not configured")


def test_a_profile_runs_once() -> None:
    bench = Bench(HeaderProfileHandler(HeaderProfileParameters()))
    for result in (RESULT, None):
        assert bench.call("profiles", None, NAMES, {"decode": result}) == ()


def test_exactly_one_result_counts() -> None:
    bench = Bench(HeaderProfileHandler(HeaderProfileParameters()))
    assert bench.call("primary", None, {"prefill": RESULT}) == "prefill"
    with pytest.raises(Refusal):
        bench.call("primary", None, {"prefill": RESULT, "decode": RESULT})


CONFIG: Final = """
plugins: [{type: header-profile-handler}, {type: only-decode}, {type: only-prefill}]
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: only-decode}]}
- {name: prefill, plugins: [{pluginRef: only-prefill}]}
"""


def test_a_request_goes_where_its_profile_sends_it() -> None:
    wiring = wired(CONFIG, HeaderProfileHandler, only("decode"), only("prefill"))
    snapshot = pool(
        [endpoint("d", labels={"role": "decode"}), endpoint("p", labels={"role": "prefill"})]
    )
    request = make_request(headers={"epp-profile": "prefill"})
    assert decide(wiring, snapshot, request).decision.result.target.name == "p"
    assert decide(wiring, snapshot).decision.result.target.name == "d"


def test_mistaken_parameters_are_refused() -> None:
    text = "plugins: [{type: header-profile-handler, parameters: {defaultProfil: x}}]"
    (mistake,) = refused(text, HeaderProfileHandler)
    assert "unknown field (did you mean 'defaultProfile'?)" in mistake
