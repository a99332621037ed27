"""Traces go on at the model server, and certificates change under way, with a real Envoy."""

from __future__ import annotations

import ssl

import anyio
import pytest
from attrs import evolve
from cryptography import x509
from tests.actors.handshakes import Mounted, issue, serial

from pointsman.actors.sim.envoy_bootstrap import Mode

from .gateway import Gateway, Layout, chat, eventually, gateway
from .modes import in_each_mode

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@in_each_mode
async def test_p_20_the_model_server_goes_on_with_the_picker_s_span(
    pointsman: Layout, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    caller = f"00-{TRACE}-{CALLER}-01"
    async with gateway(pointsman, evolve(pointsman.envoy(), mode=mode)) as under_test:
        response = await under_test.post(chat("hello"), {"traceparent": caller})
        assert response.status_code == 200
        (received,) = under_test.best.received
    version, trace, parent, flags = received.headers["traceparent"].split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert parent != CALLER


async def shown_serial(under_test: Gateway) -> int:
    """Of the certificate that a new connection to the picker sees."""
    address = under_test.layout.picker
    certificate = await anyio.to_thread.run_sync(
        ssl.get_server_certificate, (address.host, address.port)
    )
    return x509.load_pem_x509_certificate(certificate.encode()).serial_number


async def test_p_15_another_certificate_costs_no_request(pointsman: Layout) -> None:
    mounted, first, second = Mounted(pointsman.folder / "secret"), issue(), issue()
    mounted.swap(first)
    flags = (f"--cert-path={mounted.folder}", "--enable-cert-reload")
    where = evolve(pointsman, flags=flags)
    async with gateway(where, evolve(where.envoy(), picker_tls=True)) as under_test:

        async def is_new() -> bool:
            return await shown_serial(under_test) == serial(second)

        assert await shown_serial(under_test) == serial(first)
        under_test.best.hold()
        async with under_test.client.stream(
            "POST", "/v1/chat/completions", content=chat("hello", stream=True)
        ) as running:
            mounted.swap(second)
            await eventually(is_new)
            assert (await under_test.chat()).status_code == 200
            under_test.best.release()
            assert (await running.aread()).endswith(b"data: [DONE]\n\n")
