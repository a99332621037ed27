"""The pods of a pool, whose selector and ports may change while requests are served.

The pods of another selector take over when their first list is in; until then the earlier ones
serve and are followed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import final

import anyio
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from pointsman.kernel.channel import Latest

from .cluster import Cluster
from .kinds import PODS, Pod
from .pods import PodEndpoints
from .reflector import News, Reflector


@final
@frozen
class Target:
    """Which pods are wanted, and the ports on which they serve."""

    selector: str
    """A label selector."""
    ports: tuple[int, ...]


@final
@define(eq=False)
class _Generation:
    """The pods of one selector, for as long as they are wanted."""

    target: Target
    reflector: Reflector[Pod] = field(init=False)
    scope: anyio.CancelScope = field(factory=anyio.CancelScope)

    async def run(self) -> None:
        with self.scope:
            await self.reflector.run()


@final
@define(eq=False)
class PoolPods:
    """Follows the pods that are the target, and feeds their endpoints to the datastore."""

    cluster: Cluster
    endpoints: PodEndpoints
    target: Latest[Target | None] = field(factory=lambda: Latest[Target | None](None), init=False)
    """None: there is no pool, so there are no endpoints."""
    synced: Latest[bool] = field(factory=lambda: Latest(value=False), init=False)
    """Whether there is a target and its pods are known."""
    _serving: _Generation | None = field(default=None, init=False)
    _coming: _Generation | None = field(default=None, init=False)
    """What takes over once its first list is in."""

    @property
    def age(self) -> float | None:
        """Seconds since the last word about the pods that serve; None while there are none."""
        generation = self._serving or self._coming
        return None if generation is None else generation.reflector.age

    @property
    def skipped(self) -> Mapping[str, str]:
        """Pods that cannot be read, or are ready and offer nothing, and why."""
        if self._serving is None:
            return {}
        return {**self.endpoints.unusable, **self._serving.reflector.skipped}

    async def run(self) -> None:
        self._serving = self._coming = None
        version = -1
        async with anyio.create_task_group() as tasks:
            while True:
                version, target = await self.target.newer(version)
                await self._aim(target, tasks)

    async def _aim(self, target: Target | None, tasks: TaskGroup) -> None:
        if target is None:
            await self._give_up()
        elif self._serving is not None and self._serving.target.selector == target.selector:
            self._drop_coming()
            await self.endpoints.use_ports(target.ports)
        elif self._coming is not None and self._coming.target.selector == target.selector:
            self._coming.target = target
        else:
            self._drop_coming()
            self._coming = self._generation(target)
            tasks.start_soon(self._coming.run)

    def _generation(self, target: Target) -> _Generation:
        generation = _Generation(target)
        generation.reflector = self.cluster.reflector(
            PODS, partial(self._take, generation), labels=target.selector
        )
        return generation

    async def _give_up(self) -> None:
        self._drop_serving()
        self._drop_coming()
        if self.synced.value:
            self.synced.set(False)
            await self.endpoints.clear()

    async def _take(self, generation: _Generation, news: News[Pod]) -> None:
        if generation is self._coming:
            self._drop_serving()
            self._serving, self._coming = generation, None
            self.endpoints.ports = generation.target.ports
        elif generation is not self._serving:
            return  # its last word, on the way when it was stopped
        await self.endpoints.take(news)
        if not self.synced.value:
            self.synced.set(True)

    def _drop_serving(self) -> None:
        if self._serving is not None:
            self._serving.scope.cancel()
            self._serving = None

    def _drop_coming(self) -> None:
        if self._coming is not None:
            self._coming.scope.cancel()
            self._coming = None
