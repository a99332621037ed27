"""Which model is asked for in the end; `conversations.renaming` has what changes on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from pointsman.actors.conversation import (
    RequestBody,
)
from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import MODEL_NAME, REQUEST_PRIORITY, Endpoint
from pointsman.kernel.pool import (
    ModelRewrite,
    Objective,
    RewriteRule,
    RewriteTarget,
    SetObjectives,
    SetRewrites,
)

from .scripts import (
    BASE,
    Desk,
    body,
    opening,
    passed_on,
    refusal,
    wired,
)


def rule(target: str, *models: str) -> RewriteRule:
    return RewriteRule(models=frozenset(models), targets=(RewriteTarget(target),))


def rewriting(*rules: RewriteRule) -> Desk:
    desk = Desk()
    made = ModelRewrite(name="r", created="2026-01-01T00:00:00Z", rules=rules)
    desk.datastore.apply(SetRewrites([made]))
    return desk


def test_b04_a_rule_for_every_model_also_names_a_missing_one() -> None:
    desk = rewriting(rule("base"), rule("special", "s"))
    for data in (b'{"prompt":"x"}', b'{"prompt":"x","model":null}', b'{"prompt":"x","model":""}'):
        assert b'"base"' in passed_on(desk.talk(opening(), RequestBody(data, end=True)))
    exact = passed_on(desk.talk(opening(), RequestBody(body(model="s"), end=True)))
    assert exact == body(model="special")


def test_a_rule_without_targets_leaves_no_model() -> None:
    desk = rewriting(RewriteRule(models=frozenset({"m"})))
    assert refusal(desk.talk(opening(), RequestBody(body(model="m"), end=True))).status == 400


class Witness:
    """Notes the model and the priority that plugins see."""

    type_name: ClassVar = "witness"
    consumes: ClassVar = Consumes(MODEL_NAME, REQUEST_PRIORITY)
    saw: ClassVar[list[tuple[str, int]]] = []

    def admit(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        self.saw.append((data[MODEL_NAME], data[REQUEST_PRIORITY]))


@pytest.mark.parametrize(
    ("fields", "priority"),
    [
        ({"x_llm_d_inference_objective": "urgent"}, 10),
        ({"x_gateway_inference_objective": "urgent"}, 10),
        ({"x_llm_d_inference_objective": "unknown"}, 0),
        ({}, 0),
    ],
)
def test_plugins_see_the_target_and_the_objectives_priority(
    fields: dict[str, str], priority: int
) -> None:
    Witness.saw.clear()
    desk = Desk(wired("plugins: [{type: witness}]", Witness))
    desk.datastore.apply(SetObjectives({"urgent": Objective("urgent", 10)}))
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    desk.talk(opening({**BASE, **named}), RequestBody(body(model="m"), end=True))
    assert Witness.saw == [("m", priority)]
