"""The plan: data is written before it is read, and what does not fit is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.graph import KERNEL, Edge, Node, Plan, Problem, missing, plan
from pointsman.kernel.keys import DataKey, EndpointKey, EventKey, Key
from pointsman.kernel.model import (
    POD_DELETED,
    REQUEST_HEADERS,
    REQUEST_SIZE,
    RESPONSE_CHUNK,
    RESPONSE_HEADERS,
    RESPONSE_USAGE,
)
from pointsman.kernel.plugin import Phase, Role

A, B, C = DataKey("a", str), DataKey("b", str), DataKey("c", str)
NO_KEYS: Final[Mapping[Key, str]] = {}


def node(
    name: str,
    *roles: Role,
    reads: Sequence[Key] = (),
    likes: Sequence[Key] = (),
    writes: Sequence[Key] = (),
) -> Node:
    """A plugin that reads *reads*, and *likes* if there; a producer unless *roles* say else."""

    def named(keys: Sequence[Key]) -> Mapping[Key, str]:
        return {key: key.name for key in keys}

    return Node(
        name=name,
        roles=frozenset(roles or {Role.PRODUCER}),
        required=named(reads),
        optional=named(likes),
        produces=named(writes),
    )


def made(*nodes: Node) -> Plan:
    outcome = plan(nodes)
    assert isinstance(outcome, Plan), outcome
    return outcome


def problems(*nodes: Node) -> list[Problem]:
    outcome = plan(nodes)
    assert not isinstance(outcome, Plan)
    return list(outcome)


def problem(*nodes: Node) -> Problem:
    (only,) = problems(*nodes)
    return only


def test_producers_come_before_their_consumers() -> None:
    order = made(node("z", reads=[B]), node("y", reads=[A], writes=[B]), node("x", writes=[A]))
    assert order.order == ("x", "y", "z")


def test_optional_data_orders_too() -> None:
    assert made(node("late", likes=[A]), node("early", writes=[A])).order == ("early", "late")


def test_where_data_does_not_decide_the_configuration_does() -> None:
    nodes = [node(name) for name in ("c", "a", "d", "b")]
    assert made(*nodes).order == ("c", "a", "d", "b")
    assert made(node("c", likes=[A]), node("d"), node("a", writes=[A])).order == ("d", "a", "c")


def test_phases_follow_each_other_whatever_the_order() -> None:
    """A scorer that a producer's data waits for is no cycle if it reads in another phase."""
    scorer = node("scorer", Role.SCORER, Role.REQUEST_HOOK, reads=[A], writes=[B])
    producer = node("producer", reads=[B], writes=[A])
    assert isinstance(plan([scorer, producer]), Plan)


def test_every_value_has_a_slot_of_its_own() -> None:
    slots = made(node("x", writes=[A, B]), node("y", reads=[A, REQUEST_HEADERS], likes=[C])).slots
    assert sorted(slots) == ["a", "b", "request-headers"]
    assert sorted(slots.values()) == [0, 1, 2]


def test_events_take_no_slot() -> None:
    planned = made(node("x", Role.PRE_REQUEST, reads=[POD_DELETED]))
    assert planned.slots == {}
    assert planned.consumed == frozenset({"pod-deleted"})


def test_a_bound_name_is_what_counts() -> None:
    producer = Node(name="x", roles=frozenset({Role.PRODUCER}), produces={A: "precise"})
    consumer = Node(name="y", roles=frozenset({Role.SCORER}), required={A: "precise"})
    planned = made(consumer, producer)
    assert planned.edges == (Edge("x", "y", "precise", required=True),)
    assert planned.keys["precise"] is A


def test_edges_name_both_ends() -> None:
    planned = made(node("x", writes=[A]), node("y", likes=[A], reads=[REQUEST_SIZE]))
    assert set(planned.edges) == {
        Edge("x", "y", "a", required=False),
        Edge(KERNEL, "y", "request-size", required=True),
    }


def test_what_a_plugin_writes_and_reads_itself_is_no_edge() -> None:
    assert made(node("x", Role.PRODUCER, Role.SCORER, reads=[A], writes=[A])).edges == ()


def test_optional_data_that_nobody_produces_is_told() -> None:
    assert made(node("x", likes=[B, A]), node("y", writes=[A])).unmet == {"x": ("b",)}


def test_products_that_nobody_reads_are_told() -> None:
    planned = made(node("x", writes=[A, B]), node("y", reads=[A]))
    assert planned.unused == {"x": ("b",)}


@pytest.mark.parametrize("role", [Role.PARSER, Role.EXTRACTOR])
def test_parsers_and_extractors_are_only_asked_for_what_is_read(role: Role) -> None:
    assert made(node("x", role, writes=[A])).unused == {}


def test_a_missing_producer_is_named_with_what_is_near() -> None:
    wanted = DataKey("prefix-hits", str)
    found = problem(node("x", writes=[DataKey("prefix-hit", str)]), node("y", reads=[wanted]))
    assert found.plugin == "y"
    assert found.message == "'y' requires 'prefix-hits', which no enabled plugin produces"
    assert found.hint == "did you mean 'prefix-hit'?"


def test_two_producers_of_a_key_are_both_named() -> None:
    found = problem(node("x", writes=[A, B]), node("y", writes=[B, A]), node("z", reads=[A]))
    assert found.plugin == "y"
    for name in ("'a'", "'b'", "'x'", "'y'"):
        assert name in found.message


def test_nobody_produces_what_the_kernel_does() -> None:
    found = problem(node("x", writes=[REQUEST_HEADERS]))
    assert "'kernel'" in found.message
    assert "'x'" in found.message


def test_parsers_share_their_keys() -> None:
    made(node("x", Role.PARSER, writes=[A]), node("y", Role.PARSER, writes=[A]))


def test_a_parser_shares_with_nobody_else() -> None:
    assert problem(node("x", Role.PARSER, writes=[A]), node("y", writes=[A])).plugin == "y"
    assert problem(node("x", writes=[A]), node("y", Role.PARSER, writes=[A])).plugin == "y"


def test_a_circle_is_shown_whole() -> None:
    circle = [
        node("x", reads=[C], writes=[A]),
        node("y", reads=[A], writes=[B]),
        node("z", likes=[B], writes=[C]),
    ]
    path = problem(*circle).message.partition(": ")[2].split(" -> ")
    assert path[0] == path[-1]
    assert set(path) == {"x", "y", "z"}


def test_a_filter_cannot_read_what_only_the_response_brings() -> None:
    found = problem(node("x", Role.FILTER, reads=[RESPONSE_USAGE]))
    assert found.message == (
        "'x' reads 'response-usage' while scheduling, "
        "but 'kernel' writes it only when the response ends"
    )


@pytest.mark.parametrize(
    ("role", "key"),
    [
        (Role.RESPONSE_END, RESPONSE_USAGE),
        (Role.RESPONSE_CHUNK, RESPONSE_CHUNK),
        (Role.RESPONSE_END, RESPONSE_HEADERS),
        (Role.REQUEST_HOOK, REQUEST_SIZE),
    ],
)
def test_a_role_can_read_what_its_phase_has_brought(role: Role, key: Key) -> None:
    made(node("x", role, reads=[key]))


def test_the_last_role_of_a_plugin_decides_what_it_can_read() -> None:
    made(node("x", Role.SCORER, Role.RESPONSE_END, reads=[RESPONSE_USAGE]))


def test_scorers_cannot_feed_producers() -> None:
    found = problem(node("x", Role.SCORER, writes=[A]), node("y", reads=[A]))
    assert "'y' reads 'a' while producing, but 'x' writes it only scheduling" in found.message


class Base: ...


class Derived(Base): ...


@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        (DataKey("k", str), DataKey("k", str)),
        (DataKey("k", Base), DataKey("k", Derived)),
        (DataKey("k", object), DataKey("k", dict[str, int])),
        (DataKey("k", dict[str, int]), DataKey("k", dict[str, int])),
        (EventKey("k", Base), EventKey("k", Derived)),
    ],
)
def test_a_reader_takes_what_is_at_least_what_it_wants(wanted: Key, given: Key) -> None:
    made(node("x", writes=[given]), node("y", Role.SCORER, reads=[wanted]))


@pytest.mark.parametrize(
    ("wanted", "given", "says"),
    [
        (DataKey("k", str), DataKey("k", int), "as one str, 'x' writes one int"),
        (DataKey("k", Derived), DataKey("k", Base), "as one Derived, 'x' writes one Base"),
        (EndpointKey("k", str), DataKey("k", str), "as per endpoint a str, 'x' writes one str"),
        (EventKey("k", str), DataKey("k", str), "as events of str, 'x' writes one str"),
        (DataKey("k", dict[str, int]), DataKey("k", dict[str, str]), "as one dict"),
    ],
)
def test_a_misfit_is_described_from_both_sides(wanted: Key, given: Key, says: str) -> None:
    found = problem(node("x", writes=[given]), node("y", Role.SCORER, reads=[wanted]))
    assert says in found.message


def test_all_problems_come_at_once() -> None:
    found = problems(
        node("w", reads=[DataKey("nothing", str)]),
        node("x", writes=[A]),
        node("y", writes=[A]),
        node("z", Role.FILTER, reads=[RESPONSE_USAGE]),
    )
    assert [one.plugin for one in found] == ["y", "w", "z"]


def test_required_names_that_nobody_supplies_are_found_with_their_keys() -> None:
    nodes = [node("x", reads=[A, B, REQUEST_HEADERS], likes=[C]), node("y", writes=[A])]
    assert missing(nodes) == {"b": B}


# -- random graphs ---------------------------------------------------------------------------

PHASED: Final = [Role.REQUEST_HOOK, Role.PRODUCER, Role.SCORER, Role.PRE_REQUEST]
NAMES: Final = [f"k{number}" for number in range(8)]
KEYS: Final[Mapping[str, DataKey[Any]]] = {name: DataKey(name, str) for name in NAMES}


@frozen
class Wish:
    """What one random plugin would like."""

    role: Role
    reads: frozenset[str]
    likes: frozenset[str]
    writes: frozenset[str]


SOME: Final = st.frozensets(st.sampled_from(NAMES), max_size=3)
GRAPHS: Final = st.lists(st.builds(Wish, st.sampled_from(PHASED), SOME, SOME, SOME), max_size=8)


def nodes_of(wishes: Sequence[Wish]) -> list[Node]:
    """The wishes as nodes, in no particular order, but each key with one producer only."""
    nodes: list[Node] = []
    taken: set[str] = set()
    for number, wish in enumerate(wishes):
        writes = sorted(wish.writes - taken)
        taken |= set(writes)
        nodes.append(
            node(
                f"p{number}",
                wish.role,
                reads=[KEYS[name] for name in sorted(wish.reads)],
                likes=[KEYS[name] for name in sorted(wish.likes - wish.reads)],
                writes=[KEYS[name] for name in writes],
            )
        )
    return nodes


def writers(nodes: Sequence[Node]) -> dict[str, Node]:
    return {name: one for one in nodes for name in one.produces.values()}


@given(GRAPHS)
def test_no_plugin_comes_before_its_data(wishes: list[Wish]) -> None:
    nodes = nodes_of(wishes)
    outcome = plan(nodes)
    if not isinstance(outcome, Plan):
        return
    place = {name: index for index, name in enumerate(outcome.order)}
    assert sorted(place) == sorted(one.name for one in nodes)
    of = writers(nodes)
    for one in nodes:
        for name in one.reads.values():
            writer = of.get(name)
            if writer is not None and writer is not one and writer.phases == one.phases:
                assert place[writer.name] < place[one.name]


@given(GRAPHS)
def test_a_problem_names_real_culprits(wishes: list[Wish]) -> None:
    nodes = nodes_of(wishes)
    outcome = plan(nodes)
    if isinstance(outcome, Plan):
        return
    by_name, of = {one.name: one for one in nodes}, writers(nodes)
    for found in outcome:
        culprit = by_name[found.plugin]
        if "requires" in found.message:
            assert found.key in culprit.required.values()
            assert found.key not in of
        elif "writes it only" in found.message:
            assert found.key in culprit.reads.values()
            assert max(culprit.phases) < of[found.key].writes_in
        else:
            path = found.message.partition(": ")[2].split(" -> ")
            for producer, consumer in pairwise(path):
                written = set(by_name[producer].produces.values())
                assert written & set(by_name[consumer].reads.values())


@given(GRAPHS)
def test_a_graph_is_refused_only_if_something_is_wrong(wishes: list[Wish]) -> None:
    """Everything supplied by an earlier phase or an earlier plugin of the list: no problem."""
    nodes = sorted(nodes_of(wishes), key=lambda one: max(one.phases))
    seen: set[str] = set()
    legal: list[Node] = []
    for one in nodes:
        reads = [key for key, name in one.required.items() if name in seen]
        likes = [key for key, name in one.optional.items() if name in seen]
        legal.append(
            node(one.name, *one.roles, reads=reads, likes=likes, writes=list(one.produces))
        )
        seen |= set(one.produces.values())
    planned = made(*reversed(legal))
    assert planned.unmet == {}
    assert set(planned.slots) == seen | set(planned.consumed)


@given(GRAPHS, st.randoms(use_true_random=False))
def test_whether_a_plan_exists_does_not_depend_on_the_order(
    wishes: list[Wish], random: Any
) -> None:
    nodes = nodes_of(wishes)
    shuffled = random.sample(nodes, len(nodes))
    one, other = plan(nodes), plan(shuffled)
    assert isinstance(one, Plan) is isinstance(other, Plan)
    if isinstance(one, Plan) and isinstance(other, Plan):
        assert (one.slots, one.unmet, one.unused) == (other.slots, other.unmet, other.unused)


def test_phases_are_in_the_order_of_a_request() -> None:
    assert list(Phase) == sorted(Phase)
    assert node("x", Role.SCORER, Role.RESPONSE_END).writes_in is Phase.SCHEDULE
    assert node("x", Role.PRE_REQUEST, Role.PRODUCER).writes_in is Phase.PRODUCE
    assert Node(name="ears", roles=frozenset()).writes_in is Phase.OUTSIDE
