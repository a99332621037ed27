"""Every mistake of a configuration, with its place and what was meant."""

from __future__ import annotations

from typing import ClassVar, Final

import pytest
from attrs import evolve, frozen

from pointsman.kernel.config import read_config
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.keys import Consumes, DataView, keys
from pointsman.kernel.model import REQUEST_PATH
from pointsman.kernel.registry import Stability
from pointsman.kernel.testing import surroundings
from pointsman.kernel.wiring import wire

from . import zoo
from .zoo import (
    NOTE,
    TEXT,
    Tuned,
    always,
    giving,
    keeper,
    reader,
    refused,
    scorer,
    writer,
)

X, F = giving("x", 0, 1), keeper("f", always([True, True]))
P = zoo.picker("p", lambda given, scores: given)
H = zoo.handler("h", lambda available, results: (), always("x"))
ALPHA = giving("alpha", 0, 0)
ALPHA.stability = Stability.ALPHA
KNOWN: Final = (X, F, P, H, Tuned, zoo.admitter("a", always(None)), writer("w", TEXT))
NEEDY = scorer("needy", always([0, 0]), Consumes(NOTE, REQUEST_PATH))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "plugins:\n- type: tunde",
            "line 2: plugins[0].type: unknown plugin type 'tunde' (did you mean 'tuned'?)",
        ),
        (
            "plugins:\n- type: x\n- type: f\n  name: x",
            "line 4: plugins[1].name: the name 'x' is taken already",
        ),
        (
            "plugins:\n- type: tuned\n  parameters:\n    treshold: 1",
            "line 4: plugins[0].parameters.treshold: unknown field (did you mean 'threshold'?)",
        ),
        (
            "plugins:\n- type: tuned\n  parameters: {threshold: 0}",
            "line 3: plugins[0].parameters.threshold: must be above 0, not 0",
        ),
        (
            "plugins:\n- type: tuned\n  parameters: {threshold: 1, header: x}",
            "line 3: plugins[0].parameters: header and a threshold of 1 do not go together",
        ),
        (
            "plugins:\n- type: tuned\n  parameters: {header: impossible}",
            "line 3: plugins[0].parameters: impossible is impossible",
        ),
        (
            "plugins:\n- type: x\n  parameters: {a: 1}",
            "line 3: plugins[0].parameters.a: unknown field",
        ),
        (
            "schedulingProfiles:\n- name: a\n  plugins:\n  - pluginRef: tuned",
            "line 4: schedulingProfiles[0].plugins[0].pluginRef: no plugin is named 'tuned'"
            " (list it under `plugins`)",
        ),
        (
            "plugins: [{type: tuned}]\n"
            "schedulingProfiles: [{name: a, plugins: [{pluginRef: tunde}]}]",
            "line 2: schedulingProfiles[0].plugins[0].pluginRef: no plugin is named 'tunde'"
            " (did you mean 'tuned'?)",
        ),
        (
            "plugins: [{type: a}]\nschedulingProfiles: [{name: b, plugins: [{pluginRef: a}]}]",
            "line 2: schedulingProfiles[0].plugins[0].pluginRef:"
            " 'a' is neither filter nor scorer nor picker",
        ),
        (
            "plugins: [{type: h}]\nschedulingProfiles:\n- name: a\n- name: a",
            "line 4: schedulingProfiles[1].name: the name 'a' is taken already",
        ),
        (
            "schedulingProfiles: [{name: a}, {name: b}]",
            "line 1: schedulingProfiles: several profiles need a profile handler",
        ),
        (
            "plugins: [{type: h}, {type: h, name: g}]",
            "line 1: plugins: more than one profile handler: 'h' and 'g'",
        ),
        (
            "plugins: [{type: p}, {type: p, name: q}]\n"
            "schedulingProfiles: [{name: a, plugins: [{pluginRef: p}, {pluginRef: q}]}]",
            "line 2: schedulingProfiles[0]: profile 'a' has more than one picker: 'p' and 'q'",
        ),
        (
            "plugins: [{type: x}]\nrequestHandler: {parsers: [{pluginRef: x}]}",
            "line 2: requestHandler.parsers[0].pluginRef: 'x' is no parser",
        ),
        (
            "dataLayer: {discovery: {pluginRef: x}}",
            "line 1: dataLayer.discovery.pluginRef: no plugin is named 'x'"
            " (list it under `plugins`)",
        ),
        (
            "plugins: [{type: x}]\n"
            "dataLayer: {sources: [{pluginRef: x, extractors: [{pluginRef: x}]}]}",
            "line 2: dataLayer.sources[0].pluginRef: 'x' is no data source",
        ),
        (
            "plugins: [{type: x}]\n"
            "dataLayer: {sources: [{pluginRef: x, extractors: [{pluginRef: x}]}]}",
            "line 2: dataLayer.sources[0].extractors[0].pluginRef: 'x' is no extractor",
        ),
        (
            "plugins: [{type: needy}]",
            "line 1: plugins[0]: 'needy' requires 'note', which no enabled plugin produces",
        ),
        (
            "plugins:\n- type: needy\n  consumes: [request-path]",
            "line 3: plugins[0].consumes: 'needy' cannot do without 'note'",
        ),
        (
            "plugins:\n- type: needy\n  consumes: {noet: x}",
            "line 3: plugins[0].consumes: plugin type 'needy' does not know the key 'noet'"
            " (did you mean 'note'?)",
        ),
        (
            "plugins:\n- type: w\n  produces: {zzz: x}",
            "line 3: plugins[0].produces: plugin type 'w' does not know the key 'zzz'"
            " (it produces text)",
        ),
        (
            "plugins:\n- type: x\n  consumes: [zzz]",
            "line 3: plugins[0].consumes: plugin type 'x' does not know the key 'zzz'"
            " (it consumes nothing)",
        ),
        (
            "plugins:\n- type: alpha",
            "line 2: plugins[0].type: plugin 'alpha' is of the experimental type 'alpha'"
            " (start with --allow-experimental-plugins)",
        ),
    ],
)
def test_a_mistake_names_line_path_and_what_was_meant(text: str, told: str) -> None:
    around = evolve(surroundings(*KNOWN, NEEDY, ALPHA), allow_experimental=False)
    with pytest.raises(ConfigError) as raised:
        wire(read_config(text, "test"), around)
    assert told in [str(mistake) for mistake in raised.value.mistakes]


def test_two_producers_of_one_key_are_both_named() -> None:
    (mistake,) = refused("plugins:\n- type: w\n- type: v", writer("w", TEXT), writer("v", TEXT))
    assert mistake.startswith("line 3: plugins[1]: ")
    assert "'text' produced by 'w' and by 'v'" in mistake


def test_a_handler_may_have_enough_with_fewer_profiles() -> None:
    single = zoo.handler("single", always(()), always("a"))
    single.most_profiles = 1
    profiles = "schedulingProfiles: [{name: a}, {name: b}]"
    (mistake,) = refused(f"plugins: [{{type: single}}]\n{profiles}", single)
    assert mistake == "line 2: schedulingProfiles: 'single' handles 1 at most, not 2"


def test_an_older_binding_to_nobody_is_a_mistake() -> None:
    note, _ = reader(producer_names={"text": "oen"})
    one = writer("one", TEXT)
    (mistake,) = refused("plugins:\n- type: one\n- type: reader", one, note)
    assert mistake == (
        "line 3: plugins[1].parameters: no plugin is named 'oen' (did you mean 'one'?)"
    )


@frozen
class Needed:
    size: int


class Demanding:
    """A producer that cannot be added by default: somebody has to say how large it is."""

    type_name: ClassVar = "demanding"
    produces: ClassVar = keys(NOTE)
    default_for: ClassVar = keys(NOTE)

    def __init__(self, parameters: Needed) -> None: ...

    def produce(self, data: DataView, endpoints: object) -> None: ...


def test_a_default_that_cannot_be_made_is_a_mistake() -> None:
    found = refused("plugins: [{type: needy}]", NEEDY, Demanding)
    assert found[-1].endswith("'needy' requires 'note', which no enabled plugin produces")
    assert any("size: is required" in mistake for mistake in found)


def test_a_plugin_whose_entry_is_wrong_is_not_missed_elsewhere() -> None:
    text = (
        "plugins:\n- type: tuned\n  parameters: {threshold: -1}\n"
        "schedulingProfiles: [{name: a, plugins: [{pluginRef: tuned}]}]"
    )
    (mistake,) = refused(text, Tuned)
    assert "threshold: must be above 0" in mistake


def test_all_mistakes_come_at_once_in_the_order_of_their_lines() -> None:
    text = """\
kind: Pod
plugins:
- type: tunde
- type: tuned
  parameters: {threshold: -1, treshold: 2}
- type: needy
schedulingProfiles:
- name: a
  plugins:
  - pluginRef: nobody
    wieght: 2
"""
    found = refused(text, *KNOWN, NEEDY)
    assert [mistake.split(":")[0] for mistake in found] == [
        "line 1",
        "line 3",
        "line 5",
        "line 5",
        "line 6",
        "line 10",
        "line 11",
    ]
