"""Names, bindings and reloads: which plugin stands for what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from pointsman.kernel.errors import ConfigError
from pointsman.kernel.keys import Consumes
from pointsman.kernel.model import (
    WAITING_QUEUE_SIZE,
)
from pointsman.kernel.registry import Stability
from pointsman.kernel.state import StateKey
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring

from . import zoo
from .zoo import (
    TEXT,
    Parameters,
    Tuned,
    always,
    giving,
    in_profile,
    keeper,
    reader,
    scorer,
    writer,
)

POOL: Final = pool(endpoints("a", "b"), {WAITING_QUEUE_SIZE: [1.0, 2.0]})


X: Final = giving("x", 0, 1)
F: Final = keeper("f", always([True, True]))
ALPHA: Final = giving("alpha", 0, 0)
ALPHA.stability = Stability.ALPHA


def of(wiring: Wiring, name: str) -> Any:
    return wiring.installed[name].plugin


def test_a_renamed_product_is_read_under_its_published_name() -> None:
    one, other, (note, seen) = writer("one", TEXT), writer("other", TEXT), reader()
    text = (
        "plugins: [{type: one}, {type: other, produces: {text: precise}},"
        " {type: reader, consumes: {text: precise}}, {type: reader, name: usual}]"
    )
    decide(wired(text, one, other, note), POOL)
    assert seen == ["other", "one"]


def test_two_instances_of_one_type_go_together() -> None:
    one, (note, seen) = writer("one", TEXT), reader()
    text = (
        "plugins: [{type: one}, {type: one, name: again, produces: {text: more}},"
        " {type: reader, consumes: {text: more}}]"
    )
    wiring = wired(text, one, note)
    decide(wiring, POOL)
    assert seen == ["one"]
    assert wiring.plan.unused == {"one": ("text",)}


def test_the_older_spelling_of_a_binding_names_the_producer() -> None:
    note, seen = reader(producer_names={"text": "other"})
    one, other = writer("one", TEXT), writer("other", TEXT)
    text = "plugins: [{type: one}, {type: other, produces: {text: precise}}, {type: reader}]"
    decide(wired(text, one, other, note), POOL)
    assert seen == ["other"]


@pytest.mark.parametrize("names", [{}, {"text": ""}, {"text": "one"}])
def test_a_producer_that_is_added_by_default_has_its_own_name(names: Mapping[str, str]) -> None:
    note, seen = reader(producer_names=names)
    decide(wired("plugins: [{type: reader}]", note, writer("one", TEXT)), POOL)
    assert seen == ["one"]


def test_a_binding_wins_over_its_older_spelling() -> None:
    note, seen = reader(producer_names={"text": "one"})
    one, other = writer("one", TEXT), writer("other", TEXT)
    text = (
        "plugins: [{type: one}, {type: other, produces: {text: precise}},"
        " {type: reader, consumes: {text: precise}}]"
    )
    decide(wired(text, one, other, note), POOL)
    assert seen == ["other"]


def test_an_experimental_type_may_be_allowed() -> None:
    assert "alpha" in wired("plugins: [{type: alpha}]", ALPHA).installed


def test_an_older_name_of_a_type_is_deprecated() -> None:
    wiring = wired("plugins: [{type: was-tuned}]", Tuned)
    assert wiring.warnings == ("plugin type 'was-tuned' is deprecated: write tuned",)
    assert of(wiring, "was-tuned").parameters == Parameters()


def test_a_weight_that_has_no_effect_is_told() -> None:
    assert wired(in_profile(F), F).warnings == ("'f' is no scorer: its weight has no effect",)


NOTED: Final = StateKey("noted", str)
BEFORE: Final = "plugins: [{type: tuned}, {type: tuned, name: other, parameters: {header: a}}]"


def test_an_unchanged_plugin_goes_on_with_its_state() -> None:
    before, request = wired(BEFORE, Tuned), make_request()
    before.installed["tuned"].state.write(request, NOTED, "kept")
    text = BEFORE.replace("header: a", "header: b").replace("plugins: [", "plugins:\n  [")
    after = wired(text, Tuned, before=before)
    assert of(after, "tuned") is of(before, "tuned")
    assert after.installed["tuned"].state.read(request, NOTED) == "kept"


def test_a_changed_plugin_begins_anew() -> None:
    before, request = wired(BEFORE, Tuned), make_request()
    before.installed["other"].state.write(request, NOTED, "old")
    after = wired(BEFORE.replace("header: a", "header: b"), Tuned, before=before)
    assert of(after, "other") is not of(before, "other")
    assert after.installed["other"].state.read(request, NOTED) is None
    request.end()
    assert len(before.installed["other"].state) == 0


def test_another_binding_makes_another_plugin() -> None:
    note, _ = reader()
    one = writer("one", TEXT)
    text = "plugins: [{type: one}, {type: one, name: two, produces: {text: more}}, {type: reader}]"
    before = wired(text, one, note)
    bound = text.replace("{type: reader}", "{type: reader, consumes: {text: more}}")
    after = wired(bound, one, note, before=before)
    assert of(after, "reader") is not of(before, "reader")
    assert of(after, "one") is of(before, "one")


def test_another_class_of_the_same_name_makes_another_plugin() -> None:
    before = wired("plugins: [{type: x}]", giving("x", 0, 1))
    after = wired("plugins: [{type: x}]", giving("x", 0, 1), before=before)
    assert of(after, "x") is not of(before, "x")


def test_a_plugin_that_was_added_goes_on_too() -> None:
    needy, text_writer = scorer("needy", always([0, 0]), Consumes(TEXT)), writer("one", TEXT)
    before = wired("plugins: [{type: needy}]", needy, text_writer)
    after = wired("plugins: [{type: needy}, {type: x}]", needy, text_writer, X, before=before)
    assert of(after, "one") is of(before, "one")
    assert after.added["one"] == "default producer of text"


def test_running_requests_finish_on_the_plan_that_they_began_with() -> None:
    ends: list[str] = []
    end = zoo.on_response_end("end", lambda data, end: ends.append(data[TEXT]), Consumes(TEXT))
    one = writer("one", TEXT)
    before = wired("plugins: [{type: one}, {type: end}]", one, end)
    outcome = decide(before, POOL)
    wired("plugins: [{type: x}, {type: one}, {type: end}]", one, end, X, before=before)
    before.director.response_end(outcome, zoo.END)
    assert ends == ["one"]


def test_a_configuration_that_is_refused_leaves_the_one_before_at_work() -> None:
    before = wired(BEFORE, Tuned)
    with pytest.raises(ConfigError):
        wired("plugins: [{type: nobody}]", Tuned, before=before)
    assert decide(before, POOL).decision.result.target.name == "a"
