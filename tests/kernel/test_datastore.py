"""The pool: identities, events and snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

import anyio
import pytest
import trio
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.examples import share
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.kernel.datastore import (
    Change,
    ChangeEndpoints,
    Datastore,
    EndpointSpec,
    ReplaceEndpoints,
    ReportMetrics,
)
from pointsman.kernel.errors import ActorStopped
from pointsman.kernel.mailbox import Mailbox
from pointsman.kernel.model import Endpoint, Identity, PodAdded, PodDeleted, PodUpdated
from pointsman.kernel.pool import (
    ModelRewrite,
    Objective,
    Pool,
    RewriteRule,
    SetObjectives,
    SetPool,
    SetRewrites,
)
from pointsman.kernel.supervisor import Child, supervise
from pointsman.kernel.topic import Overflow, Topics


def spec(name: str, uid: str = "", **fields: Any) -> EndpointSpec:
    return EndpointSpec(uid=uid or f"{name}-1", name=name, address="10.0.0.1", port=80, **fields)


def make_store() -> Datastore:
    """A datastore that is spoken to directly: nobody sends it messages."""
    inbox = Mailbox[Change].open("datastore", capacity=1)
    inbox.close()
    return Datastore(inbox, Topics())


@pytest.fixture
def store() -> Datastore:
    return make_store()


def put(store: Datastore, *specs: EndpointSpec) -> tuple[Endpoint, ...]:
    """Make *specs* the whole pool; the endpoints that come of it."""
    store.apply(ReplaceEndpoints(specs))
    return store.members.value


def told(events: Sequence[tuple[object, PodAdded | PodUpdated | PodDeleted]]) -> list[str]:
    return [f"{type(event).__name__} {event.endpoint.identity.uid}" for _, event in events]


def test_a_new_endpoint_is_announced(store: Datastore) -> None:
    events = store.apply(ReplaceEndpoints([spec("a"), spec("b")]))
    assert told(events) == ["PodAdded a-1", "PodAdded b-1"]
    assert [e.id for e in store.snapshot.endpoints] == ["default/a", "default/b"]


def test_the_same_set_again_changes_nothing(store: Datastore) -> None:
    put(store, spec("a"), spec("b"))
    before = (store.snapshot, store.members.version)
    assert store.apply(ReplaceEndpoints([spec("a"), spec("b")])) == []
    assert (store.snapshot, store.members.version) == before


def test_what_is_not_in_the_whole_set_is_gone(store: Datastore) -> None:
    put(store, spec("a"), spec("b"))
    assert told(store.apply(ReplaceEndpoints([spec("b")]))) == ["PodDeleted a-1"]


def test_a_changed_address_keeps_the_identity(store: Datastore) -> None:
    (before,) = put(store, spec("a"))
    moved = evolve(spec("a"), address="10.0.0.9", labels={"x": "y"})
    ((_, event),) = store.apply(ChangeEndpoints([moved]))
    assert isinstance(event, PodUpdated)
    assert event.before is before
    assert event.endpoint.identity is before.identity
    assert store.snapshot.endpoints[0].host_port == "10.0.0.9:80"


def test_a_pod_created_again_under_its_name_is_another_identity(store: Datastore) -> None:
    (before,) = put(store, spec("a", "old"))
    assert told(store.apply(ReplaceEndpoints([spec("a", "new")]))) == [
        "PodDeleted old",
        "PodAdded new",
    ]
    assert store.members.value[0].identity is not before.identity


def test_an_identity_knows_that_it_is_gone(store: Datastore) -> None:
    """For those who still hold it when the event has passed."""
    store.apply(ReplaceEndpoints([spec("a", uid="old"), spec("b")]))
    old, other = store.snapshot.endpoints
    store.apply(ReplaceEndpoints([spec("a", uid="new"), spec("b")]))
    assert (old.identity.gone, other.identity.gone) == (True, False)
    assert not any(endpoint.identity.gone for endpoint in store.snapshot.endpoints)


def test_a_late_removal_does_not_remove_the_successor(store: Datastore) -> None:
    put(store, spec("a", "old"))
    store.apply(ChangeEndpoints([spec("a", "new")]))
    assert store.apply(ChangeEndpoints(removals=[spec("a", "old")])) == []
    assert [e.identity.uid for e in store.members.value] == ["new"]


def test_removals_come_before_additions(store: Datastore) -> None:
    put(store, spec("a", "old"))
    change = ChangeEndpoints(upserts=[spec("a", "new")], removals=[spec("a", "old")])
    assert told(store.apply(change)) == ["PodDeleted old", "PodAdded new"]


def test_a_removal_that_is_named_twice_happens_once(store: Datastore) -> None:
    put(store, spec("a"))
    change = ChangeEndpoints(removals=[spec("a"), spec("a"), spec("unknown")])
    assert told(store.apply(change)) == ["PodDeleted a-1"]


def test_endpoints_that_come_twice_in_one_set_are_one(store: Datastore) -> None:
    events = store.apply(ReplaceEndpoints([spec("a"), spec("a", labels={"x": "y"})]))
    assert told(events) == ["PodAdded a-1", "PodUpdated a-1"]
    assert len(store.snapshot.endpoints) == 1


def test_a_pod_is_named_after_its_endpoint_unless_said_otherwise(store: Datastore) -> None:
    one, rank = put(store, spec("a"), spec("b-rank-1", pod="b", rank=1))
    assert (one.pod, rank.pod, rank.rank) == ("a", "b", 1)


def test_the_store_is_synced_with_the_first_whole_set(store: Datastore) -> None:
    store.apply(ChangeEndpoints([spec("a")]))
    assert not store.synced.value
    store.apply(ReplaceEndpoints([]))
    assert store.synced.value


def test_only_what_is_tracked_becomes_a_column(store: Datastore) -> None:
    store.track(["load"])
    a, _ = put(store, spec("a"), spec("b"))
    store.apply(ReportMetrics(a.identity, {"load": 3.0, "heat": 9}))
    assert store.snapshot.columns == {"load": (3.0, None)}


def test_a_value_reported_before_it_was_tracked_is_not_lost(store: Datastore) -> None:
    (a,) = put(store, spec("a"))
    store.apply(ReportMetrics(a.identity, {"load": 3.0}))
    assert store.snapshot.columns == {}
    store.track(["load"])
    assert store.snapshot.columns == {"load": (3.0,)}


def test_values_that_a_report_does_not_name_stay(store: Datastore) -> None:
    store.track(["load", "heat"])
    (a,) = put(store, spec("a"))
    store.apply(ReportMetrics(a.identity, {"load": 3.0, "heat": 1}))
    store.apply(ReportMetrics(a.identity, {"load": None}))
    assert store.snapshot.columns == {"load": (None,), "heat": (1,)}


def test_a_report_of_a_forgotten_endpoint_is_ignored(store: Datastore) -> None:
    store.track(["load"])
    (old,) = put(store, spec("a", "old"))
    put(store, spec("a", "new"))
    before = store.snapshot
    store.apply(ReportMetrics(old.identity, {"load": 3.0}))
    store.apply(ReportMetrics(Identity("never seen"), {"load": 3.0}))
    assert store.snapshot is before
    assert store.snapshot.columns == {"load": (None,)}


def test_values_do_not_pass_to_a_successor(store: Datastore) -> None:
    store.track(["load"])
    (old,) = put(store, spec("a", "old"))
    store.apply(ReportMetrics(old.identity, {"load": 3.0}))
    put(store, spec("a", "new"))
    assert store.snapshot.columns == {"load": (None,)}


def test_a_snapshot_is_the_same_object_until_something_changes(store: Datastore) -> None:
    store.track(["load"])
    (a,) = put(store, spec("a"))
    store.apply(ReportMetrics(a.identity, {"load": 3.0}))
    before = store.snapshot
    store.apply(ReportMetrics(a.identity, {"load": 3.0, "untracked": 1}))
    assert store.snapshot is before
    store.apply(ReportMetrics(a.identity, {"load": 4.0}))
    assert store.snapshot.version == before.version + 1


def test_a_snapshot_in_use_does_not_change(store: Datastore) -> None:
    store.track(["load"])
    a, b = put(store, spec("a"), spec("b"))
    store.apply(ReportMetrics(a.identity, {"load": 3.0}))
    snapshot = store.snapshot
    store.apply(ReportMetrics(b.identity, {"load": 4.0}))
    put(store, spec("b"))
    assert store.snapshot.columns == {"load": (4.0,)}
    assert (snapshot.endpoints, snapshot.columns) == ((a, b), {"load": (3.0, None)})


def test_an_unchanged_column_is_shared_by_snapshots(store: Datastore) -> None:
    store.track(["load", "heat"])
    (a,) = put(store, spec("a"))
    before = store.snapshot
    store.apply(ReportMetrics(a.identity, {"load": 3.0}))
    assert store.snapshot.columns["heat"] is before.columns["heat"]


def test_what_stands_beside_the_endpoints_is_in_the_snapshot(store: Datastore) -> None:
    put(store, spec("a"))
    before = store.snapshot
    beside = Pool(namespace="ns", name="p")
    rewrite = ModelRewrite(name="r", created="2026", rules=(RewriteRule(),))
    store.apply(SetPool(beside))
    store.apply(SetObjectives({"o": Objective("o", -1)}))
    store.apply(SetRewrites([rewrite]))
    after = store.snapshot
    assert (after.pool, after.objectives["o"].priority) == (beside, -1)
    assert after.rewrites.rules == rewrite.rules
    assert (after.endpoints, after.version > before.version) == (before.endpoints, True)
    assert (before.pool, before.objectives) == (None, {})


def test_a_plugin_cannot_change_a_column_for_others(store: Datastore) -> None:
    store.track(["load"])
    (a,) = put(store, spec("a"))
    store.apply(ReportMetrics(a.identity, {"load": 3.0}))
    with pytest.raises(TypeError):
        store.snapshot.columns["load"][0] = 0.0  # type: ignore[index]


@pytest.fixture
def served() -> Iterator[Datastore]:
    with Mailbox[Change].open("datastore", capacity=4) as inbox:
        topics = Topics()
        yield Datastore(inbox, topics)
        topics.close()


async def test_subscribers_hear_of_changes_in_order(
    served: Datastore, nursery: trio.Nursery
) -> None:
    subscriptions = {
        name: served.topics.topic(name).subscribe("test", capacity=1, overflow=Overflow.WAIT)
        for name in ("pod-added", "pod-deleted")
    }
    nursery.start_soon(served.run)
    tell = served.inbox.address.tell
    await tell(ReplaceEndpoints([spec("a"), spec("b")]))
    await tell(ChangeEndpoints(removals=[spec("a")]))
    await wait_all_tasks_blocked()
    for name, uid in (("pod-added", "a-1"), ("pod-added", "b-1"), ("pod-deleted", "a-1")):
        event: Any = await subscriptions[name].receiver.receive()
        assert event.endpoint.identity.uid == uid
    served.inbox.seal()


@pytest.mark.parametrize("seed", range(10))
async def test_a_store_that_is_stopped_at_any_moment_leaves_nobody_waiting(
    seed: int, autojump_clock: MockClock
) -> None:
    """Neither those who send it changes nor those who hear of them."""
    random, topics = Random(seed), Topics()
    slow = topics.topic("pod-added").subscribe("slow", capacity=1, overflow=Overflow.WAIT)

    async def listen() -> None:
        async for _ in slow.receiver:
            await anyio.sleep(random.random())

    async def send() -> None:
        with suppress(ActorStopped):
            for number in range(400):
                await inbox.address.tell(ChangeEndpoints([spec(str(number))]))

    with Mailbox[Change].open("datastore", capacity=2) as inbox, anyio.fail_after(1000):
        async with supervise() as supervisor, anyio.create_task_group() as tasks:
            run = Datastore(inbox, topics).run
            handle = supervisor.start(Child(name="datastore", run=run, inbox=inbox))
            for _ in range(3):
                tasks.start_soon(send)
            tasks.start_soon(listen)
            await anyio.sleep(random.uniform(0, 300))
            await handle.stop()
            topics.close()


NAMES: Final = st.sampled_from(["a", "b", "c", "d"])
SPECS: Final = st.builds(
    spec,
    NAMES,
    st.sampled_from(["u1", "u2", "u3"]),
    labels=st.sampled_from([{}, {"role": "decode"}]),
)
VALUES: Final = st.dictionaries(
    st.sampled_from(["load", "heat", "untracked"]), st.none() | st.integers(0, 3)
)


class Pools(RuleBasedStateMachine):
    """Random changes, beside a naive model: a dictionary of endpoints with their values."""

    def __init__(self) -> None:
        super().__init__()
        self.store = make_store()
        self.specs: dict[str, EndpointSpec] = {}
        self.values: dict[Identity, dict[str, Any]] = {}
        self.identities: list[Identity] = []
        self.living: dict[Identity, Endpoint] = {}
        self.buried: set[Identity] = set()

    @initialize()
    def track(self) -> None:
        self.store.track(["load", "heat"])

    @rule(specs=st.lists(SPECS, max_size=4))
    def replace(self, specs: list[EndpointSpec]) -> None:
        self._follow(self.store.apply(ReplaceEndpoints(specs)))
        named = {one.id for one in specs}
        self.specs = {key: one for key, one in self.specs.items() if key in named}
        self._put(specs)

    @rule(upserts=st.lists(SPECS, max_size=3), removals=st.lists(SPECS, max_size=3))
    def change(self, upserts: list[EndpointSpec], removals: list[EndpointSpec]) -> None:
        self._follow(self.store.apply(ChangeEndpoints(upserts, removals)))
        for one in removals:
            if one.id in self.specs and self.specs[one.id].uid == one.uid:
                del self.specs[one.id]
        self._put(upserts)

    def _put(self, specs: Sequence[EndpointSpec]) -> None:
        for one in specs:
            if one.id in self.specs and self.specs[one.id].uid != one.uid:
                del self.specs[one.id]  # a successor stands at the end
            self.specs[one.id] = one

    def _follow(self, events: Sequence[tuple[object, Any]]) -> None:
        """Events alone tell who lives: each identity comes once, and goes once."""
        for _, event in events:
            identity = event.endpoint.identity
            match event:
                case PodAdded():
                    assert identity not in self.living
                    assert identity not in self.buried
                    self.identities.append(identity)
                case PodUpdated():
                    assert self.living[identity] is event.before
                case _:
                    assert self.living.pop(identity) is event.endpoint
                    self.buried.add(identity)
                    continue
            self.living[identity] = event.endpoint

    @rule(data=st.data(), values=VALUES)
    def report(self, data: st.DataObject, values: Mapping[str, Any]) -> None:
        if self.identities:
            identity = data.draw(st.sampled_from(self.identities))
            self.store.apply(ReportMetrics(identity, values))
            self.values.setdefault(identity, {}).update(values)

    @rule()
    def look(self) -> None:
        assert self.store.snapshot is self.store.snapshot

    @invariant()
    def members_are_as_the_model_says(self) -> None:
        members = self.store.members.value
        assert [(e.id, e.identity.uid, e.labels) for e in members] == [
            (one.id, one.uid, one.labels) for one in self.specs.values()
        ]
        assert list(self.living.values()) == list(members)

    @rule()
    def columns_are_in_step(self) -> None:
        snapshot = self.store.snapshot
        assert snapshot.endpoints == self.store.members.value
        for name in ("load", "heat"):
            wanted = [self.values.get(e.identity, {}).get(name) for e in snapshot.endpoints]
            assert list(snapshot.columns[name]) == wanted


test_the_store_agrees_with_a_naive_model = Pools.TestCase
test_the_store_agrees_with_a_naive_model.settings = settings(max_examples=share(0.4))


@given(st.lists(SPECS))
def test_sizes_of_columns_and_endpoints_agree(specs: list[EndpointSpec]) -> None:
    store = make_store()
    store.track(["load"])
    for one in specs:
        store.apply(ChangeEndpoints([one]))
        snapshot = store.snapshot
        assert len(snapshot.columns["load"]) == len(snapshot.endpoints)
