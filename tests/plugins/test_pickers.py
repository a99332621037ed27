"""Pickers. S-xx are field reports whose fault a test keeps away. All chance is seeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kernel.zoo import refused

from pointsman.kernel.testing import Bench, endpoints
from pointsman.plugins.pickers import (
    MaxScorePicker,
    PickerParameters,
    RandomPicker,
    WeightedRandomPicker,
)

PickerClass = type[MaxScorePicker | RandomPicker | WeightedRandomPicker]
CLASSES: tuple[PickerClass, ...] = (MaxScorePicker, RandomPicker, WeightedRandomPicker)
EVERY = pytest.mark.parametrize("picker", CLASSES, ids=lambda c: c.type_name)
SEEDS = pytest.mark.parametrize("seed", range(5))
BOUNDS: Final = {3: 16.3, 11: 31.3}
"""By degrees of freedom: a chi-square that is exceeded once in 1000."""


def bench(picker: PickerClass, candidates: int, *, most: int = 1, seed: int = 0) -> Bench:
    names = (chr(ord("a") + number) for number in range(candidates))
    plugin = picker(PickerParameters(max_num_of_endpoints=most), Random(seed))
    return Bench(plugin, endpoints(*names))


def picks(bench: Bench, scores: Sequence[float], times: int) -> Counter[str]:
    return Counter(bench.pick(scores)[0].name for _ in range(times))


def names(bench: Bench, scores: Sequence[float]) -> str:
    return "".join(endpoint.name for endpoint in bench.pick(scores))


def chi_square(found: Counter[str], expected: Mapping[str, float]) -> float:
    """How far what was *found* is from the *expected* shares of it."""
    assert found.keys() <= expected.keys()
    total = found.total()
    return sum((found[k] - total * p) ** 2 / (total * p) for k, p in expected.items())


def drawn_in_turn(weights: Mapping[str, float]) -> dict[str, float]:
    """The chance of each ordered pair, when the first is taken out before the second is drawn."""
    total = sum(weights.values())
    return {
        a + b: weights[a] / total * weights[b] / (total - weights[a])
        for a, b in permutations(weights, 2)
    }


def test_the_highest_score_wins() -> None:
    assert picks(bench(MaxScorePicker, 3), [0.1, 3.0, 2.9], 50) == {"b": 50}


def test_the_highest_scores_come_best_first() -> None:
    assert names(bench(MaxScorePicker, 4, most=3), [0.1, 0.3, 0.2, 0.4]) == "dbc"


def test_s_01_ties_are_broken_without_bias() -> None:
    """8 equal endpoints, 800 requests: 100 each, within 20 %."""
    found = picks(bench(MaxScorePicker, 8, seed=3), [1.0] * 8, 800)
    assert len(found) == 8
    assert all(80 <= count <= 120 for count in found.values())


def test_s_01_only_the_best_share_a_tie() -> None:
    assert set(picks(bench(MaxScorePicker, 4), [1.0, 2.0, 0.0, 2.0], 100)) == {"b", "d"}


def test_s_01_ties_are_broken_without_bias_among_several_too() -> None:
    several = bench(MaxScorePicker, 4, most=2, seed=1)
    found = picks(several, [1.0] * 4, 400)
    assert all(70 <= found[name] <= 130 for name in "abcd")


@EVERY
def test_s_02_all_zero_scores_spread_evenly(picker: PickerClass) -> None:
    found = picks(bench(picker, 4, seed=2), [0.0] * 4, 800)
    assert all(160 <= found[name] <= 240 for name in "abcd")


@EVERY
def test_s_02_a_single_candidate_is_picked(picker: PickerClass) -> None:
    assert picks(bench(picker, 1), [0.0], 3) == {"a": 3}


def test_s_03_picks_in_a_tight_loop_are_random() -> None:
    """Chi-square over 4 equal endpoints, 3 degrees of freedom: 16.3 is exceeded once in 1000."""
    found = picks(bench(RandomPicker, 4, seed=5), [1.0, 0.0, 0.5, 0.2], 10_000)
    assert sum((found[name] - 2500) ** 2 / 2500 for name in "abcd") < 16.3


def test_s_03_two_picks_in_a_row_are_not_correlated() -> None:
    one = bench(RandomPicker, 4, seed=6)
    pairs = Counter(names(one, [0.0] * 4) + names(one, [0.0] * 4) for _ in range(8000))
    assert len(pairs) == 16
    assert all(400 <= count <= 600 for count in pairs.values())


def test_s_03_weighted_picks_follow_the_weights() -> None:
    found = picks(bench(WeightedRandomPicker, 2, seed=7), [3.0, 1.0], 10_000)
    assert 7300 <= found["a"] <= 7700


@SEEDS
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0, 1.0], [4.0, 3.0, 2.0, 1.0], [7.0, 1, 1, 1]])
def test_s_03_the_first_of_a_weighted_pick_is_drawn_by_weight(
    weights: list[float], seed: int
) -> None:
    found = picks(bench(WeightedRandomPicker, 4, seed=seed), weights, 4000)
    shares = {name: weight / sum(weights) for name, weight in zip("abcd", weights, strict=True)}
    assert chi_square(found, shares) < BOUNDS[3]


@SEEDS
def test_s_03_the_rest_of_a_weighted_pick_is_drawn_by_weight_too(seed: int) -> None:
    weights = {"a": 4.0, "b": 2.0, "c": 1.0, "d": 1.0}
    two = bench(WeightedRandomPicker, 4, most=2, seed=seed)
    found = Counter(names(two, list(weights.values())) for _ in range(4000))
    assert chi_square(found, drawn_in_turn(weights)) < BOUNDS[11]


@SEEDS
@EVERY
def test_among_equals_every_order_is_as_likely(picker: PickerClass, seed: int) -> None:
    two = bench(picker, 4, most=2, seed=seed)
    found = Counter(names(two, [0.5] * 4) for _ in range(4000))
    assert chi_square(found, drawn_in_turn(dict.fromkeys("abcd", 1.0))) < BOUNDS[11]


def test_a_weight_far_above_the_others_nearly_always_wins() -> None:
    found = picks(bench(WeightedRandomPicker, 3, seed=4), [1000.0, 1.0, 1.0], 2000)
    assert found["a"] >= 1980


@pytest.mark.parametrize("scale", [1e-3, 1e-5, 1e-300])
def test_weights_keep_their_proportion_however_small_they_are(scale: float) -> None:
    found = picks(bench(WeightedRandomPicker, 3, seed=8), [0.0, 3 * scale, scale], 4000)
    assert found["a"] == 0
    assert 2850 <= found["b"] <= 3150


def test_endpoints_without_weight_only_fill_up() -> None:
    picker = bench(WeightedRandomPicker, 4, most=3)
    for _ in range(50):
        found = names(picker, [0.0, 0.5, 0.0, 0.001])
        assert set(found[:2]) == {"b", "d"}
        assert found[2] in "ac"


def test_who_fills_up_is_left_to_chance() -> None:
    picker = bench(WeightedRandomPicker, 5, most=2, seed=9)
    found = Counter(names(picker, [0.0, 0.0, 1.0, 0.0, -2.0]) for _ in range(4000))
    assert chi_square(found, dict.fromkeys(["ca", "cb", "cd", "ce"], 0.25)) < BOUNDS[3]


@EVERY
@pytest.mark.parametrize(("most", "count"), [(-1, 1), (0, 1), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_as_many_are_named_as_are_wanted_and_there(
    picker: PickerClass, most: int, count: int
) -> None:
    assert len(names(bench(picker, 3, most=most), [0.5, 0.2, 0.5])) == count


@given(
    st.sampled_from(CLASSES),
    st.lists(st.floats(0, 100), min_size=1, max_size=12),
    st.integers(-1, 14),
    st.integers(),
)
def test_targets_are_distinct_candidates(
    picker: PickerClass, scores: list[float], most: int, seed: int
) -> None:
    one = bench(picker, len(scores), most=most, seed=seed)
    targets = one.pick(scores)
    assert len({target.name for target in targets}) == len(targets) > 0
    assert set(map(id, targets)) <= set(map(id, one.endpoints))


@EVERY
def test_the_same_seed_picks_the_same(picker: PickerClass) -> None:
    def run() -> list[str]:
        one = bench(picker, 5, seed=11)
        return [names(one, [0.5] * 5) for _ in range(20)]

    assert run() == run()


@EVERY
@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("{maxNumOfEndpoints: many}", "parameters.maxNumOfEndpoints: must be a whole number"),
        ("{maxNumEndpoints: 2}", "unknown field (did you mean 'maxNumOfEndpoints'?)"),
    ],
)
def test_mistaken_parameters_are_refused(
    picker: PickerClass, parameters: str, complaint: str
) -> None:
    text = f"plugins: [{{type: {picker.type_name}, parameters: {parameters}}}]"
    (mistake,) = refused(text, picker)
    assert complaint in mistake
