"""gRPC health, asked by gRPC's own client (P-16: who may ask what)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from pointsman.actors.extproc_server_health import HealthServer
from pointsman.actors.sim.processes import free_ports
from pointsman.kernel.channel import Latest
from pointsman.proto import (
    EXT_PROC_SERVICE,
    HEALTH_CHECK,
    HEALTH_LIST,
    HEALTH_WATCH,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListResponse,
    ServingStatus,
    decode,
    encode,
)

from .hosting import PATIENCE, grpc

pytestmark = pytest.mark.long

READY = ["", "readiness", EXT_PROC_SERVICE, "inference-extension"]


class Probe:
    """A running health server and a client of it."""

    def __init__(self, channel: Any, ready: Latest[bool], portal: Any) -> None:
        self.channel = channel
        self._ready = ready
        self._portal = portal

    def become(self, ready: bool) -> None:
        self._portal.call(self._ready.set, ready)

    def check(self, service: str) -> ServingStatus:
        ask = self.channel.unary_unary(HEALTH_CHECK, encode, _answer)
        answer: HealthCheckResponse = ask(HealthCheckRequest(service=service), timeout=PATIENCE)
        return answer.status


def _answer(data: bytes) -> HealthCheckResponse:
    return decode(HealthCheckResponse, data)


def _list(data: bytes) -> HealthListResponse:
    return decode(HealthListResponse, data)


@pytest.fixture
def probe() -> Generator[Probe]:
    (port,) = free_ports(1)
    ready = Latest(value=False)
    with start_blocking_portal("asyncio") as portal:
        serving, _ = portal.start_task(HealthServer("127.0.0.1", port, ready).run)
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Probe(channel, ready, portal)
        finally:
            serving.cancel()


@pytest.mark.parametrize("service", READY)
def test_readiness_is_what_the_daemon_says(probe: Probe, service: str) -> None:
    assert probe.check(service) is ServingStatus.NOT_SERVING
    probe.become(True)
    assert probe.check(service) is ServingStatus.SERVING


def test_p_18_being_alive_does_not_depend_on_being_ready(probe: Probe) -> None:
    assert probe.check("liveness") is ServingStatus.SERVING


def test_an_unknown_service_is_not_found(probe: Probe) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        probe.check("nobody")
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.NOT_FOUND


def test_a_watcher_hears_of_changes(probe: Probe) -> None:
    watch = probe.channel.unary_stream(HEALTH_WATCH, encode, _answer)
    call = watch(HealthCheckRequest(service="readiness"), timeout=PATIENCE)
    assert next(call).status is ServingStatus.NOT_SERVING
    probe.become(True)
    assert next(call).status is ServingStatus.SERVING
    call.cancel()


def test_a_watcher_of_an_unknown_service_is_told_so(probe: Probe) -> None:
    watch = probe.channel.unary_stream(HEALTH_WATCH, encode, _answer)
    call = watch(HealthCheckRequest(service="nobody"), timeout=PATIENCE)
    assert next(call).status is ServingStatus.SERVICE_UNKNOWN
    call.cancel()


def test_everything_can_be_listed(probe: Probe) -> None:
    ask = probe.channel.unary_unary(HEALTH_LIST, bytes, _list)
    listed = ask(b"", timeout=PATIENCE).statuses
    assert {name: one.status for name, one in listed.items()} == {
        "liveness": ServingStatus.SERVING,
        **dict.fromkeys(READY, ServingStatus.NOT_SERVING),
    }
