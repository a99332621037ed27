"""Data keys, and the window through which a plugin sees only what it declared."""

from __future__ import annotations

from typing import ClassVar

import pytest
from attrs import define

from pointsman.kernel.errors import AbsentKey, UndeclaredKey, ViewClosed
from pointsman.kernel.keys import (
    ABSENT,
    Consumes,
    DataKey,
    DataView,
    EndpointKey,
    EventKey,
    Frame,
    Listens,
    keys,
    on,
    subscriptions,
)
from pointsman.kernel.model import POD_ADDED, POD_DELETED, PodAdded, PodDeleted
from pointsman.kernel.state import PluginState, StateKey
from pointsman.kernel.testing import make_request
from pointsman.kernel.topic import Overflow

from .call_notes import CallNotes

TEXT = DataKey("text", str)
LOAD = EndpointKey("load", float)
OTHER = DataKey("other", int)
NOTE = StateKey("note", str)


@define(eq=False)
class Window:
    """A view that reads `TEXT` and `LOAD`, writes `TEXT`, and has its calls noted."""

    notes: CallNotes
    view: DataView
    frame: Frame


@pytest.fixture
def window() -> Window:
    notes = CallNotes()
    view = DataView("nosy", {TEXT: 0, LOAD: 1}, {TEXT: 0}, PluginState("nosy"), notes)
    return Window(notes, view, Frame(make_request(), ["hello", [1.0, None], 3]))


def test_a_declared_value_is_read(window: Window) -> None:
    view = window.view.lend(window.frame, "Scorer")
    assert (view[TEXT], view.get(TEXT)) == ("hello", "hello")
    assert view[LOAD] == [1.0, None]


def test_a_declared_value_is_written(window: Window) -> None:
    window.view.lend(window.frame, "Scorer")[TEXT] = "bye"
    assert window.frame.values[0] == "bye"


def test_a_key_that_nobody_produced_is_absent(window: Window) -> None:
    window.frame.values[0] = ABSENT
    view = window.view.lend(window.frame, "Scorer")
    assert view.get(TEXT) is None
    with pytest.raises(AbsentKey, match="plugin 'nosy' needs 'text', which has no value"):
        view[TEXT]


@pytest.mark.parametrize("value", ["", 0, False, None, []])
def test_a_value_that_counts_as_false_is_there_all_the_same(window: Window, value: object) -> None:
    window.frame.values[0] = value
    view = window.view.lend(window.frame, "Scorer")
    assert view[TEXT] is value
    assert view.get(TEXT) is value


def test_an_undeclared_read_is_refused_and_counted(window: Window) -> None:
    view = window.view.lend(window.frame, "Scorer")
    with pytest.raises(UndeclaredKey, match="'nosy' tried to read 'other' without declaring it"):
        view[OTHER]
    with pytest.raises(UndeclaredKey):
        view.get(OTHER)
    assert window.notes.violations == [("Scorer", "other", "read")] * 2


def test_an_undeclared_write_is_refused_and_counted(window: Window) -> None:
    view = window.view.lend(window.frame, "Scorer")
    with pytest.raises(UndeclaredKey, match="'nosy' tried to write 'load' without declaring it"):
        view[LOAD] = [0.0, 0.0]
    assert window.notes.violations == [("Scorer", "load", "write")]
    assert window.frame.values[1] == [1.0, None]


def test_a_key_of_the_same_name_is_another_key(window: Window) -> None:
    with pytest.raises(UndeclaredKey):
        window.view.lend(window.frame, "Scorer")[DataKey("text", str)]


def test_a_view_is_dead_after_its_call(window: Window) -> None:
    view = window.view.lend(window.frame, "Scorer")
    view.close()
    message = "plugin 'nosy' used its data view after the call that it was handed to"
    with pytest.raises(ViewClosed, match=message):
        view[TEXT]
    with pytest.raises(ViewClosed):
        view.get(TEXT)
    with pytest.raises(ViewClosed):
        view[TEXT] = "late"
    with pytest.raises(ViewClosed):
        _ = view.state
    with pytest.raises(ViewClosed):
        _ = view.cycle
    assert window.frame.values[0] == "hello"
    assert window.notes.violations == []


def test_an_undeclared_read_through_a_dead_view_is_still_a_violation(window: Window) -> None:
    window.view.lend(window.frame, "Scorer").close()
    with pytest.raises(UndeclaredKey):
        window.view[OTHER]
    assert window.notes.violations == [("Scorer", "other", "read")]


def test_the_time_of_a_call_is_that_of_its_loan(
    window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter((1.0, 1.25, 5.0, 9.0, 9.5, 10.0))
    monkeypatch.setattr("pointsman.kernel.keys.perf_counter", lambda: next(moments))
    window.view.lend(window.frame, "Filter").close()
    slow = window.view.twin().lend(window.frame, "DataProducer")
    window.view.lend(window.frame, "Scorer").close()
    slow.close()
    assert window.notes.times == [("Filter", 0.25), ("Scorer", 0.5), ("DataProducer", 5.0)]


def test_a_twin_is_open_on_its_own(window: Window) -> None:
    twin = window.view.twin().lend(window.frame, "Scorer")
    window.view.lend(Frame(make_request(), ["elsewhere", [], 0]), "Scorer").close()
    assert twin[TEXT] == "hello"
    with pytest.raises(UndeclaredKey):
        twin[OTHER]
    assert len(window.notes.violations) == 1


def test_what_a_plugin_wrote_can_be_taken_back(window: Window) -> None:
    window.view.lend(window.frame, "Scorer").retract()
    assert window.frame.values == [ABSENT, [1.0, None], 3]


def test_state_belongs_to_the_request_of_the_call(window: Window) -> None:
    state = window.view.lend(window.frame, "Scorer").state
    assert state.write(NOTE, "a")
    assert window.view.lend(window.frame, "Scorer").state.read(NOTE) == "a"
    other = Frame(make_request(), [])
    assert window.view.lend(other, "Scorer").state.read(NOTE) is None
    state.delete(NOTE)
    assert state.read(NOTE) is None


def test_a_cycle_is_shared_by_those_who_see_one_frame(window: Window) -> None:
    window.view.lend(window.frame, "Scorer").cycle.write(NOTE, "a")
    assert window.view.twin().lend(window.frame, "Scorer").cycle.read(NOTE) == "a"
    again = Frame(window.frame.request, window.frame.values)
    assert window.view.lend(again, "Scorer").cycle.read(NOTE) is None


def test_keys_say_what_they_are() -> None:
    made = [TEXT, LOAD, POD_DELETED]
    assert [repr(key) for key in made] == [
        "DataKey('text', str)",
        "EndpointKey('load', float)",
        "EventKey('pod-deleted', PodDeleted)",
    ]
    assert [str(key) for key in made] == ["text", "load", "pod-deleted"]
    assert repr(ABSENT) == "ABSENT"
    assert not ABSENT


def test_what_is_consumed_is_required_or_optional() -> None:
    consumes = Consumes(TEXT, optional=[LOAD])
    assert (consumes.required, consumes.optional) == (keys(TEXT), keys(LOAD))
    assert consumes.all == keys(TEXT, LOAD)


STARTED = EventKey("started", int, of_requests=True)


class Listener:
    consumes: ClassVar = Consumes(TEXT)

    @on(POD_DELETED)
    async def left(self, event: PodDeleted) -> None: ...

    @on(POD_ADDED, overflow=Overflow.CONFLATE, capacity=1)
    def arrived(self, event: PodAdded) -> None: ...

    @on(STARTED, capacity=2)
    def began(self, event: int) -> None: ...


def test_handlers_are_found_with_their_overflow_rules() -> None:
    assert subscriptions(Listener) == (
        Listens(POD_ADDED, "arrived", Overflow.CONFLATE, 1),
        Listens(STARTED, "began", Overflow.DROP_OLDEST, 2),
        Listens(POD_DELETED, "left", Overflow.WAIT, 256),
    )


def test_requests_wait_for_no_subscriber() -> None:
    with pytest.raises(ValueError, match="'started' is published on the path of requests"):
        on(STARTED, overflow=Overflow.WAIT)


def test_a_class_that_listens_to_nothing_has_no_subscriptions() -> None:
    assert subscriptions(Window) == ()
