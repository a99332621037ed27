"""The fixtures of the end-to-end tests: real time, real processes, loopback only."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pointsman.actors.sim.envoy_bootstrap import HostPort
from pointsman.actors.sim.processes import free_ports

from .gateway import PICKERS, Layout, layout
from .model_servers import ModelServer, serving


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--picker", choices=sorted(PICKERS), default="pointsman", help="the picker behind Envoy"
    )


@pytest.fixture
async def servers() -> AsyncGenerator[tuple[ModelServer, ...]]:
    """Three model servers; the second has the shortest queue."""
    hosts = ("127.0.1.1", "127.0.1.2", "127.0.1.3")
    addresses = (HostPort(host, *free_ports(1, host)) for host in hosts)
    pods = tuple(
        ModelServer(f"pod-{n}", address, waiting)
        for n, (address, waiting) in enumerate(zip(addresses, (5, 1, 9), strict=True), start=1)
    )
    async with serving(*pods):
        yield pods


@pytest.fixture
def where(
    request: pytest.FixtureRequest, servers: tuple[ModelServer, ...], tmp_path: Path
) -> Layout:
    return layout(PICKERS[str(request.config.getoption("--picker"))], servers, tmp_path)


@pytest.fixture
def pointsman(where: Layout) -> Layout:
    """For what only our own daemon promises."""
    if not where.program.scrapes:
        pytest.skip("another picker is tried")
    return where
