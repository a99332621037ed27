"""A plugin in use."""

from __future__ import annotations

import pytest

from pointsman.kernel.errors import ViewClosed
from pointsman.kernel.installed import where_raised
from pointsman.kernel.keys import Frame
from pointsman.kernel.plugin import Role
from pointsman.kernel.structure import FieldError
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired

from .zoo import TEXT, giving, listed, listing, writer


def test_a_plugin_is_named_with_its_type_where_they_differ() -> None:
    wiring = wired("plugins: [{type: x}, {type: x, name: y}]", giving("x", 0))
    assert [str(wiring.installed[name]) for name in "xy"] == ["x", "y (x)"]


def test_a_view_can_be_lent_for_a_block() -> None:
    installed = listed(writer("w", TEXT)).installed["w"]
    frame = Frame(make_request(), [None] * 50)
    with installed.lent(frame) as view:
        view[TEXT] = "x"
    assert "x" in frame.values
    with pytest.raises(ViewClosed):
        view[TEXT] = "late"


def test_failures_are_told_to_who_counts_them() -> None:
    installed = listed(giving("x", 0)).installed["x"]
    counted: list[tuple[str, Role]] = []
    installed.count_failure = lambda one, role: counted.append((one.name, role))
    installed.failed(Role.SCORER, ValueError())
    assert counted == [("x", Role.SCORER)]


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
