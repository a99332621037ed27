"""What a configuration leaves out is added, and announced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from pointsman.kernel.keys import Consumes, keys
from pointsman.kernel.model import (
    WAITING_QUEUE_SIZE,
)
from pointsman.kernel.plugin import Role
from pointsman.kernel.testing import decide, endpoints, pool, wired

from . import zoo
from .zoo import (
    NOTE,
    TEXT,
    Tuned,
    always,
    giving,
    keeper,
    listing,
    producer,
    scorer,
    writer,
)

POOL: Final = pool(endpoints("a", "b"), {WAITING_QUEUE_SIZE: [1.0, 2.0]})


def test_what_is_left_out_is_added_and_announced() -> None:
    wiring = wired("")
    assert wiring.added == {
        "single-profile-handler": "the only profile needs a handler",
        "max-score-picker": "profile 'default' has no picker",
        "openai-parser": "no parsers are configured",
        "passthrough-parser": "no parsers are configured",
        "core-metrics-extractor": "dataLayer.injectDefaults",
        "metrics-data-source": "dataLayer.injectDefaults",
    }
    assert decide(wiring, POOL).decision.result.primary == "default"


def test_what_is_configured_is_not_added() -> None:
    text = "plugins: [{type: max-score-picker}, {type: single-profile-handler}]"
    assert not {"max-score-picker", "single-profile-handler"} & wired(text).added.keys()


def test_without_profiles_there_is_one_of_all_that_fit_in_the_order_of_the_configuration() -> None:
    classes = [
        giving("x", 0, 1),
        keeper("f", always([True, True])),
        zoo.admitter("a", always(None)),
    ]
    wiring = wired(listing(*classes), *classes)
    (profile,) = wiring.shape.profiles
    assert profile.name == "default"
    assert [one.plugin_ref for one in profile.plugins] == ["x", "f"]


def test_a_profile_without_a_picker_takes_the_first_that_is_configured() -> None:
    last = zoo.picker("last", lambda given, scores: given[-1:])
    text = listing(last, giving("x", 1, 0)) + zoo.ONE_PROFILE.format("{pluginRef: x}")
    wiring = wired(text, last, giving("x", 1, 0))
    assert wiring.shape.pickers == {"only": "last"}
    assert decide(wiring, POOL).decision.result.target.name == "b"


@pytest.mark.parametrize("order", [("first", "x"), ("x", "first")])
@pytest.mark.parametrize("profiles", [False, True])
def test_c_02_the_order_of_picker_and_scorer_does_not_matter(
    order: Sequence[str], profiles: bool
) -> None:
    """Nor does a weight that is left out; in a profile as little as without any."""
    first = zoo.picker("first", lambda given, scores: [given[scores.index(max(scores))]])
    by_name = {"first": first, "x": giving("x", 0, 1)}
    text = listing(*(by_name[name] for name in order))
    if profiles:
        text += zoo.ONE_PROFILE.format(", ".join(f"{{pluginRef: {name}}}" for name in order))
    wiring = wired(text, *by_name.values())
    result = decide(wiring, POOL).decision.result
    assert (result.primary_result.scores, result.target.name) == ([0.0, 1.0], "b")
    assert set(wiring.shape.pickers.values()) == {"first"}


def test_c_05_a_weight_that_is_left_out_is_one_and_zero_is_zero() -> None:
    x, y = giving("x", 0, 1), giving("y", 1, 1)
    text = listing(x, y) + zoo.ONE_PROFILE.format("{pluginRef: x}, {pluginRef: y, weight: 0}")
    assert decide(wired(text, x, y), POOL).decision.result.primary_result.scores == [0.0, 1.0]


def test_a_listed_parser_need_not_be_configured() -> None:
    wiring = wired("requestHandler: {parsers: [{pluginRef: openai-parser}]}")
    assert wiring.shape.parsers == ("openai-parser",)
    assert wiring.added["openai-parser"] == "requestHandler.parsers names it"
    assert "passthrough-parser" not in wiring.installed


def test_default_sources_can_be_left_out() -> None:
    assert wired("dataLayer: {injectDefaults: false}").shape.sources == ()


def test_a_listed_default_source_is_not_listed_twice() -> None:
    text = (
        "plugins: [{type: metrics-data-source}, {type: core-metrics-extractor}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source,"
        " extractors: [{pluginRef: core-metrics-extractor}]}]}"
    )
    assert wired(text).shape.sources == (("metrics-data-source", ("core-metrics-extractor",)),)


def nowhere(self: object) -> None: ...


def test_discovery_is_found_where_it_is_named() -> None:
    discovery = zoo.plugin("d", discovery=nowhere)
    assert wired("").discovery is None
    wiring = wired("plugins: [{type: d}]\ndataLayer: {discovery: {pluginRef: d}}", discovery)
    assert wiring.discovery is wiring.installed["d"]


def test_roles_of_each_plugin_are_told() -> None:
    assert wired(listing(Tuned), Tuned).roles["tuned"] == {Role.SCORER}


def test_the_default_producer_of_a_required_key_is_added_and_announced() -> None:
    needy = scorer("needy", always([0, 0]), Consumes(TEXT))
    wiring = wired(listing(needy), needy, writer("text-writer", TEXT))
    assert wiring.added["text-writer"] == "default producer of text"


def test_default_producers_bring_what_they_need_themselves() -> None:
    needy = scorer("needy", always([0, 0]), Consumes(TEXT))
    first = writer("note-writer", NOTE)
    wiring = wired(listing(needy), needy, writer("text-writer", TEXT, Consumes(NOTE)), first)
    assert wiring.added["note-writer"] == "default producer of note"
    assert wiring.plan.order.index("note-writer") < wiring.plan.order.index("text-writer")


def test_no_default_producer_is_added_where_one_is_configured() -> None:
    needy = scorer("needy", always([0, 0]), Consumes(TEXT))
    own = producer("own", always(None), keys(TEXT))
    wiring = wired(listing(needy, own), needy, own, writer("text-writer", TEXT))
    assert "text-writer" not in wiring.installed


def test_optional_keys_bring_no_producer() -> None:
    content = scorer("content", always([0, 0]), Consumes(optional=[TEXT]))
    wiring = wired(listing(content), content, writer("text-writer", TEXT))
    assert "text-writer" not in wiring.installed
    assert wiring.plan.unmet == {"content": ("text",)}
