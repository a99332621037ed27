"""Roles, as they are found from a class, and the register of types."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from random import Random
from typing import TYPE_CHECKING, ClassVar

import pytest
from attrs import define, field, frozen

from pointsman.kernel.errors import RoleError, TypeTaken
from pointsman.kernel.keys import Consumes, DataKey, DataView, keys, on
from pointsman.kernel.model import POD_DELETED, Endpoint, PodDeleted
from pointsman.kernel.plugin import PHASES, Role, roles_of
from pointsman.kernel.registry import (
    NoParameters,
    Registry,
    Stability,
    UnknownType,
    consumes_of,
    describe,
    did_you_mean,
    produces_of,
)

if TYPE_CHECKING:
    from decimal import Decimal

TEXT = DataKey("text", str)


class Scorer:
    """Rates endpoints.

    At length.
    """

    type_name: ClassVar = "some-scorer"

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        return [0.0] * len(endpoints)


def test_a_class_has_every_role_whose_method_it_defines() -> None:
    class Versatile(Scorer):
        async def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None: ...

        def on_response_end(self, data: DataView, end: object) -> None: ...

    assert roles_of(Versatile, "v") == {Role.SCORER, Role.PRODUCER, Role.RESPONSE_END}


def test_every_role_has_a_phase_or_is_played_on_events() -> None:
    assert set(PHASES) | {Role.LISTENER} == set(Role)


def test_a_handler_needs_both_of_its_methods() -> None:
    class Half:
        def profiles(self, data: DataView, available: object, results: object) -> Sequence[str]:
            return ()

    with pytest.raises(RoleError, match="needs both `profiles` and `primary`"):
        roles_of(Half, "half")


def test_a_method_with_other_parameters_is_refused_by_name() -> None:
    class Wrong:
        def score(self, endpoints: Sequence[Endpoint]) -> Sequence[float]:
            return []

    with pytest.raises(RoleError) as raised:
        roles_of(Wrong, "wrong-scorer")
    message = str(raised.value)
    assert message.startswith("plugin type 'wrong-scorer': `score(self, endpoints")
    assert "does not fit `score(self, data, endpoints)`" in message


def test_more_parameters_are_fine_if_they_have_defaults() -> None:
    class Generous:
        def score(self, data: DataView, endpoints: object, *, bias: float = 0) -> Sequence[float]:
            return []

    assert roles_of(Generous, "generous") == {Role.SCORER}


def test_a_role_on_the_path_of_a_pick_cannot_wait() -> None:
    class Waiting:
        async def score(self, data: DataView, endpoints: object) -> Sequence[float]:
            return []

    with pytest.raises(RoleError, match="must not be async: nothing waits on the path of a pick"):
        roles_of(Waiting, "waiting")


@pytest.mark.parametrize(
    "score",
    [3, staticmethod(Scorer.score), lambda: None, Scorer],
    ids=["number", "static method", "function", "class"],
)
def test_what_only_looks_like_a_role_is_refused(score: object) -> None:
    with pytest.raises(RoleError, match=r"`score\(self, data, endpoints\)`"):
        roles_of(type("Odd", (), {"score": score}), "odd")


def test_a_field_that_has_a_roles_name_is_refused() -> None:
    @define
    class Odd:
        keep: int = 3

    with pytest.raises(RoleError, match="must be a method"):
        roles_of(Odd, "odd")


@frozen(kw_only=True)
class Parameters:
    threshold: float = 0.5


@define(eq=False)
class Tuned(Scorer):
    """Has everything that a constructor can ask for."""

    type_name: ClassVar = "tuned-scorer"
    stability: ClassVar = Stability.ALPHA
    aliases: ClassVar = {"old-scorer": "write tuned-scorer"}
    parameters: Parameters
    random: Random
    seen: int = 0
    kept: list[int] = field(factory=list[int], init=False)


def test_a_type_is_described_from_its_class() -> None:
    described = describe(Tuned)
    assert described.name == "tuned-scorer"
    assert described.roles == {Role.SCORER}
    assert described.parameters is Parameters
    assert described.stability is Stability.ALPHA
    assert described.aliases == {"old-scorer": "write tuned-scorer"}
    assert described.summary == "Has everything that a constructor can ask for."
    assert described.origin == f"{__name__}.Tuned"


def test_a_type_makes_plugins_of_parameters_and_chance() -> None:
    random = Random(1)
    plugin = describe(Tuned).make(Parameters(threshold=0.1), random)
    assert isinstance(plugin, Tuned)
    assert (plugin.parameters.threshold, plugin.random) == (0.1, random)


def test_a_class_without_a_constructor_takes_no_parameters() -> None:
    described = describe(Scorer)
    assert described.parameters is NoParameters
    assert isinstance(described.make(NoParameters(), Random()), Scorer)


def test_a_class_that_only_listens_is_a_plugin() -> None:
    class Ears:
        type_name: ClassVar = "ears"

        @on(POD_DELETED)
        async def left(self, event: PodDeleted) -> None: ...

    assert describe(Ears).roles == frozenset()


def test_a_class_without_a_name_is_no_plugin() -> None:
    class Nameless:
        def score(self, data: DataView, endpoints: object) -> Sequence[float]:
            return []

    with pytest.raises(RoleError, match="has no `type_name`"):
        describe(Nameless)


def test_a_class_without_a_role_is_no_plugin() -> None:
    class Idle:
        type_name: ClassVar = "idle"

    with pytest.raises(RoleError, match="no method that makes a role"):
        describe(Idle)


def test_a_constructor_may_not_ask_for_more() -> None:
    class Demanding(Scorer):
        def __init__(self, clock: int) -> None: ...

    with pytest.raises(RoleError, match="its constructor asks for 'clock'"):
        describe(Demanding)


def test_annotations_that_cannot_be_read_are_the_types_fault() -> None:
    class Unreadable(Scorer):
        def __init__(self, price: Decimal) -> None: ...

    with pytest.raises(RoleError, match="annotations cannot be read: name 'Decimal'"):
        describe(Unreadable)


def test_declarations_may_depend_on_the_instance() -> None:
    @define(eq=False)
    class Wants:
        consumes: Consumes
        produces: object

    assert consumes_of(Wants(Consumes(TEXT), keys(TEXT))) == Consumes(TEXT)
    assert produces_of(Wants(Consumes(), keys(TEXT))) == keys(TEXT)
    assert (consumes_of(object()), produces_of(object())) == (Consumes(), keys())


def test_a_type_is_found_by_name_and_by_alias() -> None:
    registry = Registry()
    tuned = registry.register(Tuned)
    assert registry.find("tuned-scorer") is registry.find("old-scorer") is tuned
    assert ("tuned-scorer" in registry, "old-scorer" in registry) == (True, True)
    assert list(registry) == [tuned]


def test_an_unknown_type_comes_with_the_nearest_names() -> None:
    registry = Registry()
    registry.register(Tuned)
    with pytest.raises(UnknownType, match="unknown plugin type 'tuned-scorrer'") as raised:
        registry.find("tuned-scorrer")
    assert raised.value.nearest[0] == "tuned-scorer"


def test_a_type_that_exists_elsewhere_is_told_from_a_misspelt_one() -> None:
    registry = Registry(absent={"tuned-scorers": "it needs tuning"})
    registry.register(Tuned)
    with pytest.raises(UnknownType, match="is not part of this version: it needs tuning") as raised:
        registry.find("tuned-scorers")
    assert raised.value.nearest == ()


@pytest.mark.parametrize(
    "fields", [{"type_name": "tuned-scorer"}, {"type_name": "old-scorer"}, {"type_name": "x"}]
)
def test_a_taken_name_is_an_error_that_names_both(fields: dict[str, str]) -> None:
    registry = Registry()
    registry.register(Tuned)
    other = type("Other", (Scorer,), {"aliases": {"tuned-scorer": "?"}, **fields})
    with pytest.raises(TypeTaken) as raised:
        registry.register(other)
    assert raised.value.holder.endswith(".Tuned")
    assert raised.value.claimant.endswith(".Other")
    assert "is already taken by" in str(raised.value)


class Point(EntryPoint):
    """What an installed distribution offers, without installing one."""

    offered: object

    def load(self) -> object:
        return self.offered


def point(offered: object) -> Point:
    made = Point("name", "package:thing", "pointsman.plugins")
    vars(made)["offered"] = offered
    return made


def test_distributions_register_through_the_same_door() -> None:
    registry = Registry()
    registry.register_entry_points([point(Tuned), point(Scorer)])
    assert [one.name for one in registry] == ["tuned-scorer", "some-scorer"]
    with pytest.raises(TypeTaken):
        registry.register_entry_points([point(Tuned)])


def test_an_entry_point_must_be_a_class() -> None:
    with pytest.raises(RoleError, match="the entry point 'package:thing' is no class"):
        Registry().register_entry_points([point(3)])


def test_installed_distributions_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def installed(*, group: str) -> Sequence[EntryPoint]:
        asked.append(group)
        return [point(Scorer)]

    monkeypatch.setattr("pointsman.kernel.registry.entry_points", installed)
    registry = Registry()
    registry.register_entry_points()
    assert (asked, "some-scorer" in registry) == (["pointsman.plugins"], True)


def test_hints_are_only_given_when_something_is_near() -> None:
    assert did_you_mean("querty", ["qwerty"]) == "did you mean 'qwerty'?"
    assert did_you_mean("zzz", ["qwerty"]) == ""
