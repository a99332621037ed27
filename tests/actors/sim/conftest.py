"""What several tests of the simulator start."""

from __future__ import annotations

import pytest
import trio

from pointsman.actors.sim.model_server import ModelServer
from pointsman.actors.sim.pods import Pod, read_settings

from .clients import Client, Start


@pytest.fixture
def start(nursery: trio.Nursery) -> Start:
    """Start a server with the given settings."""

    def start(speed: float = 1.0, **settings: str) -> Client:
        pod = Pod("sim-1", "127.0.1.1", 8000, read_settings(settings))
        server = ModelServer(pod, speed, wall=lambda: 1_795_964_370.25)
        nursery.start_soon(server.run)
        return Client(server)

    return start
