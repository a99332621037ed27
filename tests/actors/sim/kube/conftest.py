"""What most tests of the API server start from."""

from __future__ import annotations

from random import Random

import pytest
import trio

from pointsman.actors.sim.kube.identity import Authenticator
from pointsman.actors.sim.kube.rbac import Mode
from pointsman.actors.sim.kube.server import ApiServer

from .kit import EPOCH, Api, MakeApi, definitions


@pytest.fixture
def make_api(nursery: trio.Nursery) -> MakeApi:
    """Start a server, whose time is that of the test."""
    started = trio.current_time()

    def make(mode: Mode = "AlwaysAllow", authenticator: Authenticator | None = None) -> Api:
        def now() -> float:
            return EPOCH + trio.current_time() - started

        server = ApiServer(mode, authenticator or Authenticator(), Random(7), now)
        for definition in definitions():
            server.create(definition)
        nursery.start_soon(server.run)
        return Api(server, nursery)

    return make


@pytest.fixture
def api(make_api: MakeApi) -> Api:
    """A server that lets everybody do everything."""
    return make_api()
