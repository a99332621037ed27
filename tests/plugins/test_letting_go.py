"""A configuration that was replaced goes with its last request, indexes and all.

Only a full collection would find what holds itself in a circle, and those are rare.
"""

from __future__ import annotations

from weakref import ref

import pytest

from pointsman import plugins
from pointsman.actors.memory import forget_origin
from pointsman.kernel.errors import ConfigError, Refusal
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired
from pointsman.kernel.wiring import Wiring
from pointsman.plugins.keys import REQUEST_PROMPT, RequestPrompt

pytestmark = pytest.mark.long

TYPES = sorted(plugin.type_name for plugin in plugins.BUILT_IN)
BESIDE = "approx-prefix-cache-producer"  # whose index is what weighs


def with_one(type_name: str) -> Wiring | None:
    """A plugin beside the index; None for one that needs parameters or others."""
    more = "" if type_name == BESIDE else f", {{type: {BESIDE}}}"
    try:
        return wired(f"plugins: [{{type: {type_name}}}{more}]", *plugins.BUILT_IN)
    except ConfigError:
        return None


def test_most_plugins_can_be_tried_by_themselves() -> None:
    assert sum(with_one(type_name) is not None for type_name in TYPES) > 0.8 * len(TYPES)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("type_name", TYPES)
def test_nothing_of_a_configuration_holds_itself(type_name: str) -> None:
    wiring = with_one(type_name)
    if wiring is None:
        pytest.skip("needs parameters")
    request = make_request(model="m")
    prompt = RequestPrompt(((b"x",),))
    try:
        decide(wiring, pool(endpoints("a", "b")), request, {REQUEST_PROMPT: prompt})
    except Refusal as refusal:  # of a filter that wants labels
        forget_origin(refusal)
    wiring.routes.find("/v1/completions")
    own: list[object] = [wiring, wiring.routes, wiring.director, wiring.config]
    installed = wiring.installed.values()
    parts = [ref(each) for each in (*own, *installed, *(one.plugin for one in installed))]
    request.end()
    del wiring, request, own, installed
    assert [part() for part in parts if part() is not None] == []
