"""Endpoints from pods."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from pointsman.actors.kube.kinds import ACTIVE_PORTS, OLDER_ACTIVE_PORTS, Pod
from pointsman.actors.kube.pods import PodEndpoints, Unusable, endpoints_of
from pointsman.actors.kube.reflector import Changed, Gone, Replace
from pointsman.actors.sim.kube.samples import pod as sample
from pointsman.kernel.datastore import ChangeEndpoints, ReplaceEndpoints
from pointsman.kernel.mailbox import Mailbox

Told = ReplaceEndpoints | ChangeEndpoints


def pod(
    name: str = "a",
    *,
    ip: str = "10.0.0.1",
    uid: str = "u",
    deleted: bool = False,
    **details: Any,
) -> Pod:
    obj = sample(name, ip=ip, uid=uid, **details)
    if deleted:
        obj["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    return msgspec.convert(obj, Pod)


def where(one: Pod, *ports: int) -> dict[str, int]:
    return {spec.name: spec.port for spec in endpoints_of(one, "ns", ports or (8000,))}


def test_each_target_port_is_an_endpoint_of_its_own() -> None:
    first, second = endpoints_of(pod(labels={"app": "x"}), "ns", (8000, 8001))
    assert (first.id, first.uid, first.rank) == ("ns/a-rank-0", "u:8000", 0)
    assert (second.id, second.uid, second.rank) == ("ns/a-rank-1", "u:8001", 1)
    assert (second.address, second.pod, second.labels) == ("10.0.0.1", "a", {"app": "x"})


@pytest.mark.parametrize(
    "details",
    [
        {"ready": False},
        {"deleted": True},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"ip": ""},
    ],
    ids=str,
)
def test_a_pod_that_cannot_serve_has_no_endpoint(details: dict[str, Any]) -> None:
    assert where(pod(**details)) == {}


def test_a_pod_without_a_status_has_no_endpoint() -> None:
    assert where(msgspec.convert({"metadata": {"name": "a"}}, Pod)) == {}


@pytest.mark.parametrize("annotation", [ACTIVE_PORTS, OLDER_ACTIVE_PORTS])
def test_an_annotation_names_the_ports_that_are_active(annotation: str) -> None:
    one = pod(annotations={annotation: " 8001,9999, -1,x,"})
    assert where(one, 8000, 8001) == {"a-rank-1": 8001}


def test_the_newer_annotation_counts_before_the_older_one() -> None:
    one = pod(annotations={ACTIVE_PORTS: "8000", OLDER_ACTIVE_PORTS: "8001"})
    assert where(one, 8000, 8001) == {"a-rank-0": 8000}


@pytest.mark.parametrize("text", ["", "9", "none"])
def test_a_ready_pod_without_an_active_port_is_unusable(text: str) -> None:
    with pytest.raises(Unusable, match="none of the ports 8000, 8001"):
        endpoints_of(pod(annotations={ACTIVE_PORTS: text}), "ns", (8000, 8001))


def test_a_ready_pod_whose_address_is_none_is_unusable() -> None:
    with pytest.raises(Unusable, match="no IP address"):
        where(pod(ip="10.0.0"))


def test_s_09_an_ipv6_address_has_one_spelling() -> None:
    (spec,) = endpoints_of(pod(ip="FD00:0:0::7"), "ns", (8000,))
    assert spec.address == "fd00::7"


@pytest.fixture
def inbox() -> Iterator[Mailbox[Told]]:
    with Mailbox[Told].open("datastore", capacity=16) as inbox:
        yield inbox


@pytest.fixture
def endpoints(inbox: Mailbox[Told]) -> PodEndpoints:
    return PodEndpoints("ns", inbox.address, (8000,))


async def told(inbox: Mailbox[Told]) -> list[str]:
    """What lies in the mailbox, in short."""
    return [_short(await anext(inbox)) for _ in range(len(inbox))]


def _short(message: Told) -> str:
    match message:
        case ReplaceEndpoints(specs):
            return " ".join(["=", *(spec.name for spec in specs)])
        case ChangeEndpoints(upserts, removals):
            added = [f"+{spec.name}" for spec in upserts]
            return " ".join(added + [f"-{spec.name}({spec.uid})" for spec in removals])


async def test_a_list_replaces_everything(endpoints: PodEndpoints, inbox: Mailbox[Told]) -> None:
    await endpoints.take(Replace([pod("a"), pod("b", ready=False)]))
    assert await told(inbox) == ["= a-rank-0"]


async def test_a_change_tells_what_follows_from_it(
    endpoints: PodEndpoints, inbox: Mailbox[Told]
) -> None:
    for one in (pod(), pod(ready=False), pod(), pod(ip="10.0.0.2")):
        await endpoints.take(Changed(one))
    assert await told(inbox) == ["+a-rank-0", "-a-rank-0(u:8000)", "+a-rank-0", "+a-rank-0"]


async def test_k_09_what_means_nothing_for_endpoints_tells_nobody(
    endpoints: PodEndpoints, inbox: Mailbox[Told]
) -> None:
    for number in range(50):
        await endpoints.take(Changed(pod(annotations={"checksum": str(number)})))
    assert await told(inbox) == ["+a-rank-0"]


async def test_a_pod_that_took_the_name_of_another_replaces_it(
    endpoints: PodEndpoints, inbox: Mailbox[Told]
) -> None:
    await endpoints.take(Changed(pod(uid="u1")))
    await endpoints.take(Changed(pod(uid="u2", ready=False)))
    assert await told(inbox) == ["+a-rank-0", "-a-rank-0(u1:8000)"]


async def test_other_ports_are_derived_for_all_pods(
    endpoints: PodEndpoints, inbox: Mailbox[Told]
) -> None:
    await endpoints.take(Replace([pod("a"), pod("b")]))
    await endpoints.use_ports((8000, 8001))
    await endpoints.use_ports((8000, 8001))
    assert (await told(inbox))[1:] == ["= a-rank-0 a-rank-1 b-rank-0 b-rank-1"]


async def test_a_pod_that_is_gone_takes_its_endpoints_along(
    endpoints: PodEndpoints, inbox: Mailbox[Told]
) -> None:
    await endpoints.take(Changed(pod()))
    await endpoints.take(Gone(pod()))
    await endpoints.take(Gone(pod()))
    assert await told(inbox) == ["+a-rank-0", "-a-rank-0(u:8000)"]


async def test_k_07_an_unusable_pod_is_named_once(
    endpoints: PodEndpoints, caplog: pytest.LogCaptureFixture
) -> None:
    one = pod(annotations={ACTIVE_PORTS: "9"})
    with caplog.at_level(logging.WARNING):
        await endpoints.take(Replace([one]))
        await endpoints.take(Changed(pod(annotations={ACTIVE_PORTS: "9", "checksum": "1"})))
        await endpoints.take(Replace([one]))
    reason = f"{ACTIVE_PORTS} is '9', which is none of the ports 8000"
    assert [record.message for record in caplog.records] == [f"pod ns/a: {reason}"]
    assert endpoints.unusable == {"a": reason}


async def test_k_07_ports_that_a_pod_does_not_declare_are_named_once(
    endpoints: PodEndpoints, inbox: Mailbox[Told], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            await endpoints.take(Replace([pod(port=9000)]))
    assert [record.message for record in caplog.records] == [
        "pod ns/a: its containers declare 9000 and none of the ports 8000"
    ]
    assert await told(inbox) == ["= a-rank-0"] * 2  # undeclared ports work all the same


async def test_a_pod_that_becomes_usable_is_no_longer_named(endpoints: PodEndpoints) -> None:
    await endpoints.take(Changed(pod(ip="nowhere")))
    await endpoints.take(Changed(pod()))
    assert endpoints.unusable == {}


async def test_the_names_of_pods_that_are_gone_are_forgotten(endpoints: PodEndpoints) -> None:
    await endpoints.take(Replace([pod("a", ip="nowhere"), pod("b", ip="nowhere")]))
    await endpoints.take(Gone(pod("a")))
    assert set(endpoints.unusable) == {"b"}
    await endpoints.take(Replace([]))
    assert endpoints.unusable == {}
