"""One cycle: filters, scorers and a picker for each profile that the handler asks for."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import WAITING_QUEUE_SIZE, Endpoint, ProfileResult
from pointsman.kernel.plugin import Results
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import decide, endpoints, pool, wired
from pointsman.kernel.wiring import Wiring

from . import zoo
from .zoo import (
    TEXT,
    Asked,
    Pick,
    Primary,
    Profiles,
    always,
    failing,
    giving,
    in_profile,
    keeper,
    listing,
    picker,
    producer,
    scorer,
)

ABC: Final = endpoints("a", "b", "c")
POOL: Final = pool(ABC, {WAITING_QUEUE_SIZE: [1.0, 2.0, 3.0]})
LOAD: Final = Consumes(WAITING_QUEUE_SIZE)


def run(*classes: type[Any], weights: dict[str, float] | None = None) -> ProfileResult:
    """What one profile of *classes* comes to."""
    wiring = wired(in_profile(*classes, weights=weights), *classes)
    return decide(wiring, POOL).decision.result.primary_result


def refusal(wiring: Wiring) -> Refusal:
    with pytest.raises(Refusal) as raised:
        decide(wiring, POOL)
    return raised.value


def profile_refusal(*classes: type[Any]) -> Refusal:
    return refusal(wired(in_profile(*classes), *classes))


def dropping(name: str, *names: str, **members: Any) -> type[Any]:
    """A filter that keeps everyone but *names*."""
    return keeper(name, lambda data, given: [e.name not in names for e in given], **members)


# -- scores ----------------------------------------------------------------------------------


def test_scores_are_summed_by_weight() -> None:
    result = run(giving("x", 0, 0.5, 1), giving("y", 1, 0, 0), weights={"x": 2, "y": 3})
    assert result.scores == [3.0, 1.0, 2.0]
    assert result.targets == (ABC[0],)
    assert result.candidates == ABC


def test_c_05_a_weight_of_zero_takes_the_influence() -> None:
    result = run(giving("x", 0, 0, 1), giving("y", 1, 0, 0), weights={"x": 1, "y": 0})
    assert result.scores == [0.0, 0.0, 1.0]


def test_scores_are_clamped() -> None:
    assert run(giving("x", -1, 5, 0.5)).scores == [0.0, 1.0, 0.5]
    assert run(giving("x", math.inf, -math.inf, 1)).scores == [1.0, 0.0, 1.0]


def test_no_score_and_nan_give_nothing() -> None:
    assert run(giving("x", None, math.nan, 0.25)).scores == [0.0, 0.0, 0.25]


def test_without_scorers_everyone_has_nothing() -> None:
    result = run(dropping("x", "a"))
    assert (result.scores, result.targets) == ([0.0, 0.0], (ABC[1],))


@given(st.lists(st.none() | st.floats(), min_size=3, max_size=3), st.integers(0, 1000))
def test_whatever_scorers_give_the_sums_are_numbers(
    scores: list[float | None], weight: float
) -> None:
    result = run(giving("x", *scores), weights={"x": weight})
    assert all(0 <= total <= weight for total in result.scores)
    assert len(result.targets) == 1


@pytest.mark.parametrize(
    "broken",
    [
        failing,
        always([1.0]),
        always(3),
        always(None),
        always(["a", "b", "c"]),
        always(score for score in (0, 0, 1)),
    ],
    ids=["raises", "too short", "no list", "nothing", "no numbers", "a generator"],
)
def test_a_broken_scorer_costs_its_own_contribution_only(broken: Asked) -> None:
    classes = [giving("x", 0, 1, 0), scorer("broken", broken), giving("y", 0, 1, 0)]
    wiring = wired(in_profile(*classes), *classes)
    result = decide(wiring, POOL).decision.result.primary_result
    assert result.scores == [0.0, 2.0, 0.0]
    assert {name: one.failures for name, one in wiring.installed.items() if one.failures} == {
        "broken": 1
    }


def test_a_scorer_without_its_data_gives_nothing_and_is_not_to_blame() -> None:
    needy = scorer("needy", lambda data, given: data[TEXT], Consumes(TEXT))
    silent = producer("silent", always(None), keys(TEXT))
    wiring = wired(in_profile(needy, others=[silent]), needy, silent)
    assert decide(wiring, POOL).decision.result.primary_result.scores == [0.0, 0.0, 0.0]
    assert wiring.installed["needy"].failures == 0


def test_a_failure_is_counted_each_time_and_logged_when_it_begins_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = iter([False, False, True, True, False])

    def score(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        return [0, 0, 0] if next(calls) else failing()

    moody = scorer("moody", score)
    wiring = wired(in_profile(moody), moody)
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            decide(wiring, POOL)
    fails = "plugin moody fails as Scorer, its contribution is dropped: ZeroDivisionError at zoo.py"
    told = [
        record.getMessage().rpartition(":")[0] or record.getMessage() for record in caplog.records
    ]
    assert told == [fails, "plugin moody works again", fails]
    assert "secret prompt" not in caplog.text
    assert wiring.installed["moody"].failures == 3


# -- filters ---------------------------------------------------------------------------------


def test_filters_work_on_what_the_one_before_left() -> None:
    seen: list[list[str]] = []

    def look(data: DataView, given: Sequence[Endpoint]) -> Sequence[bool]:
        seen.append([e.name for e in given])
        return [True] * len(given)

    result = run(dropping("x", "b"), keeper("look", look), dropping("y", "a"))
    assert seen == [["a", "c"]]
    assert result.candidates == (ABC[2],)


def test_columns_follow_the_filters() -> None:
    columns: list[list[float | None]] = []

    def score(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        columns.append([*data[WAITING_QUEUE_SIZE]])
        return [0] * len(given)

    run(scorer("s", score, LOAD), dropping("x", "b"), dropping("y"), dropping("z", "a"))
    assert columns == [[3.0]]


def test_a_filter_sees_the_columns_of_those_who_are_left() -> None:
    def short(data: DataView, given: Sequence[Endpoint]) -> Sequence[bool]:
        return [queue is not None and queue < 3 for queue in data[WAITING_QUEUE_SIZE]]

    result = run(dropping("x", "a"), keeper("short", short, LOAD))
    assert result.candidates == (ABC[1],)


@pytest.mark.parametrize(
    "broken",
    [failing, always([False]), always(None)],
    ids=["raises", "too short", "nothing"],
)
def test_a_broken_filter_keeps_everyone(broken: Asked) -> None:
    classes = [keeper("broken", broken), dropping("x", "a")]
    wiring = wired(in_profile(*classes), *classes)
    assert decide(wiring, POOL).decision.result.primary_result.candidates == ABC[1:]
    assert wiring.installed["broken"].failures == 1


def test_a_filter_without_its_data_keeps_everyone() -> None:
    needy = keeper("needy", lambda data, given: data[TEXT], Consumes(TEXT))
    silent = producer("silent", always(None), keys(TEXT))
    wiring = wired(in_profile(needy, others=[silent]), needy, silent)
    assert decide(wiring, POOL).decision.result.primary_result.candidates == ABC
    assert wiring.installed["needy"].failures == 0


def test_filters_that_leave_nobody_are_a_matter_of_load() -> None:
    found = profile_refusal(dropping("x", "a", "b", "c"))
    assert (found.status, found.reason, found.retry_after) == (429, "rejected-saturated", 1)


def test_a_filter_for_a_role_that_nobody_has_is_no_matter_of_load() -> None:
    found = profile_refusal(dropping("x", "a", "b", "c", empty_means_absent=True))
    assert (found.status, found.reason) == (503, "rejected-no-endpoints")
    assert found.message == "no endpoint fits the filter x"


# -- pickers ---------------------------------------------------------------------------------


def backwards(given: Sequence[Endpoint], scores: Sequence[float]) -> Sequence[Endpoint]:
    return given[::-1]


def test_a_picker_may_name_several_best_first() -> None:
    last_first = picker("last", backwards)
    outcome = decide(wired(in_profile(last_first), last_first), POOL)
    assert outcome.decision.destination == "127.0.1.3:8000,127.0.1.2:8000,127.0.1.1:8000"
    assert outcome.decision.result.target is ABC[2]


@pytest.mark.parametrize("pick", [failing, always(None)], ids=["raises", "nothing"])
def test_a_broken_picker_is_the_pickers_fault(pick: Pick) -> None:
    broken = picker("broken", pick)
    wiring = wired(in_profile(broken), broken)
    assert (refusal(wiring).status, refusal(wiring).message) == (500, "the picker failed")
    assert wiring.installed["broken"].failures == 2


def test_a_picker_that_picks_nobody_says_there_is_nobody() -> None:
    found = profile_refusal(picker("choosy", always(())))
    assert (found.status, found.reason) == (429, "rejected-saturated")


def test_equal_scores_reach_the_picker_as_equals() -> None:
    """So that chance decides, and a burst on frozen metrics spreads."""
    random = Random(1)

    def pick(given: Sequence[Endpoint], scores: Sequence[float]) -> Sequence[Endpoint]:
        best = [e for e, score in zip(given, scores, strict=True) if score == max(scores)]
        return [random.choice(best)]

    classes = [giving("x", 0.1, 0.1, 0.1), giving("y", 0.7, 0.7, 0.7), picker("chance", pick)]
    wiring = wired(in_profile(*classes), *classes)
    count = Counter(decide(wiring, POOL).decision.result.target.name for _ in range(600))
    assert all(150 < count[name] < 250 for name in "abc")


# -- profiles --------------------------------------------------------------------------------

TWO: Final = "schedulingProfiles: [{name: x, plugins: [%s]}, {name: y, plugins: [%s]}]\n"


def two_profiles(handler: type[Any], x: type[Any], y: type[Any]) -> Wiring:
    """The profiles x and y, with one plugin each."""
    parts = tuple(f"{{pluginRef: {one.type_name}}}" for one in (x, y))
    return wired(listing(handler, x, y) + TWO % parts, handler, x, y)


def once(available: Sequence[str], results: Results) -> Sequence[str]:
    return () if results else available


X: Final = always("x")


def handled(profiles: Profiles = once, primary: Primary = X) -> Wiring:
    handler = zoo.handler("handler", profiles, primary)
    return two_profiles(handler, giving("gx", 0, 1, 0), dropping("dy", "a"))


def test_the_handler_names_the_primary_profile() -> None:
    results = [decide(handled(primary=always(name)), POOL).decision.result for name in ("x", "y")]
    assert [one.target.name for one in results] == ["b", "b"]
    assert [one.primary for one in results] == ["x", "y"]
    assert set(results[0].profiles) == {"x", "y"}


def test_a_profile_does_not_see_what_another_filtered() -> None:
    handler = zoo.handler("handler", once, always("y"))
    result = decide(two_profiles(handler, dropping("dx", "a", "b"), dropping("dy", "c")), POOL)
    profiles = result.decision.result.profiles
    assert [p.candidates for p in profiles.values() if p] == [(ABC[2],), ABC[:2]]


def test_profiles_run_round_after_round() -> None:
    def stages(available: Sequence[str], results: Results) -> Sequence[str]:
        assert list(available) == ["x", "y"]
        return [name for name in available if name not in results][:1]

    assert decide(handled(stages), POOL).decision.result.profiles.keys() == {"x", "y"}


def test_what_plugins_share_in_a_run_ends_with_it() -> None:
    seen: list[str | None] = []
    note = StateKey("note", str)

    def keep(data: DataView, given: Sequence[Endpoint]) -> Sequence[bool]:
        seen.append(data.cycle.read(note))
        data.cycle.write(note, "mine")
        return [True] * len(given)

    def score(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        seen.append(data.cycle.read(note))
        return [0.0] * len(given)

    classes = [keeper("k", keep), scorer("s", score)]
    wiring = wired(in_profile(*classes), *classes)
    decide(wiring, POOL)
    decide(wiring, POOL)
    assert seen == [None, "mine", None, "mine"]


@pytest.mark.parametrize("keeps", [[True, True, True], [True, False, True], [False] * 3])
def test_what_a_scorer_writes_reaches_those_who_come_after(keeps: Sequence[bool]) -> None:
    """Whoever was filtered out before or meanwhile; what nobody wrote stays absent."""
    seen: list[str | None] = []

    def score(data: DataView, given: Sequence[Endpoint]) -> Sequence[float]:
        data[TEXT] = f"of {len(given)}"
        return [0.0] * len(given)

    classes = [keeper("k", always(keeps)), scorer("s", score, produces=keys(TEXT))]
    after = zoo.before_request(
        "after", lambda data, result: seen.append(data.get(TEXT)), Consumes(TEXT)
    )
    wiring = wired(in_profile(*classes, others=[after]), *classes, after)
    if any(keeps):
        decide(wiring, POOL)
        assert seen == [f"of {sum(keeps)}"]
    else:
        refusal(wiring)
        assert seen == []


def test_s_04_a_handler_that_never_ends_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked a bounded number of times, the client hears of it, and so does the log."""
    asked: list[Results] = []

    def again(available: Sequence[str], results: Results) -> Sequence[str]:
        asked.append(results)
        return ["x"]

    wiring = handled(again)
    found = refusal(wiring)
    assert len(asked) <= 10
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (found.status, found.message) == (
        500,
        "profile handler handler never comes to an end",
    )
    assert wiring.installed["handler"].failures == 1


@pytest.mark.parametrize(
    "profiles",
    [always(()), always(["unknown"])],
    ids=["none", "unknown"],
)
def test_a_handler_that_runs_no_profile_is_to_blame(profiles: Profiles) -> None:
    wiring = handled(profiles)
    found = refusal(wiring)
    assert (found.status, found.message) == (500, "profile handler handler ran no profile")
    assert wiring.installed["handler"].failures == 1


@pytest.mark.parametrize(
    "choices",
    [
        {"profiles": failing},
        {"profiles": always(None)},
        {"profiles": always([[1]])},
        {"primary": failing},
        {"primary": always([])},
    ],
    ids=["profiles raises", "no list", "no names", "primary raises", "no name"],
)
def test_a_broken_handler_is_the_handlers_fault(choices: dict[str, Any]) -> None:
    wiring = handled(**choices)
    found = refusal(wiring)
    assert (found.status, found.message) == (500, "the profile handler failed")
    assert wiring.installed["handler"].failures == 1


def test_a_profile_that_fails_leaves_the_others_their_results() -> None:
    handler = zoo.handler("handler", once, always("y"))
    wiring = two_profiles(handler, dropping("dx", "a", "b", "c"), giving("gy", 0, 1, 0))
    result = decide(wiring, POOL).decision.result
    assert (result.profiles["x"], result.target.name) == (None, "b")


def test_a_failed_primary_profile_answers_with_its_own_refusal() -> None:
    handler = zoo.handler("handler", once, always("x"))
    absent = dropping("dx", "a", "b", "c", empty_means_absent=True)
    assert refusal(two_profiles(handler, absent, giving("gy", 0, 1, 0))).status == 503


def test_a_primary_that_never_ran_has_no_endpoint() -> None:
    found = refusal(handled(primary=always("unknown")))
    assert (found.status, found.message) == (503, "profile unknown found no endpoint")


def refuse(results: Results) -> str:
    raise Refusal(412, "no decoder")


def test_a_handler_may_refuse() -> None:
    assert refusal(handled(primary=refuse)).status == 412


def test_the_first_profile_speaks_for_all_that_failed() -> None:
    handler = zoo.handler("handler", once, refuse)
    load, role = dropping("d1", *"abc"), dropping("d2", *"abc", empty_means_absent=True)
    assert refusal(two_profiles(handler, load, role)).status == 429
    assert refusal(two_profiles(handler, role, load)).status == 503
