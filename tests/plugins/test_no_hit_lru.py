"""Where prompts go that nobody has any of. S-xx are field reports whose fault a test keeps away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import handler, in_profile, refused

from pointsman.kernel.keys import Column
from pointsman.kernel.model import Endpoint, PodDeleted, ProfileResult, SchedulingResult
from pointsman.kernel.testing import Bench, decide, endpoint, endpoints, make_request, pool, wired
from pointsman.plugins.keys import PREFIX_HIT, PrefixHit
from pointsman.plugins.no_hit_lru import COLD, NoHitLruParameters, NoHitLruScorer
from pointsman.plugins.pickers import MaxScorePicker

from .stand_ins import only, publishing

ABC: Final = endpoints("a", "b", "c")
NO_HIT: Final = PrefixHit(0, 4, 16)
HIT: Final = PrefixHit(1, 4, 16)


def scorer(**parameters: Any) -> NoHitLruScorer:
    return NoHitLruScorer(NoHitLruParameters(**parameters))


def score(
    plugin: NoHitLruScorer, given: Sequence[Endpoint], hits: Column[PrefixHit] | None = None
) -> list[float | None]:
    column = [NO_HIT] * len(given) if hits is None else hits
    return Bench(plugin, given).score({PREFIX_HIT: column})


def send(plugin: NoHitLruScorer, target: Endpoint, given: Sequence[Endpoint] = ABC) -> None:
    """One request that finds no prefix, and goes to *target*."""
    bench = Bench(plugin, given)
    bench.score({PREFIX_HIT: [NO_HIT] * len(given)})
    bench.call("before_request", None, result({"default": (target, given)}))


def result(
    chosen: Mapping[str, tuple[Endpoint, Sequence[Endpoint]]], primary: str = "default"
) -> SchedulingResult:
    """Target and candidates by profile."""
    profiles = {
        name: ProfileResult((target,), given, [0.0] * len(given))
        for name, (target, given) in chosen.items()
    }
    return SchedulingResult(profiles, primary)


def test_when_somebody_has_some_of_the_prompt_all_are_alike() -> None:
    assert score(scorer(), ABC, [None, HIT, NO_HIT]) == [0.5, 0.5, 0.5]


def test_who_never_had_a_cold_prompt_comes_first_in_order() -> None:
    assert score(scorer(), ABC) == [1.0, 0.5, 0.0]


def test_who_had_one_longest_ago_comes_before_who_had_one_lately() -> None:
    plugin = scorer()
    for target in (ABC[1], ABC[0], ABC[2], ABC[1]):
        send(plugin, target)
    assert score(plugin, ABC) == [1.0, 0.0, 0.5]


def test_the_unused_come_before_the_used() -> None:
    plugin = scorer()
    send(plugin, ABC[0])
    assert score(plugin, ABC) == [0.0, 1.0, 0.5]


def test_a_single_candidate_gets_1() -> None:
    plugin = scorer()
    send(plugin, ABC[0])
    assert score(plugin, ABC[:1]) == [1.0]


def test_no_candidates_get_nothing() -> None:
    assert score(scorer(), []) == []


@pytest.mark.parametrize("data", [{}, {PREFIX_HIT: [None, None, None]}])
def test_without_prefix_data_every_prompt_is_cold(data: Mapping[Any, Any]) -> None:
    bench = Bench(scorer(), ABC)
    assert bench.score(data) == [1.0, 0.5, 0.0]
    assert bench.state.read(bench.request, COLD)


def test_only_candidates_have_a_place() -> None:
    """The reference counts everyone who was ever used, until all that are left get 0."""
    plugin = scorer()
    for target in (ABC[0], *endpoints(*(f"gone-{n}" for n in range(50))), ABC[1]):
        send(plugin, target)
    assert score(plugin, ABC[:2]) == [1.0, 0.0]


def test_a_warm_request_uses_nobody() -> None:
    plugin = scorer()
    bench = Bench(plugin, ABC)
    bench.score({PREFIX_HIT: [HIT, None, None]})
    bench.call("before_request", None, result({"default": (ABC[0], ABC)}))
    assert plugin.dump_state() == {"used": 0, "latest": []}


def test_a_prefill_endpoint_is_used_too() -> None:
    plugin = scorer()
    bench = Bench(plugin, ABC)
    bench.score({PREFIX_HIT: [None] * 3})
    profiles = {"prefill": (ABC[2], ABC), "decode": (ABC[1], ABC), "encode": (ABC[0], ABC)}
    bench.call("before_request", None, result(profiles, "decode"))
    assert plugin.dump_state() == {"used": 2, "latest": ["c", "b"]}


def test_the_prefill_profile_can_have_another_name() -> None:
    plugin = scorer(prefill_profile_name="first")
    bench = Bench(plugin, ABC)
    bench.score({PREFIX_HIT: [None] * 3})
    profiles = {"prefill": (ABC[2], ABC), "decode": (ABC[1], ABC), "first": (ABC[0], ABC)}
    bench.call("before_request", None, result(profiles, "decode"))
    assert plugin.dump_state() == {"used": 2, "latest": ["a", "b"]}


def test_a_stage_that_failed_uses_nobody() -> None:
    plugin = scorer()
    bench = Bench(plugin, ABC)
    bench.score({PREFIX_HIT: [None] * 3})
    found = result({"decode": (ABC[1], ABC)}, "decode")
    failed = SchedulingResult({**found.profiles, "prefill": None}, "decode")
    bench.call("before_request", None, failed)
    assert plugin.dump_state() == {"used": 1, "latest": ["b"]}


def test_each_profile_run_is_cold_or_warm_for_itself() -> None:
    """The reference keeps one flag a request, which the profile that runs last overwrites."""
    plugin, decoding, prefilling = scorer(), ABC[:2], ABC[2:]
    bench = Bench(plugin)
    for candidates, hit in ((decoding, NO_HIT), (prefilling, HIT)):
        bench.endpoints = candidates
        bench.score({PREFIX_HIT: [hit] * len(candidates)})
    profiles = {"decode": (ABC[1], decoding), "prefill": (ABC[2], prefilling)}
    bench.call("before_request", None, result(profiles, "decode"))
    assert plugin.dump_state() == {"used": 1, "latest": ["b"]}


def test_a_deleted_endpoint_is_forgotten() -> None:
    plugin = scorer()
    send(plugin, ABC[0])
    plugin.forget(PodDeleted(ABC[0]))
    plugin.forget(PodDeleted(ABC[1]))
    assert plugin.dump_state() == {"used": 0, "latest": []}


def test_a_new_endpoint_of_an_old_name_is_unused() -> None:
    plugin = scorer()
    send(plugin, ABC[0])
    fresh = (endpoint("a"), ABC[1])
    assert score(plugin, fresh) == [1.0, 0.0]


def test_no_more_endpoints_are_remembered_than_configured() -> None:
    plugin = scorer(lru_size=2)
    for target in ABC:
        send(plugin, target)
    assert plugin.dump_state() == {"used": 2, "latest": ["c", "b"]}
    assert score(plugin, ABC) == [1.0, 0.5, 0.0]


def test_what_is_shown_is_bounded() -> None:
    plugin = scorer()
    for target in endpoints(*map(str, range(101))):
        send(plugin, target)
    shown: Any = plugin.dump_state()
    assert (shown["used"], len(shown["latest"]), shown["latest"][0]) == (101, 100, "100")


def test_nothing_is_kept_of_a_request_that_ended() -> None:
    bench = Bench(scorer(), ABC)
    bench.score({PREFIX_HIT: [None] * 3})
    bench.request.end()
    assert len(bench.state) == 0


def test_s_01_cold_prompts_take_turns() -> None:
    unseen = publishing("index", {PREFIX_HIT: [NO_HIT] * 3})
    classes = (NoHitLruScorer, MaxScorePicker)
    wiring = wired(in_profile(*classes, others=[unseen]), *classes, unseen)
    found = [decide(wiring, pool(ABC)).decision.result.target.name for _ in range(9)]
    assert "".join(found) == "abcabcabc"


TWO_PROFILES: Final = """
plugins:
- {type: index}
- {type: both}
- {type: only-decode}
- {type: only-prefill}
- {type: no-hit-lru-scorer}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: only-decode}, {pluginRef: no-hit-lru-scorer}]}
- {name: prefill, plugins: [{pluginRef: only-prefill}, {pluginRef: no-hit-lru-scorer}]}
"""


@pytest.mark.parametrize(
    ("hits", "used"), [([NO_HIT, NO_HIT], "ab"), ([HIT, NO_HIT], "b"), ([NO_HIT, HIT], "a")]
)
def test_the_runs_of_a_real_cycle_are_told_apart(hits: list[PrefixHit], used: str) -> None:
    both = handler("both", lambda names, results: () if results else names, lambda _: "decode")
    index = publishing("index", {PREFIX_HIT: hits})
    classes = (both, index, only("decode"), only("prefill"), NoHitLruScorer)
    wiring = wired(TWO_PROFILES, *classes)
    given = [endpoint("a", labels={"role": "decode"}), endpoint("b", labels={"role": "prefill"})]
    request = make_request()
    decide(wiring, pool(given), request)
    plugin = wiring.installed["no-hit-lru-scorer"].plugin
    assert sorted(plugin.dump_state()["latest"]) == list(used)


@given(st.lists(st.integers(0, 5), max_size=20), st.sets(st.integers(0, 5), min_size=1))
def test_cold_scores_are_even_steps_from_1_to_0(uses: list[int], candidates: set[int]) -> None:
    everyone = endpoints(*"abcdef")
    plugin = scorer(lru_size=4)
    for index in uses:
        send(plugin, everyone[index], everyone)
    scores = score(plugin, [everyone[index] for index in sorted(candidates)])
    steps = max(1, len(candidates) - 1)
    assert sorted(one or 0.0 for one in scores) == pytest.approx(
        sorted(1 - place / steps for place in range(len(candidates)))
    )


@given(st.permutations(range(5)), st.permutations(range(5)))
def test_the_order_of_used_candidates_does_not_matter(uses: list[int], order: list[int]) -> None:
    everyone = endpoints(*"abcde")
    plugin = scorer()
    for index in uses:
        send(plugin, everyone[index], everyone)
    scores = score(plugin, everyone)
    assert score(plugin, [everyone[i] for i in order]) == [scores[i] for i in order]


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{lruSize: 0}", "parameters.lruSize: must be at least 1, not 0"),
        ("{lruSizes: 5}", "unknown field (did you mean 'lruSize'?)"),
        ("{prefixMatchInfoProducerName: nobody}", "no plugin is named 'nobody'"),
    ],
)
def test_mistaken_parameters_are_refused(parameters: str, complaint: str) -> None:
    index = publishing("index", {PREFIX_HIT: []})
    text = f"plugins: [{{type: index}}, {{type: no-hit-lru-scorer, parameters: {parameters}}}]"
    (mistake,) = refused(text, NoHitLruScorer, index)
    assert complaint in mistake


def test_the_retired_parameters_are_still_accepted() -> None:
    index = publishing("index", {PREFIX_HIT: []})
    parameters = "{prefixPluginType: prefix-cache-scorer, prefixPluginName: old, lruSize: 2048}"
    text = f"plugins: [{{type: index}}, {{type: no-hit-lru-scorer, parameters: {parameters}}}]"
    assert "no-hit-lru-scorer" in wired(text, NoHitLruScorer, index).installed
