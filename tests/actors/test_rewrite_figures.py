"""Which rewrites decide, in figures."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pointsman.actors.figures import Figures
from pointsman.kernel.pool import ModelRewrite, RewriteRule, Rewrites, RewriteTarget
from pointsman.kernel.testing import make_request

from .figure_texts import series
from .test_observation import Talk


def rewrite(name: str, created: str, models: Iterable[str]) -> ModelRewrite:
    rule = RewriteRule(models=frozenset(models), targets=(RewriteTarget(f"{name}-target"),))
    return ModelRewrite(name=name, created=created, rules=(rule,))


REWRITES = Rewrites.of(
    [rewrite("newer", "2026-02", ["a"]), rewrite("older", "2026-01", ["a", "b"])]
)
FOR_ALL = Rewrites.of([rewrite("all", "2026-01", []), rewrite("a", "2026-02", ["a"])])


@pytest.mark.parametrize(
    ("rewrites", "model", "name"),
    [
        (REWRITES, "a", "older"),
        (REWRITES, "b", "older"),
        (REWRITES, "c", None),
        (REWRITES, "", None),
        (FOR_ALL, "a", "a"),
        (FOR_ALL, "c", "all"),
        (FOR_ALL, "", "all"),
    ],
)
def test_the_rewrite_whose_rule_counts_is_named(
    rewrites: Rewrites, model: str, name: str | None
) -> None:
    assert rewrites.source(model) == name
    figures = Figures()
    figures.rewrites.current = lambda: rewrites
    request = make_request(model="target")
    request.incoming_model = model
    talk = Talk(figures, request, [0.0])
    talk.begin()
    talk.pick()
    found = series(figures, "llm_d_epp_model_rewrite_decisions_total")
    labels = {"model_rewrite_name": name, "model_name": model, "target_model": "target"}
    assert found == ([] if name is None else [labels])
