"""Deciders, detectors and addresses: what plugins decide for other plugins and the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import pytest

from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import WAITING_QUEUE_SIZE, Endpoint
from pointsman.kernel.plugin import Results, Role
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring

from . import zoo
from .zoo import NOTE, always, failing, giving, in_profile, keeper, refused, scorer

ABC: Final = endpoints("a", "b", "c")
A, B, C = ABC
POOL: Final = pool(ABC, {WAITING_QUEUE_SIZE: [1.0, 2.0, 3.0]})
LOAD: Final = Consumes(WAITING_QUEUE_SIZE)


Asks = Callable[[DataView, Endpoint | None], Any]


def decider(name: str, call: Asks, consumes: Consumes = zoo.NOTHING) -> type[Any]:
    def disaggregate(self: object, data: DataView, endpoint: Endpoint | None) -> Any:
        return call(data, endpoint)

    return zoo.plugin(name, consumes, disaggregate=disaggregate)


def noting(seen: list[Endpoint | None]) -> Any:
    """Decides for yes, and notes about whom."""

    def decide_for(data: DataView, endpoint: Endpoint | None) -> bool:
        seen.append(endpoint)
        return True

    return decide_for


class Asker:
    """A handler that asks its decider about the endpoint that it chose first."""

    type_name: ClassVar = "asker"
    deciders: ClassVar[tuple[str, ...]] = ("d",)
    asked: ClassVar = "d"

    def __init__(self) -> None:
        self.answers: list[bool] = []

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> list[str]:
        if not results:
            return ["only"]
        if not self.answers:
            first = results["only"]
            assert first is not None
            self.answers.append(data.ask(self.asked, first.targets[0]))
        return []

    def primary(self, data: DataView, results: Results) -> str:
        return "only"


def asking(*classes: type[Any], handler: type[Any] = Asker) -> Wiring:
    best = giving("best", 0, 0, 1)
    return wired(in_profile(best, others=[*classes, handler]), best, *classes, handler)


def answers(wiring: Wiring) -> list[bool]:
    decide(wiring, POOL)
    asker = wiring.installed["asker"].plugin
    return list(asker.answers)


def test_a_decider_is_asked_about_the_endpoint_chosen_before() -> None:
    seen: list[Endpoint | None] = []
    wiring = asking(decider("d", noting(seen)))
    assert answers(wiring) == [True]
    assert seen == [C]


def test_a_decider_reads_what_its_data_say_of_that_endpoint() -> None:
    wiring = asking(decider("d", lambda data, e: data.of(WAITING_QUEUE_SIZE, e) == 3.0, LOAD))
    assert answers(wiring) == [True]


def test_what_nobody_says_of_an_endpoint_is_none() -> None:
    (stranger,) = endpoints("stranger")
    seen: list[float | None] = []

    def look(data: DataView, endpoint: object) -> bool:
        seen.append(data.of(WAITING_QUEUE_SIZE, stranger))
        return False

    answers(asking(decider("d", look, LOAD)))
    optional = Consumes(optional=[WAITING_QUEUE_SIZE])
    wiring = asking(
        decider("d", lambda data, e: seen.append(data.of(WAITING_QUEUE_SIZE, e)), optional)
    )
    decide(wiring, pool(ABC))
    assert seen == [None, None]


def test_a_filtered_profile_reads_its_own_candidates() -> None:
    seen: list[float | None] = []

    def score(data: DataView, given: Sequence[Endpoint]) -> list[float]:
        seen.extend(data.of(WAITING_QUEUE_SIZE, one) for one in (A, B, C))
        return [0.0] * len(given)

    classes = [keeper("k", always([False, True, True]), LOAD), scorer("s", score, LOAD)]
    decide(wired(in_profile(*classes), *classes), POOL)
    assert seen == [None, 2.0, 3.0]


def wanting(data: DataView, endpoint: Endpoint | None) -> bool:
    return bool(data[NOTE])


@pytest.mark.parametrize("call", [failing, wanting])
def test_a_decider_that_cannot_decide_decides_for_no(call: Any) -> None:
    silent = zoo.producer("silent", always(None), keys(NOTE))
    wiring = asking(decider("d", call, Consumes(NOTE)), silent)
    assert answers(wiring) == [False]
    assert wiring.installed["d"].failures == (call is failing)


def test_only_named_deciders_can_be_asked() -> None:
    curious = type("Curious", (Asker,), {"asked": "other"})
    wiring = asking(decider("d", always(True)), decider("other", always(True)), handler=curious)
    refusal = zoo.refusal(lambda: decide(wiring, POOL))
    assert refusal.status == 500
    assert wiring.installed["asker"].failures == 1


def test_a_handler_names_deciders_that_are_there() -> None:
    text = "plugins: [{type: asker}]\n"
    (mistake,) = refused(text, Asker)
    assert "no plugin is named 'd'" in mistake


def test_a_decider_is_no_other_plugin() -> None:
    d = zoo.admitter("d", always(None))
    (mistake,) = refused("plugins: [{type: asker}, {type: d}]\n", Asker, d)
    assert "'d' is no decider" in mistake


# -- detectors ------------------------------------------------------------------------------


def detector(saturation: Any, name: str = "full") -> type[Any]:
    return zoo.plugin(name, saturation=zoo.asked(lambda data, given: saturation))


DETECTING: Final = "flowControl: {saturationDetector: {pluginRef: full}}\nplugins: [{type: full}]\n"


@pytest.mark.parametrize(
    ("saturation", "priority", "passes"),
    [(1.0, -1, False), (1.0, 0, True), (0.99, -1, True), (7, -3, False), ("?", -1, True)],
)
def test_negative_priorities_are_refused_at_saturation(
    saturation: Any, priority: int, passes: bool
) -> None:
    wiring = wired(DETECTING, detector(saturation))
    request = make_request(priority=priority)
    if passes:
        decide(wiring, POOL, request)
        return
    refusal = zoo.refusal(lambda: decide(wiring, POOL, request))
    assert (refusal.status, refusal.reason) == (429, "rejected-saturated")


def test_a_detector_is_no_filter_of_its_own_accord() -> None:
    """The reference puts it into the profile that is made of everything."""
    both = type("Both", (detector(0.0),), {"keep": zoo.asked(always([False, False, False]))})
    assert len(decide(wired("plugins: [{type: full}]\n", both), POOL).decision.result.profiles) == 1
    refused_by = wired(in_profile(both), both)
    assert zoo.refusal(lambda: decide(refused_by, POOL)).status == 429


def test_the_default_detector_is_added_where_priorities_can_be_negative() -> None:
    default = detector(1.0, "utilization-detector")
    wiring = wired("", default)
    assert wiring.shape.detector == "utilization-detector"
    assert "utilization-detector" in wiring.added
    found = zoo.plugin("found", discovery=always(None))
    text = "plugins: [{type: found}]\ndataLayer: {discovery: {pluginRef: found}}\n"
    assert wired(text, default, found).shape.detector is None


# -- addresses ------------------------------------------------------------------------------


def with_destination(call: Callable[[Endpoint], Any]) -> type[Any]:
    class Elsewhere(Asker):
        deciders: ClassVar[tuple[str, ...]] = ()

        def profiles(
            self, data: DataView, available: Sequence[str], results: Mapping[str, Any]
        ) -> list[str]:
            return [] if results else ["only"]

        def destination(self, data: DataView, endpoint: Endpoint) -> Any:
            return call(endpoint)

    return Elsewhere


def test_a_handler_may_send_elsewhere_than_to_the_endpoint() -> None:
    both = zoo.picker("both", lambda given, scores: given[:2])
    handler = with_destination(lambda endpoint: f"{endpoint.address}:1")
    wiring = wired(in_profile(both, others=[handler]), both, handler)
    decision = decide(wiring, POOL).decision
    assert decision.destination == f"{A.address}:1,{B.address}:1"


def test_a_handler_that_cannot_say_where_is_to_blame() -> None:
    handler = with_destination(failing)
    best = giving("best", 0, 0, 1)
    wiring = wired(in_profile(best, others=[handler]), best, handler)
    fresh = endpoints("a", "b", "c")
    assert zoo.refusal(lambda: decide(wiring, pool(fresh))).status == 500
    assert [one.identity.picks for one in fresh] == [0, 0, 0]


def test_a_handler_may_refuse_before_any_profile_runs() -> None:
    """A header of the client is no fault of the plugin."""
    handler = type("Picky", (Asker,), {"deciders": (), "profiles": zoo.refusing})
    wiring = asking(handler=handler)
    assert zoo.refusal(lambda: decide(wiring, POOL)).status == 418
    assert wiring.installed["asker"].failures == 0


def test_a_handler_names_the_profiles_that_it_needs() -> None:
    needy = type("Needy", (Asker,), {"deciders": (), "needs_profiles": ("only",)})
    text = "plugins: [{type: asker}]\nschedulingProfiles: [{name: onyl}]\n"
    (mistake,) = refused(text, needy)
    assert "'asker' needs a profile named 'only' (did you mean 'onyl'?)" in mistake
    wired(text.replace("onyl", "only"), needy)


def as_method(answer: Callable[[], object]) -> Callable[[object], object]:
    def method(self: object) -> object:
        return answer()

    return method


@pytest.mark.parametrize("members", [{}, {"dump_state": always({})}])
def test_telling_of_itself_changes_nothing_for_a_plugins_data(members: dict[str, Any]) -> None:
    seen: list[str | None] = []

    def score(data: DataView, given: Sequence[Endpoint]) -> list[float]:
        data[NOTE] = "scored"
        return [0.0] * len(given)

    classes = [keeper("k", always([True, False, True])), scorer("s", score, produces=keys(NOTE))]
    for name, member in members.items():
        setattr(classes[1], name, as_method(member))
    after = zoo.before_request(
        "after", lambda data, result: seen.append(data.get(NOTE)), Consumes(NOTE)
    )
    decide(wired(in_profile(*classes, others=[after]), *classes, after), POOL)
    assert seen == ["scored"]


# -- roles that parameters leave idle ---------------------------------------------------------


def test_a_role_that_is_idle_costs_nothing() -> None:
    def on_response_chunk(self: object, data: DataView, chunk: bytes) -> None:
        raise AssertionError("it is idle")

    eager = zoo.plugin(
        "eager",
        on_response_chunk=on_response_chunk,
        admit=zoo.asked(always(None)),
        idle_roles=frozenset({Role.RESPONSE_CHUNK}),
    )
    wiring = wired("plugins: [{type: eager}]\n", eager)
    assert not wiring.processing.response
    assert wiring.roles["eager"] == {Role.ADMITTER}
