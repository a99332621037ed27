"""Simulated clusters that clean up after themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import trio

from .clusters import Cluster, serving

Start = Callable[..., Cluster]


@pytest.fixture
async def start() -> AsyncGenerator[Start, None]:
    """Make a cluster that serves the pods that are named and follow it; the test has the clock."""
    made: list[Cluster] = []

    async with trio.open_nursery() as nursery:

        def start(*pods: str, follow: bool = True, **settings: Any) -> Cluster:
            cluster = serving(nursery, *pods, **settings)
            made.append(cluster)
            if follow:
                cluster.follow()
            return cluster

        yield start
        nursery.cancel_scope.cancel()
    for cluster in made:
        cluster.store.inbox.close()
