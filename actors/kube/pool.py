"""The InferencePool that is served: which pods, on which ports."""

from __future__ import annotations

from typing import assert_never, final

from attrs import define, field

from pointsman.kernel.channel import Latest
from pointsman.kernel.mailbox import Address
from pointsman.kernel.pool import Pool, SetPool

from .cluster import Cluster
from .kinds import InferencePool, Kind, label_selector
from .pool_pods import Target
from .reflector import Changed, Gone, News, Reflector, Replace


def pool_of(obj: InferencePool, namespace: str) -> Pool:
    """What the picker knows of a pool. A port that is listed twice counts once."""
    return Pool(
        namespace=namespace,
        name=obj.metadata.name,
        selector=obj.spec.selector.match_labels,
        ports=tuple(dict.fromkeys(port.number for port in obj.spec.target_ports)),
        app_protocol=obj.spec.app_protocol or "http",
    )


@final
@define(eq=False)
class PoolObject:
    """Follows one InferencePool by name; what it says becomes the target of its pods."""

    cluster: Cluster
    kind: Kind[InferencePool]
    name: str
    datastore: Address[SetPool]
    target: Latest[Target | None]
    reflector: Reflector[InferencePool] = field(init=False)
    _pool: Pool | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        # A role may be narrowed to one name; it then allows no list without this selector.
        fields = f"metadata.name={self.name}"
        self.reflector = self.cluster.reflector(self.kind, self._take, fields=fields)

    async def _take(self, news: News[InferencePool]) -> None:
        match news:
            case Replace(objects):
                found = next((obj for obj in objects if obj.metadata.name == self.name), None)
            case Changed(obj):
                found = obj
            case Gone():
                found = None
            case _:
                assert_never(news)
        terminating = found is not None and found.metadata.deletion_timestamp is not None
        await self._set(None if terminating else found)

    async def _set(self, obj: InferencePool | None) -> None:
        pool = None if obj is None else pool_of(obj, self.cluster.namespace)
        if pool == self._pool:
            return
        self._pool = pool
        await self.datastore.tell(SetPool(pool))
        self.target.set(None if pool is None else Target(label_selector(pool.selector), pool.ports))
