"""Kubernetes as the source of the pool: everything that is followed, under one roof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import final

import anyio
from attrs import define, field, frozen

from pointsman.kernel.channel import Latest
from pointsman.kernel.datastore import ChangeEndpoints, ReplaceEndpoints
from pointsman.kernel.errors import ConfigError, Mistake
from pointsman.kernel.mailbox import Address
from pointsman.kernel.pool import Pool, SetObjectives, SetPool, SetRewrites

from .access import Login
from .attached import Attached, objectives_of, rewrites_of
from .client import OpenTransport, http_transport
from .cluster import Cluster
from .errors import AccessError
from .kinds import (
    OBJECTIVES,
    OLDER_OBJECTIVES,
    OLDER_REWRITES,
    POOL_GROUP,
    REWRITES,
    InferenceModelRewrite,
    InferenceObjective,
    InferencePool,
    PoolReference,
    pools,
)
from .pods import PodEndpoints
from .pool import PoolObject
from .pool_pods import PoolPods, Target
from .reflector import Reflector

Told = ReplaceEndpoints | ChangeEndpoints | SetPool | SetObjectives | SetRewrites


@final
@frozen(kw_only=True)
class PoolSettings:
    """Serve an InferencePool."""

    namespace: str
    name: str
    group: str = POOL_GROUP


@final
@frozen(kw_only=True)
class SelectorSettings:
    """Serve pods that a selector names, in a cluster without our custom resources."""

    namespace: str
    name: str
    """What the pool is called in figures; nothing of that name is looked for."""
    selector: str
    """A label selector in the API's syntax."""
    ports: tuple[int, ...]


Settings = PoolSettings | SelectorSettings
_Reflector = (
    Reflector[InferencePool] | Reflector[InferenceObjective] | Reflector[InferenceModelRewrite]
)


@final
@define(eq=False)
class KubernetesDiscovery:
    """Feeds the datastore from an API server, whose loss leaves the last state in place."""

    login: Login
    settings: Settings
    datastore: Address[Told]
    random: Random
    open_transport: OpenTransport = http_transport
    _pods: PoolPods = field(init=False)
    _pool: PoolObject | None = field(default=None, init=False)
    _objectives: Attached[InferenceObjective] | None = field(default=None, init=False)
    _rewrites: Attached[InferenceModelRewrite] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        cluster = Cluster(self.login, settings.namespace, self.random, self.open_transport)
        self._pods = PoolPods(cluster, PodEndpoints(settings.namespace, self.datastore))
        if isinstance(settings, PoolSettings):
            self._follow_pool(settings, cluster)

    def _follow_pool(self, settings: PoolSettings, cluster: Cluster) -> None:
        kind, target = pools(settings.group), self._pods.target
        reference = PoolReference(settings.name, settings.group)
        self._pool = PoolObject(cluster, kind, settings.name, self.datastore, target)
        self._objectives = Attached(
            cluster, OBJECTIVES, OLDER_OBJECTIVES, reference, self._set_objectives
        )
        self._rewrites = Attached(cluster, REWRITES, OLDER_REWRITES, reference, self._set_rewrites)

    @property
    def synced(self) -> Latest[bool]:
        """Whether the pool is known and the first list of its pods is in, be it empty."""
        return self._pods.synced

    async def prepare(self) -> None:
        """Look for a usable configuration and a credential. Raises ConfigError."""
        try:
            await self.login.access()
        except AccessError as exc:
            raise ConfigError("Kubernetes", [Mistake(str(exc))]) from exc

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pods.run)
            if self._pool is not None:
                tasks.start_soon(self._pool.reflector.run)
            for attached in (self._objectives, self._rewrites):
                if attached is not None:
                    tasks.start_soon(attached.run)
            if isinstance(self.settings, SelectorSettings):
                await self._name_pool(self.settings)

    async def _name_pool(self, settings: SelectorSettings) -> None:
        pool = Pool(namespace=settings.namespace, name=settings.name, ports=settings.ports)
        await self.datastore.tell(SetPool(pool))
        self._pods.target.set(Target(settings.selector, settings.ports))

    async def _set_objectives(self, objects: list[InferenceObjective]) -> None:
        await self.datastore.tell(objectives_of(objects))

    async def _set_rewrites(self, objects: list[InferenceModelRewrite]) -> None:
        await self.datastore.tell(rewrites_of(objects))

    def ages(self) -> Mapping[str, float]:
        """Seconds since the API server last told something, by kind (its plural).

        Minutes are normal for a kind of which nothing changes; more than seven are not.
        """
        ages = {kind: one.age for kind, one in self._reflectors().items()}
        return ages if self._pods.age is None else {"pods": self._pods.age, **ages}

    def skipped(self) -> Mapping[str, Sequence[str]]:
        """Objects that are not used as they are, by kind, each as ``name: reason``."""
        found = {kind: one.skipped for kind, one in self._reflectors().items()}
        found["pods"] = self._pods.skipped
        return {
            kind: [f"{name}: {reason}" for name, reason in sorted(skipped.items())]
            for kind, skipped in found.items()
            if skipped
        }

    def _reflectors(self) -> Mapping[str, _Reflector]:
        followers = (self._pool, self._objectives, self._rewrites)
        found = (one.reflector for one in followers if one is not None)
        return {reflector.selection.kind.plural: reflector for reflector in found}
