"""A plugin in use."""

from __future__ import annotations

from pointsman.kernel.installed import where_raised
from pointsman.kernel.plugin import Role
from pointsman.kernel.structure import FieldError
from pointsman.kernel.testing import decide, endpoints, pool, wired

from .call_notes import noted
from .zoo import giving, listing


def test_a_plugin_is_named_with_its_type_where_they_differ() -> None:
    wiring = wired("plugins: [{type: x}, {type: x, name: y}]", giving("x", 0))
    assert [str(wiring.installed[name]) for name in "xy"] == ["x", "y (x)"]


def test_failures_are_told_to_who_counts_them() -> None:
    x = giving("x", 0)
    wiring, notes = noted(listing(x), x)
    wiring.installed["x"].failed(Role.SCORER, ValueError())
    assert notes["x"].failures == ["Scorer"]


def test_the_place_of_an_error_is_told_and_not_its_text() -> None:
    try:
        raise ValueError("secret")
    except ValueError as exc:
        told = where_raised(exc)
    assert told.startswith("ValueError at test_installed.py:")
    assert where_raised(FieldError("field", "secret")) == "FieldError"


def test_the_same_plugins_decide_again_and_again() -> None:
    x = giving("x", 0, 1)
    wiring = wired(listing(x), x)
    names = [decide(wiring, pool(endpoints("a", "b"))).decision.result.target.name for _ in "abc"]
    assert names == ["b"] * 3
