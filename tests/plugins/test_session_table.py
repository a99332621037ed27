"""Which endpoint each session belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pointsman.kernel.model import Identity
from pointsman.plugins.session_table import SessionTable

A, B = Identity("a"), Identity("b")
TTL: Final = 10.0


@pytest.fixture
def table() -> SessionTable:
    return SessionTable(most=3, ttl=TTL)


def test_a_session_belongs_where_it_was_bound_last(table: SessionTable) -> None:
    table.bind("s", A, 0.0)
    assert table.home("s", 0.0) is A
    table.bind("s", B, 1.0)
    assert table.home("s", 1.0) is B
    assert dict(table.sizes()) == {B: 1}


def test_an_unknown_session_belongs_nowhere(table: SessionTable) -> None:
    assert table.home("s", 0.0) is None


def test_a_session_that_is_unused_for_too_long_belongs_nowhere(table: SessionTable) -> None:
    table.bind("s", A, 0.0)
    assert table.home("s", TTL) is A
    assert table.home("s", TTL + 0.1) is None


def test_looking_is_not_using(table: SessionTable) -> None:
    table.bind("s", A, 0.0)
    assert table.home("s", 9.0) is A
    assert table.home("s", 11.0) is None


def test_using_renews(table: SessionTable) -> None:
    table.bind("s", A, 0.0)
    table.bind("s", A, 9.0)
    assert table.home("s", 18.0) is A


def test_of_too_many_the_one_unused_for_longest_goes(table: SessionTable) -> None:
    for now, session in enumerate(("one", "two", "three", "one", "four")):
        table.bind(session, A, float(now))
    assert [table.home(s, 4.0) for s in ("one", "two", "three", "four")] == [A, None, A, A]
    assert len(table) == 3


def test_expired_sessions_are_dropped_as_others_are_bound() -> None:
    table = SessionTable(most=100, ttl=TTL)
    for number in range(20):
        table.bind(f"old-{number}", A, 0.0)
    for number in range(5):
        table.bind(f"new-{number}", B, 100.0)
    assert dict(table.sizes()) == {B: 5}
    assert len(table) == 5


def test_a_deleted_endpoint_takes_its_sessions_along(table: SessionTable) -> None:
    table.bind("one", A, 0.0)
    table.bind("two", B, 0.0)
    table.bind("three", A, 0.0)
    table.forget(A)
    table.forget(A)
    assert [table.home(s, 0.0) for s in ("one", "two", "three")] == [None, B, None]
    assert dict(table.sizes()) == {B: 1}


@pytest.mark.parametrize("session", ["", "\udcff", "x" * 1_000_000, "ä\0\n"])
def test_any_text_can_name_a_session(table: SessionTable, session: str) -> None:
    table.bind(session, A, 0.0)
    assert table.home(session, 0.0) is A


def test_names_of_sessions_are_not_kept(table: SessionTable) -> None:
    table.bind("secret-name", A, 0.0)
    assert "secret-name" not in repr(table)


HOMES: Final = (A, B, Identity("c"))
SESSIONS: Final = st.sampled_from("abcdefgh")


class Tables(RuleBasedStateMachine):
    """A table beside the simplest thing that does the same, without regard to memory."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.table = SessionTable(most=4, ttl=TTL)
        self.model: dict[str, tuple[Identity, float]] = {}

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(session=SESSIONS, home=st.sampled_from(HOMES))
    def bind(self, session: str, home: Identity) -> None:
        self.table.bind(session, home, self.now)
        self._drop(lambda name, _: name == session)
        self.model[session] = (home, self.now)
        for oldest in list(self.model)[:-4]:
            del self.model[oldest]

    @rule(home=st.sampled_from(HOMES))
    def forget(self, home: Identity) -> None:
        self.table.forget(home)
        self._drop(lambda _, own: own is home)

    def _drop(self, doomed: Callable[[str, Identity], bool]) -> None:
        kept = {n: (home, t) for n, (home, t) in self.model.items() if not doomed(n, home)}
        self.model = kept

    @invariant()
    def they_agree(self) -> None:
        for session in "abcdefgh":
            home, used = self.model.get(session, (None, 0.0))
            expected = home if self.now - used <= TTL else None
            assert self.table.home(session, self.now) is expected

    @invariant()
    def it_is_bounded_and_counts_right(self) -> None:
        assert len(self.table) <= 4
        sizes = dict(self.table.sizes())
        assert sum(sizes.values()) == len(self.table)
        assert all(sizes.values())


TestTables = Tables.TestCase
TestTables.settings = settings(stateful_step_count=30)
