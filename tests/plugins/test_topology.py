"""Where endpoints run, and stages of a request near each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import refused

from pointsman.kernel.keys import Column
from pointsman.kernel.model import Endpoint, PodDeleted
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins import BUILT_IN
from pointsman.plugins.keys import PEER_ENDPOINT, TOPOLOGIES, TOPOLOGY, Topology
from pointsman.plugins.topology import (
    LEVELS,
    SCORES,
    TopologyAffinityFilter,
    TopologyAffinityFilterParameters,
    TopologyAffinityScorer,
    TopologyAffinityScorerParameters,
    TopologyExtractor,
    TopologyExtractorParameters,
    nearness,
)

from .stand_ins import publishing

PEER: Final = Topology("h1", "r1", "z1", "g1")
NEAR: Final = (
    PEER,
    Topology("h2", "r1", "z1", "g1"),
    Topology("h3", "r2", "z1", "g1"),
    Topology("h4", "r3", "z2", "g1"),
    Topology("h5", "r4", "z3", "g2"),
)
"""From the peer's own host to nothing in common with it."""
PLACES: Final = st.builds(Topology, *[st.sampled_from(["", "a", "b"])] * 4)


# -- the extractor ---------------------------------------------------------------------------


def extractor(**parameters: str) -> TopologyExtractor:
    return TopologyExtractor(TopologyExtractorParameters(**parameters))


def read(plugin: TopologyExtractor, candidates: Sequence[Endpoint]) -> Column[Topology]:
    column: Column[Topology] = Bench(plugin, candidates).produce_now()[TOPOLOGY]
    return column


LABELS: Final = {
    "kubernetes.io/hostname": "node-1",
    "topology.kubernetes.io/rack": "rack-1",
    "topology.kubernetes.io/zone": "zone-1",
    "topology.kubernetes.io/region": "region-1",
}


def test_places_are_read_from_the_labels_of_kubernetes() -> None:
    found = read(extractor(), [endpoint("a", labels=LABELS), endpoint("b")])
    assert found == [Topology("node-1", "rack-1", "zone-1", "region-1"), Topology()]


def test_places_can_stand_in_other_labels() -> None:
    plugin = extractor(hostname="h", rack="r", zone="z", region="g")
    labels = {"h": "1", "r": "2", "z": "3", "g": "4", **LABELS}
    assert read(plugin, [endpoint("a", labels=labels)]) == [Topology("1", "2", "3", "4")]


def test_the_ports_of_one_pod_are_in_one_place() -> None:
    ports = [endpoint(f"a-rank-{n}", port=8000 + n, labels=LABELS) for n in range(2)]
    first, second = read(extractor(), ports)
    assert first == second


def test_labels_that_changed_are_read_again() -> None:
    plugin = extractor()
    before = endpoint("a", labels={"topology.kubernetes.io/zone": "z1"})
    read(plugin, [before])
    after = Endpoint(
        identity=before.identity,
        name="a",
        address=before.address,
        port=before.port,
        labels={"topology.kubernetes.io/zone": "z2"},
    )
    assert read(plugin, [after]) == [Topology(zone="z2")]


def test_a_deleted_endpoint_is_forgotten() -> None:
    plugin, both = extractor(), endpoints("a", "b")
    read(plugin, both)
    plugin.forget(PodDeleted(both[0]))
    plugin.forget(PodDeleted(endpoint("never seen")))
    assert plugin.dump_state() == {"endpoints": 1}


def test_an_endpoint_that_a_request_meets_after_it_was_deleted_is_not_kept() -> None:
    plugin, late = extractor(), endpoint("late", labels=LABELS)
    late.identity.gone = True
    plugin.forget(PodDeleted(late))
    assert read(plugin, [late]) == [Topology("node-1", "rack-1", "zone-1", "region-1")]
    assert plugin.dump_state() == {"endpoints": 0}


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [("{zone: ''}", "zone: must not be empty"), ("{host: x}", "host: unknown field")],
)
def test_mistaken_labels_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: topology-extractor, parameters: {parameters}}}]"
    (mistake,) = refused(text, TopologyExtractor)
    assert complaint in mistake


# -- nearness --------------------------------------------------------------------------------


def test_the_finest_level_in_common_counts() -> None:
    assert nearness(PEER, NEAR) == [0, 1, 2, 3, 4]


def test_levels_are_independent_of_each_other() -> None:
    sparse = [Topology(rack="r1"), Topology(hostname="h1", zone="z9"), Topology("h9", region="g1")]
    assert nearness(PEER, sparse) == [1, 0, 3]


def test_what_is_unknown_is_nothing_in_common() -> None:
    assert nearness(Topology(), [Topology(), PEER, None]) == [4, 4, 4]
    assert nearness(Topology(zone="z1"), [Topology(), Topology(zone="z1")]) == [4, 2]


@given(PLACES, PLACES)
def test_nearness_is_mutual(one: Topology, other: Topology) -> None:
    assert nearness(one, [other]) == nearness(other, [one])


# -- filter and scorer -----------------------------------------------------------------------


def scorer() -> TopologyAffinityScorer:
    return TopologyAffinityScorer(TopologyAffinityScorerParameters())


def asked(plugin: object, peer: Topology | None, column: Column[Topology]) -> tuple[Bench, Any]:
    """A bench, and the data when the other stage runs at *peer*."""
    bench = Bench(plugin, endpoints(*(str(number) for number in range(len(column)))))
    other = endpoint("peer")
    topologies = {} if peer is None else {other.identity: peer}
    return bench, {PEER_ENDPOINT: other, TOPOLOGY: column, TOPOLOGIES: topologies}


def kept(level: str, column: Column[Topology], peer: Topology | None = PEER) -> str:
    """The numbers of those that stay, in one text."""
    parameters = TopologyAffinityFilterParameters(min_affinity=level)
    bench, data = asked(TopologyAffinityFilter(parameters), peer, column)
    return "".join(one.name for one in bench.keep(data))


@pytest.mark.parametrize(
    ("level", "expected"), [("host", "0"), ("rack", "01"), ("zone", "012"), ("region", "0123")]
)
def test_the_filter_keeps_who_is_as_near_as_wanted_or_nearer(level: str, expected: str) -> None:
    assert kept(level, NEAR) == expected


def test_the_filter_wants_the_same_host_unless_told() -> None:
    assert TopologyAffinityFilterParameters().min_affinity == "host"


def test_an_endpoint_in_an_unknown_place_is_near_nobody() -> None:
    assert kept("region", [None, PEER, Topology()]) == "1"


def test_where_none_is_near_enough_all_stay() -> None:
    assert kept("host", NEAR[1:]) == "0123"
    assert kept("region", [None, Topology()]) == "01"


def test_the_scorer_rates_by_the_level() -> None:
    bench, data = asked(scorer(), PEER, [*NEAR, None])
    assert bench.score(data) == [1.0, 0.2, 0.05, 0.02, 0.0, 0.0]


@pytest.mark.parametrize("missing", [PEER_ENDPOINT, TOPOLOGIES])
def test_without_a_peer_in_a_known_place_all_are_alike(missing: Any) -> None:
    bench, data = asked(scorer(), PEER, NEAR)
    del data[missing]
    assert bench.score(data) == [0.0] * 5
    bench.plugin = TopologyAffinityFilter(TopologyAffinityFilterParameters())
    assert len(bench.keep(data)) == 5


def test_the_place_of_a_peer_that_is_a_candidate_needs_no_list_of_all() -> None:
    bench = Bench(scorer(), endpoints(*"abcde"))
    found = bench.score({TOPOLOGY: NEAR, PEER_ENDPOINT: bench.endpoints[2]})
    assert found == [0.05, 0.05, 1.0, 0.02, 0.0]


@given(PLACES, st.lists(st.none() | PLACES, min_size=1, max_size=6))
def test_every_score_is_one_of_the_five(peer: Topology, column: list[Topology | None]) -> None:
    bench, data = asked(scorer(), peer, column)
    assert set(bench.score(data)) <= set(SCORES)


@given(PLACES, st.lists(st.none() | PLACES, min_size=1, max_size=6), st.sampled_from(LEVELS))
def test_the_filter_never_leaves_nobody(
    peer: Topology, column: list[Topology | None], level: str
) -> None:
    assert kept(level, column, peer)


# -- in the daemon ---------------------------------------------------------------------------

STAGES: Final = """
plugins:
- {type: decode-filter}
- {type: prefill-filter}
- {type: always-disagg-pd-decider}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
- {type: topology-affinity-filter, parameters: {minAffinity: zone}}
- {type: topology-affinity-scorer}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: decode-filter}]}
- name: prefill
  plugins:
  - {pluginRef: prefill-filter}
  - {pluginRef: topology-affinity-filter}
  - {pluginRef: topology-affinity-scorer}
"""


def prefiller(wiring: Wiring, *places: tuple[str, Topology]) -> str:
    """Who prefills, when the first of these decodes and the rest may prefill."""
    candidates = [
        endpoint(
            name,
            labels={
                "llm-d.ai/role": "prefill" if number else "decode",
                "kubernetes.io/hostname": place.hostname,
                "topology.kubernetes.io/zone": place.zone,
            },
        )
        for number, (name, place) in enumerate(places)
    ]
    result = decide(wiring, pool(candidates), make_request(model="m")).decision.result
    prefill = result.profiles["prefill"]
    assert prefill is not None
    return prefill.targets[0].name


def test_prefill_runs_near_whom_decodes() -> None:
    """The one that decodes is no candidate for prefill, and still it is known where it runs."""
    wiring = wired(STAGES, *BUILT_IN)
    assert "topology-extractor" in wiring.added
    decode, host = ("decode", Topology("h1", zone="z1")), ("host", Topology("h1", zone="z1"))
    zone, far = ("zone", Topology("h2", zone="z1")), ("far", Topology("h3", zone="z2"))
    for _ in range(5):
        assert prefiller(wiring, decode, zone, far, host) == "host"
        assert prefiller(wiring, decode, far, zone) == "zone"
        assert prefiller(wiring, decode, far) == "far"


def test_the_places_of_a_named_producer_are_read() -> None:
    here, there = Topology("here"), Topology("there")
    two = endpoints("a", "b")
    mine = publishing("mine", {TOPOLOGY: [there, here], PEER_ENDPOINT: two[1], TOPOLOGIES: {}})
    text = (
        "plugins:\n"
        "- {type: topology-affinity-scorer, parameters: {topologyProducerName: mine}}\n"
        "- {type: topology-extractor}\n"
        "- {type: mine, produces: {topology: my-topology, topologies: my-topologies}}\n"
    )
    wiring = wired(text, TopologyAffinityScorer, TopologyExtractor, mine)
    assert decide(wiring, pool(two)).decision.result.target.name == "b"


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{minAffinity: node}", "minAffinity: must be one of host, rack, zone, region"),
        ("{minAffinity: ''}", "minAffinity: must be one of"),
        ("{topologyProducerName: nobody}", "no plugin is named 'nobody'"),
        ("{minAfinity: host}", "did you mean 'minAffinity'"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    text = f"plugins: [{{type: topology-affinity-filter, parameters: {parameters}}}]"
    mistakes = refused(text, TopologyAffinityFilter, TopologyExtractor)
    assert mistakes
    assert all(complaint in mistake for mistake in mistakes)
