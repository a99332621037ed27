"""Endpoints from pods: one for each target port of each pod that is ready.

Everything is worked out anew for each event, so nothing depends on which events came before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final, assert_never, final

from attrs import define, field

from pointsman.kernel.datastore import ChangeEndpoints, EndpointSpec, ReplaceEndpoints
from pointsman.kernel.mailbox import Address

from .kinds import ACTIVE_PORTS, OLDER_ACTIVE_PORTS, Annotations, Pod
from .reflector import Changed, Gone, News, Replace

logger = logging.getLogger(__name__)

OVER: Final = frozenset({"Succeeded", "Failed"})
NOTHING: Final[tuple[EndpointSpec, ...]] = ()


class Unusable(Exception):
    """A pod that is ready and offers nothing all the same; says why."""


def is_ready(pod: Pod) -> bool:
    """Whether requests may be sent to *pod*: it is ready, has an address and is not ending."""
    status = pod.status
    return (
        pod.metadata.deletion_timestamp is None
        and bool(status.pod_ip)
        and status.phase not in OVER
        and any(c.type == "Ready" and c.status == "True" for c in status.conditions or ())
    )


def endpoints_of(pod: Pod, namespace: str, ports: tuple[int, ...]) -> tuple[EndpointSpec, ...]:
    """The endpoints that *pod* offers behind a pool with these target *ports*.

    A port is part of the identity: what is known of one never passes to another.

    Raises:
        Unusable: it is ready and there are none.
    """
    if not is_ready(pod):
        return NOTHING
    metadata = pod.metadata
    active = ports if metadata.annotations is None else _active_ports(metadata.annotations, ports)
    address = _canonical(pod.status.pod_ip)
    return tuple(
        EndpointSpec(
            uid=f"{metadata.uid}:{port}",
            name=f"{metadata.name}-rank-{rank}",
            namespace=namespace,
            pod=metadata.name,
            address=address,
            port=port,
            rank=rank,
            labels=metadata.labels or {},
        )
        for rank, port in enumerate(ports)
        if port in active
    )


def _are_alike(pod: Pod, last: Pod) -> bool:
    """Whether nothing changed that endpoints depend on: most changes of a pod are not for us."""
    new, old = pod.metadata, last.metadata
    return (
        pod.status == last.status
        and new.uid == old.uid
        and new.labels == old.labels
        and new.annotations == old.annotations
        and new.deletion_timestamp == old.deletion_timestamp
        and pod.spec == last.spec
    )


@lru_cache(maxsize=4096)
def _canonical(address: str) -> str:
    try:
        return ip_address(address).compressed
    except ValueError:
        raise Unusable(f"its address {address!r} is no IP address") from None


def _active_ports(annotations: Annotations, ports: tuple[int, ...]) -> Iterable[int]:
    """Those of *ports* that an annotation names, the newer one before the older; else all."""
    name, text = ACTIVE_PORTS, annotations.active_ports
    if text is None:
        name, text = OLDER_ACTIVE_PORTS, annotations.older_active_ports
    if text is None:
        return ports
    tokens = {token.strip() for token in text.split(",")}
    active = [port for port in ports if str(port) in tokens]
    if not active:
        raise Unusable(f"{name} is {text!r}, which is none of the ports {listed(ports)}")
    return active


def listed(ports: Iterable[int]) -> str:
    return ", ".join(map(str, ports))


def undeclared(pod: Pod, ports: tuple[int, ...]) -> str:
    """What looks like a mistake: *pod* declares ports, and none of the pool's is among them."""
    containers = pod.spec.containers or ()
    declared = [port.container_port for c in containers for port in c.ports or ()]
    if not declared or not set(ports).isdisjoint(declared):
        return ""
    return f"its containers declare {listed(declared)} and none of the ports {listed(ports)}"


@final
@define(eq=False)
class PodEndpoints:
    """Keeps the datastore's endpoints equal to what the pods offer."""

    namespace: str
    datastore: Address[ReplaceEndpoints | ChangeEndpoints]
    ports: tuple[int, ...] = ()
    _pods: dict[str, Pod] = field(factory=dict[str, Pod], init=False, repr=False)
    _specs: dict[str, tuple[EndpointSpec, ...]] = field(
        factory=dict[str, tuple[EndpointSpec, ...]], init=False, repr=False
    )
    _remarks: dict[str, str] = field(factory=dict[str, str], init=False, repr=False)
    _unusable: set[str] = field(factory=set[str], init=False, repr=False)

    @property
    def unusable(self) -> Mapping[str, str]:
        """Pods that are ready and have no endpoint, and why."""
        return {name: self._remarks[name] for name in self._unusable}

    async def take(self, news: News[Pod]) -> None:
        """Take in what became of the pods, and tell the datastore what follows."""
        match news:
            case Changed(pod):
                await self._change(pod)
            case Gone(pod):
                await self._remove(pod)
            case Replace(pods):
                await self._replace(pods)
            case _:
                assert_never(news)

    async def use_ports(self, ports: tuple[int, ...]) -> None:
        """Derive all endpoints anew for other target ports."""
        if ports != self.ports:
            self.ports = ports
            await self._replace(tuple(self._pods.values()))

    async def clear(self) -> None:
        """There are no pods, because there is no pool."""
        await self._replace(())

    async def _replace(self, pods: Sequence[Pod]) -> None:
        self._pods = {pod.metadata.name: pod for pod in pods}
        self._specs = {name: self._derive(pod) for name, pod in self._pods.items()}
        for name in self._remarks.keys() - self._pods.keys():
            self._forget_remarks(name)
        every = [spec for specs in self._specs.values() for spec in specs]
        await self.datastore.tell(ReplaceEndpoints(every))

    async def _change(self, pod: Pod) -> None:
        name = pod.metadata.name
        if (last := self._pods.get(name)) is not None and _are_alike(pod, last):
            return
        before = self._specs.get(name, NOTHING)
        after = self._derive(pod)
        self._pods[name], self._specs[name] = pod, after
        if after == before:
            return
        kept = {spec.uid for spec in after}
        upserts = [spec for spec in after if spec not in before]
        removals = [spec for spec in before if spec.uid not in kept]
        await self.datastore.tell(ChangeEndpoints(upserts, removals))

    async def _remove(self, pod: Pod) -> None:
        name = pod.metadata.name
        self._pods.pop(name, None)
        self._forget_remarks(name)
        if specs := self._specs.pop(name, NOTHING):
            await self.datastore.tell(ChangeEndpoints(removals=specs))

    def _derive(self, pod: Pod) -> tuple[EndpointSpec, ...]:
        name = pod.metadata.name
        try:
            specs = endpoints_of(pod, self.namespace, self.ports)
        except Unusable as exc:
            self._remark(name, str(exc))
            self._unusable.add(name)
            return NOTHING
        self._unusable.discard(name)
        self._remark(name, undeclared(pod, self.ports))
        return specs

    def _remark(self, name: str, remark: str) -> None:
        """Say once of each pod what is wrong with it, and again when that changes."""
        if remark == self._remarks.get(name, ""):
            return
        if remark:
            logger.warning("pod %s/%s: %s", self.namespace, name, remark)
            self._remarks[name] = remark
        else:
            self._forget_remarks(name)

    def _forget_remarks(self, name: str) -> None:
        self._remarks.pop(name, None)
        self._unusable.discard(name)
