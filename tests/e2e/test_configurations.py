"""What Envoy itself says to our configurations."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from attrs import evolve

from pointsman.actors.sim.envoy import envoy, envoy_path
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, HostPort, Mode, bootstrap
from pointsman.actors.sim.processes import ChildFailed, child, free_ports

from .modes import in_each

DEPLOY = Path(__file__).parents[2] / "deploy" / "envoy"
SERVERS = (HostPort("127.0.1.1", 8000), HostPort("::1", 8000))


@pytest.fixture
def settings() -> EnvoySettings:
    listen, admin, picker = (HostPort("127.0.0.1", port) for port in free_ports(3))
    return EnvoySettings(listen=listen, admin=admin, picker=picker)


async def complaints(config: Path) -> str:
    """Let Envoy load *config* without serving; return what it has against it."""
    command = (envoy_path(), "--mode", "validate", "--log-level", "error", "-c", str(config))
    async with child("envoy", command) as process:
        accepted = await process.wait() == 0
        return "" if accepted else process.output


@pytest.mark.parametrize("config", sorted(DEPLOY.glob("*.yaml")), ids=lambda path: path.stem)
async def test_envoy_accepts_the_recommended_files(config: Path) -> None:
    assert await complaints(config) == ""


@in_each(tuple(Mode))
@pytest.mark.parametrize("fallback", [(), SERVERS], ids=["by-header", "by-metadata"])
async def test_envoy_accepts_what_is_rendered(
    settings: EnvoySettings, mode: Mode, fallback: tuple[HostPort, ...], tmp_path: Path
) -> None:
    rendered = evolve(settings, mode=mode, fallback=fallback, picker_tls=True, subset_hint=SERVERS)
    config = tmp_path / "envoy.json"
    config.write_text(json.dumps(bootstrap(rendered)))
    assert await complaints(config) == ""


async def test_a_port_in_use_is_named(settings: EnvoySettings) -> None:
    with (
        socket.create_server((settings.listen.host, settings.listen.port)),
        pytest.raises(ChildFailed, match=rf"{settings.listen}.*Address already in use"),
    ):
        async with envoy(settings):
            pytest.fail("the block must not begin")


async def test_two_envoys_run_side_by_side(settings: EnvoySettings) -> None:
    listen, admin = (HostPort("127.0.0.1", port) for port in free_ports(2))
    async with envoy(settings) as one, envoy(evolve(settings, listen=listen, admin=admin)) as two:
        assert (one.returncode, two.returncode) == (None, None)
