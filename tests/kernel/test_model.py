"""Endpoints, addresses, headers and results."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest
import trio
from attrs.exceptions import FrozenInstanceError
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from pointsman.kernel.model import (
    Headers,
    Identity,
    ProfileResult,
    SchedulingResult,
    canonical_address,
    host_port,
    in_subset,
    parse_subset,
)
from pointsman.kernel.testing import endpoint, endpoints

V4 = endpoint("a", address="10.0.0.1", port=8000)
V6 = endpoint("b", address="fd00::1", port=8000)


def test_an_endpoint_is_named_by_its_namespace() -> None:
    assert (V4.id, V4.host_port) == ("default/a", "10.0.0.1:8000")


def test_ipv6_addresses_are_bracketed_before_a_port() -> None:
    assert V6.host_port == "[fd00::1]:8000"


def test_a_plugin_cannot_change_labels_for_others() -> None:
    labels = {"role": "decode"}
    one = endpoint("a", labels=labels)
    labels["role"] = "prefill"
    with pytest.raises(TypeError):
        one.labels["role"] = "prefill"  # type: ignore[index]
    assert one.labels == {"role": "decode"}


def test_an_endpoint_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        V4.port = 1  # type: ignore[misc]


async def test_a_pick_wakes_everyone_who_waits_for_it(nursery: trio.Nursery) -> None:
    identity, woken = Identity("u"), list[int]()

    async def wait(number: int) -> None:
        await identity.next_pick()
        woken.append(number)

    for number in range(3):
        nursery.start_soon(wait, number)
    await wait_all_tasks_blocked()
    identity.note_pick()
    await wait_all_tasks_blocked()
    identity.note_pick()
    assert (sorted(woken), identity.picks) == ([0, 1, 2], 2)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("FD00:0::1", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("fd00:0000:0:0:0:0:0:1", "fd00::1"),
        ("10.0.0.1", "10.0.0.1"),
        ("no:address:at:all", "no:address:at:all"),
        ("", ""),
    ],
)
def test_an_address_has_one_spelling(written: str, meant: str) -> None:
    assert canonical_address(written) == meant


@given(st.ip_addresses(v=6), st.integers(1, 65535))
def test_every_spelling_of_an_ipv6_endpoint_is_allowed_by_every_other(
    address: IPv6Address, port: int
) -> None:
    spelled = [address.compressed, address.exploded, address.exploded.upper()]
    for one in spelled:
        target = endpoint("a", address=one, port=port)
        for other in spelled:
            assert in_subset(target, parse_subset([other]))
            assert in_subset(target, parse_subset([f" [{other}]:{port}"]))
            assert not in_subset(target, parse_subset([f"[{other}]:{port % 65535 + 1}"]))


@given(st.lists(st.one_of(st.text(), st.integers(), st.none(), st.binary())))
def test_a_subset_hint_of_anything_is_read(tokens: list[object]) -> None:
    allowed = parse_subset(tokens)
    in_subset(V4, allowed)
    assert len(allowed) <= len(tokens)


@pytest.mark.parametrize(
    ("hint", "allows"),
    [
        (["10.0.0.1"], True),
        (["10.0.0.1:8000"], True),
        ([" 10.0.0.1:8000 "], True),
        ([5, None, 4.5, "10.0.0.1"], True),
        (["10.0.0.1:8001"], False),
        (["10.0.0.1:http"], False),
        (["10.0.0.1:-1"], False),
        (["10.0.0.2", "10.9.9.9:8000"], False),
        ([], False),
        ([""], False),
    ],
)
def test_a_subset_hint_allows_what_it_names(hint: list[object], allows: bool) -> None:
    assert in_subset(V4, parse_subset(hint)) is allows


@pytest.mark.parametrize("hint", ["[fd00::1]", "[FD00:0::1]:8000", "fd00:0:0::1", "[fd00::1]:"])
def test_a_subset_hint_knows_ipv6(hint: str) -> None:
    assert in_subset(V6, parse_subset([hint]))
    assert not in_subset(V4, parse_subset([hint]))


def test_a_port_tells_the_ranks_of_one_address_apart() -> None:
    ranks = [endpoint(f"a-rank-{i}", address="10.0.0.1", port=8000 + i) for i in range(3)]
    allowed = parse_subset(["10.0.0.1:8001"])
    assert [in_subset(rank, allowed) for rank in ranks] == [False, True, False]


def test_headers_are_text_or_bytes() -> None:
    headers = Headers({"a": b"1", "b": b"\xff", "empty": b""})
    assert (headers.get("a"), headers.raw("a"), headers.get("c")) == ("1", b"1", None)
    assert (headers.get("b") or "").encode("utf-8", "surrogateescape") == b"\xff"
    assert ("a" in headers, "c" in headers) == (True, False)
    assert (list(headers), len(headers)) == (["a", "b", "empty"], 3)


def test_the_first_name_that_is_there_wins_even_if_empty() -> None:
    headers = Headers({"old": b"1", "empty": b""})
    assert headers.first("new", "old") == "1"
    assert headers.first("empty", "old") == ""
    assert headers.first("new", "newer") is None


def test_headers_do_not_show_their_values() -> None:
    assert repr(Headers({"authorization": b"secret"})) == "Headers(['authorization'])"


def test_host_and_port_are_joined() -> None:
    assert [host_port("10.0.0.1", 1), host_port("::1", 2)] == ["10.0.0.1:1", "[::1]:2"]


def test_the_primary_profile_names_the_target() -> None:
    a, b = endpoints("a", "b")
    won = ProfileResult((b, a), (a, b), [0.0, 1.0])
    result = SchedulingResult({"x": None, "y": won}, "y")
    assert (result.target, result.primary_result) == (b, won)


def test_a_failed_profile_has_no_result() -> None:
    with pytest.raises(LookupError, match="primary profile 'x' has no result"):
        _ = SchedulingResult({"x": None}, "x").target
