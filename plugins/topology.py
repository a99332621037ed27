"""Where endpoints run, and keeping the stages of one request near each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Column, Consumes, DataView, keys, on
from pointsman.kernel.model import POD_DELETED, Endpoint, Identity, PodDeleted
from pointsman.kernel.plugin import Mask
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import not_blank, one_of

from .keys import PEER_ENDPOINT, TOPOLOGIES, TOPOLOGY, Topology


@final
@frozen(kw_only=True)
class TopologyExtractorParameters:
    """The labels of the endpoints that say where these run."""

    hostname: str = field(default="kubernetes.io/hostname", validator=not_blank)
    rack: str = field(default="topology.kubernetes.io/rack", validator=not_blank)
    zone: str = field(default="topology.kubernetes.io/zone", validator=not_blank)
    region: str = field(default="topology.kubernetes.io/region", validator=not_blank)

    def read(self, labels: Mapping[str, str]) -> Topology:
        return Topology(
            hostname=labels.get(self.hostname, ""),
            rack=labels.get(self.rack, ""),
            zone=labels.get(self.zone, ""),
            region=labels.get(self.region, ""),
        )


@final
@define(eq=False)
class TopologyExtractor:
    """Reads host, rack, zone and region of endpoints from their labels, once for each endpoint."""

    type_name: ClassVar = "topology-extractor"
    stability: ClassVar = Stability.ALPHA
    produces: ClassVar = keys(TOPOLOGY, TOPOLOGIES)
    default_for: ClassVar = keys(TOPOLOGY)
    parameters: TopologyExtractorParameters
    _topologies: dict[Identity, Topology] = field(factory=dict[Identity, Topology], init=False)
    _read_from: dict[Identity, Mapping[str, str]] = field(
        factory=dict[Identity, Mapping[str, str]], init=False
    )
    """The labels that each was read from: others than the endpoint's are out of date."""

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        data[TOPOLOGY] = [self._topology(endpoint) for endpoint in endpoints]
        data[TOPOLOGIES] = self._topologies

    def _topology(self, endpoint: Endpoint) -> Topology:
        identity, labels = endpoint.identity, endpoint.labels
        if self._read_from.get(identity) is labels:
            return self._topologies[identity]
        topology = self.parameters.read(labels)
        if not identity.gone:  # since the request was looked at; nobody would forget it again
            self._topologies[identity] = topology
            self._read_from[identity] = labels
        return topology

    @on(POD_DELETED)
    def forget(self, event: PodDeleted) -> None:
        self._topologies.pop(event.endpoint.identity, None)
        self._read_from.pop(event.endpoint.identity, None)

    def dump_state(self) -> object:
        return {"endpoints": len(self._topologies)}


LEVELS: Final = ("host", "rack", "zone", "region")
"""From the nearest to the farthest."""
SCORES: Final = (1.0, 0.2, 0.05, 0.02, 0.0)
"""By level; the last one for none in common."""
NOWHERE_NEAR: Final = len(LEVELS)


def nearness(peer: Topology, column: Column[Topology]) -> list[int]:
    """The first level that each has in common with *peer*, from 0; 4 for none.

    Levels are independent: a rack in common counts also where the zone is unknown.
    """
    places = (peer.hostname, peer.rack, peer.zone, peer.region)
    host, rack, zone, region = (place or None for place in places)  # the unknown equals nothing

    def level(topology: Topology) -> int:
        if topology.hostname == host:
            return 0
        if topology.rack == rack:
            return 1
        if topology.zone == zone:
            return 2
        return 3 if topology.region == region else NOWHERE_NEAR

    return [NOWHERE_NEAR if topology is None else level(topology) for topology in column]


def peers_topology(data: DataView) -> Topology | None:
    """Where the request's other stage runs; None without another stage, or when it is unknown.

    The peer need be no candidate: an endpoint that decodes is none for prefill.
    """
    peer = data.get(PEER_ENDPOINT)
    if peer is None:
        return None
    return (data.get(TOPOLOGIES) or {}).get(peer.identity) or data.of(TOPOLOGY, peer)


_NEEDED: Final = Consumes(TOPOLOGY, optional=[PEER_ENDPOINT, TOPOLOGIES])


def _producer_names(producer: str) -> Mapping[str, str]:
    return {TOPOLOGY.name: producer, TOPOLOGIES.name: producer}


@final
@frozen(kw_only=True)
class TopologyAffinityFilterParameters:
    min_affinity: str = field(default="host", validator=one_of(*LEVELS))
    """What an endpoint must have in common with the peer, or something nearer."""
    topology_producer_name: str = ""


@final
@define(eq=False)
class TopologyAffinityFilter:
    """Keeps the endpoints near the one that another stage of the request was given.

    Keeps all for requests of a single stage, and where none is near enough.
    """

    type_name: ClassVar = "topology-affinity-filter"
    stability: ClassVar = Stability.ALPHA
    consumes: ClassVar = _NEEDED
    parameters: TopologyAffinityFilterParameters

    @property
    def producer_names(self) -> Mapping[str, str]:
        return _producer_names(self.parameters.topology_producer_name)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        peer = peers_topology(data)
        if peer is None:
            return [True] * len(endpoints)
        column = data[TOPOLOGY]
        farthest = LEVELS.index(self.parameters.min_affinity)
        near = [level <= farthest for level in nearness(peer, column)]
        return near if any(near) else [True] * len(endpoints)


@final
@frozen(kw_only=True)
class TopologyAffinityScorerParameters:
    topology_producer_name: str = ""


@final
@define(eq=False)
class TopologyAffinityScorer:
    """Prefers endpoints near the one that another stage of the request was given.

    1 on its host, 0.2 in its rack, 0.05 in its zone, 0.02 in its region, else 0; 0 for all when
    the request has a single stage.
    """

    type_name: ClassVar = "topology-affinity-scorer"
    stability: ClassVar = Stability.ALPHA
    consumes: ClassVar = _NEEDED
    parameters: TopologyAffinityScorerParameters

    @property
    def producer_names(self) -> Mapping[str, str]:
        return _producer_names(self.parameters.topology_producer_name)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        peer = peers_topology(data)
        if peer is None:
            return [0.0] * len(endpoints)
        column = data[TOPOLOGY]
        return [SCORES[level] for level in nearness(peer, column)]
