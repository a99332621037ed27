"""A baseline server in this process, for the tests of the load."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from threading import Thread
from typing import Final

import pytest

from . import baseline

ENDPOINTS: Final = ["127.0.1.1:8000", "127.0.1.2:8000"]


async def _serve(port: Future[int], stop: Future[None]) -> None:
    server, bound = await baseline.start(ENDPOINTS)
    port.set_result(bound)
    await asyncio.wrap_future(stop)
    await server.stop(grace=0)


@pytest.fixture(scope="module")
def baseline_port() -> Generator[int]:
    """The port of a baseline server that runs in a thread."""
    port, stop = Future[int](), Future[None]()
    thread = Thread(target=lambda: asyncio.run(_serve(port, stop)))
    thread.start()
    yield port.result(timeout=10)
    stop.set_result(None)
    thread.join()
