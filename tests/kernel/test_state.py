"""State of plugins: bound to the life of a request, and to nothing else."""

from __future__ import annotations

import gc
import logging

import pytest
from attrs import define, frozen
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import share

from pointsman.kernel.model import Request
from pointsman.kernel.state import CycleState, PluginState, StateKey
from pointsman.kernel.testing import make_request

NOTE = StateKey("note", str)


@define(eq=False)
class Held:
    """A value that counts how often it hears that it is dropped."""

    evictions: int = 0

    def on_evicted(self) -> None:
        self.evictions += 1


HELD = StateKey("held", Held)


@pytest.fixture
def state() -> PluginState:
    return PluginState("p", threshold=300)


def test_what_is_written_is_read(state: PluginState) -> None:
    request = make_request()
    assert state.write(request, NOTE, "a")
    assert state.read(request, NOTE) == "a"


def test_nothing_is_read_where_nothing_was_written(state: PluginState) -> None:
    request = make_request()
    assert state.read(request, NOTE) is None
    state.write(request, HELD, Held())
    assert state.read(request, NOTE) is None


def test_g_04_two_requests_share_nothing(state: PluginState) -> None:
    """Not even when their client gave them one ``x-request-id``."""
    one, other = (make_request(headers={"x-request-id": "same"}) for _ in range(2))
    state.write(one, NOTE, "one")
    state.write(other, NOTE, "other")
    one.end()
    assert (state.read(one, NOTE), state.read(other, NOTE)) == (None, "other")


def test_a_request_knows_whether_its_end_is_awaited(state: PluginState) -> None:
    request = make_request()
    assert not request.awaited
    state.write(request, NOTE, "a")
    assert not request.awaited
    state.write(request, HELD, Held())
    assert request.awaited
    state.delete(request, HELD)
    assert not request.awaited


def test_a_key_is_itself_and_not_its_name(state: PluginState) -> None:
    request = make_request()
    state.write(request, NOTE, "a")
    assert state.read(request, StateKey("note", str)) is None


def test_the_end_of_a_request_drops_everything(state: PluginState) -> None:
    request, held, other = make_request(), Held(), PluginState("other")
    state.write(request, HELD, held)
    state.write(request, NOTE, "a")
    other.write(request, NOTE, "b")
    request.end()
    request.end()
    assert (len(state), len(other), held.evictions) == (0, 0, 1)


def test_a_late_writer_is_refused_and_its_value_evicted(state: PluginState) -> None:
    request, held = make_request(), Held()
    request.end()
    assert not state.write(request, HELD, held)
    assert (state.read(request, HELD), len(state), held.evictions) == (None, 0, 1)


def test_a_deleted_value_hears_of_it_once(state: PluginState) -> None:
    request, held = make_request(), Held()
    state.write(request, HELD, held)
    state.delete(request, HELD)
    state.delete(request, HELD)
    request.end()
    assert held.evictions == 1


def test_what_is_dropped_twice_hears_of_it_once(state: PluginState) -> None:
    request, held = make_request(), Held()
    state.write(request, HELD, held)
    state.drop(request)
    request.end()
    assert held.evictions == 1


def test_deleting_what_is_not_there_is_no_error(state: PluginState) -> None:
    state.delete(make_request(), NOTE)


def test_a_replaced_value_is_not_evicted(state: PluginState) -> None:
    request, first, second = make_request(), Held(), Held()
    state.write(request, HELD, first)
    state.write(request, HELD, second)
    request.end()
    assert (first.evictions, second.evictions) == (0, 1)


def test_a_failing_eviction_stops_no_other(
    state: PluginState, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def on_evicted(self) -> None:
            raise OSError

    request, held = make_request(), Held()
    state.write(request, StateKey("broken", Broken), Broken())
    state.write(request, HELD, held)
    with caplog.at_level(logging.ERROR):
        request.end()
    assert held.evictions == 1
    assert "plugin p: on_evicted of" in caplog.text


def test_an_eviction_cannot_bring_the_state_back(state: PluginState) -> None:
    request = make_request()

    @frozen(eq=False)
    class Clinging:
        def on_evicted(self) -> None:
            state.write(request, NOTE, "again")

    state.write(request, StateKey("clinging", Clinging), Clinging())
    request.end()
    assert (len(state), state.read(request, NOTE)) == (0, None)


def test_a_live_request_is_never_reaped(state: PluginState) -> None:
    """However long it is silent: the reference's reaper took those (G-03)."""
    request = make_request()
    state.write(request, NOTE, "a")
    for hour in range(48):
        assert state.sweep(3600.0 * hour) == 0
    assert state.read(request, NOTE) == "a"


def abandoned(state: PluginState, *values: Held) -> None:
    """State of a request whose session vanished without ending it."""
    request = make_request()
    for value in values:
        state.write(request, HELD, value)
    request.states.clear()
    del request
    gc.collect()


def test_what_a_vanished_request_left_is_reaped_after_the_threshold(state: PluginState) -> None:
    held = Held()
    abandoned(state, held)
    collected = [state.sweep(now) for now in (0, 60, 120, 299, 300, 360)]
    assert collected == [0, 0, 0, 0, 1, 0]
    assert (len(state), state.reaped, held.evictions) == (0, 1, 1)


def test_idleness_counts_from_the_last_sweep_that_saw_an_access() -> None:
    state = PluginState("p", threshold=100)
    request = make_request()
    state.write(request, NOTE, "a")
    state.sweep(0)
    state.sweep(1000)
    state.read(request, NOTE)
    request.states.clear()
    del request
    gc.collect()
    assert [state.sweep(now) for now in (1010, 1109, 1110)] == [0, 0, 1]


def test_a_cycle_keeps_what_its_plugins_share() -> None:
    cycle = CycleState()
    cycle.write(NOTE, "a")
    assert cycle.read(NOTE) == "a"
    cycle.delete(NOTE)
    cycle.delete(NOTE)
    assert cycle.read(NOTE) is None


def test_keys_say_what_they_are() -> None:
    assert repr(NOTE) == "StateKey('note', str)"


class Lives(RuleBasedStateMachine):
    """Requests begin, end and vanish, plugins write early and late, the reaper sweeps.

    A model beside it remembers what must still be there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = PluginState("p", threshold=100.0)
        self.now = 0.0
        self.live: list[Request] = []
        self.ended: list[Request] = []
        self.kept: dict[int, Held] = {}
        self.gone: list[Held] = []

    @rule()
    def begin(self) -> None:
        self.live.append(make_request())

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.state.delete(request, HELD)
        if (before := self.kept.pop(request.id, None)) is not None:
            self.gone.append(before)
        held = self.kept[request.id] = Held()
        assert self.state.write(request, HELD, held)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def write_late(self, data: st.DataObject) -> None:
        held = Held()
        assert not self.state.write(data.draw(st.sampled_from(self.ended)), HELD, held)
        self.gone.append(held)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.live))
        self.live.remove(request)
        self.ended.append(request)
        request.end()
        if (held := self.kept.pop(request.id, None)) is not None:
            self.gone.append(held)

    @rule(seconds=st.floats(0, 400))
    def sweep(self, seconds: float) -> None:
        self.now += seconds
        assert self.state.sweep(self.now) == 0

    @invariant()
    def live_requests_keep_what_they_have(self) -> None:
        for request in self.live:
            assert self.state.read(request, HELD) is self.kept.get(request.id)

    @invariant()
    def nothing_comes_back(self) -> None:
        assert len(self.state) == len(self.kept)
        assert all(self.state.read(request, HELD) is None for request in self.ended)

    @invariant()
    def what_is_gone_heard_of_it_once(self) -> None:
        assert {held.evictions for held in self.gone} <= {1}
        assert {held.evictions for held in self.kept.values()} <= {0}


test_state_lives_exactly_as_long_as_its_request = Lives.TestCase
test_state_lives_exactly_as_long_as_its_request.settings = settings(max_examples=share(0.5))


@frozen(eq=False)
class Count:
    """One request in flight at an endpoint: the very object that was raised is lowered."""

    counter: list[int]

    def on_evicted(self) -> None:
        self.counter[0] -= 1


IN_FLIGHT = StateKey("in-flight", Count)


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_accounting_by_eviction_is_neither_lost_nor_doubled(steps: list[tuple[int, bool]]) -> None:
    """A pod re-created under its name gets a counter of its own, and none goes negative (G-01)."""
    state, requests = PluginState("in-flight"), [make_request() for _ in range(10)]
    counters = [[0]]
    raised: dict[int, list[int]] = {}
    for number, recreate in steps:
        if recreate:
            counters.append([0])
        request = requests[number]
        if number not in raised and not request.ended:
            counter = raised[number] = counters[-1]
            counter[0] += 1
            state.write(request, IN_FLIGHT, Count(counter))
        else:
            request.end()
        open_requests = [c for n, c in raised.items() if not requests[n].ended]
        assert [c[0] for c in counters] == [
            sum(c is one for one in open_requests) for c in counters
        ]
