"""What stands beside the endpoints of a pool."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from pointsman.kernel.pool import (
    NO_REWRITES,
    ModelRewrite,
    RewriteRule,
    Rewrites,
    RewriteTarget,
)


def rule(*models: str, to: str = "target") -> RewriteRule:
    return RewriteRule(models=frozenset(models), targets=(RewriteTarget(to),))


def test_targets_are_taken_by_weight() -> None:
    targets = (RewriteTarget("a", 3), RewriteTarget("b", 1), RewriteTarget("c"))
    picks = RewriteRule(targets=targets)
    random = Random(1)
    count = Counter(picks.pick(random) for _ in range(4000))
    assert count["a"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert count["c"] == 0


def test_without_weights_targets_are_alike() -> None:
    picks = RewriteRule(targets=(RewriteTarget("a"), RewriteTarget("b", 0)))
    random = Random(1)
    count = Counter(picks.pick(random) for _ in range(1000))
    assert count["a"] == pytest.approx(500, abs=60)


def test_without_targets_there_is_no_name() -> None:
    assert RewriteRule().pick(Random(1)) == ""


def test_the_older_rewrite_wins_and_then_the_smaller_name() -> None:
    rewrites = Rewrites.of(
        [
            ModelRewrite(name="a", created="2026-01-02", rules=(rule("m", to="late"),)),
            ModelRewrite(name="c", created="2026-01-01", rules=(rule("m", to="second"),)),
            ModelRewrite(name="b", created="2026-01-01", rules=(rule("m", to="first"),)),
        ]
    )
    assert rewrites.target("m", Random(1)) == "first"


def test_an_exact_rule_wins_over_one_for_every_model() -> None:
    rewrites = Rewrites.of(
        [ModelRewrite(name="a", created="2026", rules=(rule(to="any"), rule("m", to="exact")))]
    )
    found = [rewrites.target(model, Random(1)) for model in ("m", "other", "")]
    assert found == ["exact", "any", "any"]


def test_a_model_that_no_rule_speaks_of_stays() -> None:
    rewrites = Rewrites.of([ModelRewrite(name="a", created="2026", rules=(rule("m"),))])
    assert rewrites.target("other", Random(1)) is None
    assert rewrites
    assert not NO_REWRITES
