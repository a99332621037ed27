"""The expressions of validation rules."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.kube.cel import CelError, compile_cel

SELF: Any = {
    "kind": "Service",
    "port": {"number": 9002},
    "ports": [{"number": 1}, {"number": 2}, {"number": 2}],
    "name": "it's",
    "labels": {"a": "b"},
    "empty": [],
    "weight": 1.5,
}


def evaluate(text: str) -> Any:
    return compile_cel(text)({"self": SELF})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7.0 / 2.0", 3.5),
        ("1 < 2 && 2 <= 2", True),
        ("1 > 2 || 2 >= 3", False),
        ("!(1 == 2)", True),
        ("true ? 'a' : 'b'", "a"),
        ("false ? 1 : true ? 2 : 3", 2),
        ("\"a\" + 'b'", "ab"),
        ("1 in [1, 2]", True),
        ("'a' in self.labels", True),
        ("self.kind != 'Service' || has(self.port)", True),
        ("has(self.port.number)", True),
        ("has(self.nothing)", False),
        ("self.name == 'it\\'s'", True),
        ("self.name.size() == 4", True),
        ("size(self.ports) == 3", True),
        ("self.ports[0].number", 1),
        ("self.labels['a']", "b"),
        ("self.ports.all(p, p.number > 0)", True),
        ("self.ports.exists(p, p.number == 2)", True),
        ("self.ports.exists_one(p, p.number == 2)", False),
        ("self.ports.all(p, self.ports.exists_one(q, q.number == p.number))", False),
        ("self.ports.filter(p, p.number == 2).size()", 2),
        ("self.ports.map(p, p.number)", [1, 2, 2]),
        ("self.labels.all(key, key == 'a')", True),
        ("self.empty.all(p, false)", True),
        ("self.kind.startsWith('Ser') && self.kind.endsWith('ice')", True),
        ("self.kind.contains('vi') && self.kind.matches('^S.*e$')", True),
        ("null == null", True),
        ("true == true", True),
        ("self.weight > 1.0", True),
        ("false && self.nothing == 1", False),
        ("true || self.nothing == 1", True),
        ('"q\\"q".size()', 3),
        ("'\"'.size()", 1),
    ],
)
def test_an_expression_has_a_value(text: str, value: Any) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "(1",
        "1 2",
        "has(self)",
        "self.all(p)",
        "self.reduce(p, 1)",
        "format('a')",
        "size()",
        "self.size(1)",
        "@",
        "'open",
        "self.1",
        "[1 2]",
    ],
)
def test_what_is_no_known_expression_is_refused(text: str) -> None:
    with pytest.raises(CelError):
        compile_cel(text)


@pytest.mark.parametrize(
    "text",
    [
        "self.nothing",
        "other",
        "self.kind && true",
        "!self.kind",
        "1 < 'a'",
        "1 / 0",
        "-'a'",
        "self.kind.name",
        "self.ports[9]",
        "self.port[0]",
        "self.weight.size()",
        "self.weight.startsWith('a')",
        "self.kind.matches('(')",
        "1 in 2",
    ],
)
def test_what_cannot_be_evaluated_is_an_error(text: str) -> None:
    with pytest.raises(CelError):
        evaluate(text)


@given(st.text("ab.()[]'\"!&|=<> 1self,?:-+*/%", max_size=30))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    with suppress(CelError):
        compile_cel(text)({"self": SELF})
