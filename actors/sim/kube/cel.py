"""The part of CEL, the expression language of validation rules, that definitions here use.

An expression is compiled into a function of its variables. Literals, operators, selection,
indexing, ``has``, ``size``, the string tests and the macros ``all``, ``exists``, ``exists_one``,
``filter`` and ``map`` are known; there are no types beyond those of JSON.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import msgspec
from attrs import define, field

from .objects import is_list, is_mapping

Scope = Mapping[str, Any]
Expression = Callable[[Scope], Any]


class CelError(ValueError):
    """An expression that is not understood, or that cannot be evaluated."""


_TOKEN: Final = re.compile(
    r"""\s*(?:
    (?P<number>\d+\.\d+|\d+)
  | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%<>!?:.,()\[\]])
    )""",
    re.VERBOSE,
)
_BINARY: Final[Mapping[str, int]] = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
_WORDS: Final = {"true": True, "false": False, "null": None}


def compile_cel(text: str) -> Expression:
    """The function that evaluates *text*; it raises CelError when it cannot.

    Raises:
        CelError: the text uses what is not known here.
    """
    parser = _Parser(text)
    expression = parser.ternary()
    parser.expect("")
    return expression


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    text, position = text.rstrip(), 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise CelError(f"{text[position:].strip()!r} is not understood")
        tokens.append(found[0].strip())
        position = found.end()
    return [*tokens, ""]


@final
@define(eq=False)
class _Parser:
    text: str
    _tokens: list[str] = field(init=False)
    _position: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._tokens = _tokens(self.text)

    @property
    def next(self) -> str:
        return self._tokens[self._position]

    def advance(self) -> str:
        token = self.next
        self._position += 1
        return token

    def accept(self, token: str) -> bool:
        found = self.next == token
        self._position += found
        return found

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise CelError(f"expected {token or 'the end'!r}, found {self.next!r}")

    def ternary(self) -> Expression:
        test = self.binary(1)
        if not self.accept("?"):
            return test
        yes = self.ternary()
        self.expect(":")
        no = self.ternary()
        return lambda scope: yes(scope) if _truth(test(scope)) else no(scope)

    def binary(self, level: int) -> Expression:
        left = self.unary()
        while _BINARY.get(self.next, 0) >= level:
            sign = self.advance()
            left = _operation(sign, left, self.binary(_BINARY[sign] + 1))
        return left

    def unary(self) -> Expression:
        if self.accept("!"):
            operand = self.unary()
            return lambda scope: not _truth(operand(scope))
        if self.accept("-"):
            operand = self.unary()
            return _operation("-", _constant(0), operand)
        return self.postfix()

    def postfix(self) -> Expression:
        value = self.primary()
        while True:
            if self.accept("."):
                name = self.name()
                value = self.method(value, name) if self.accept("(") else _selected(value, name)
            elif self.accept("["):
                value = _indexed(value, self.ternary())
                self.expect("]")
            else:
                return value

    def primary(self) -> Expression:
        token = self.advance()
        if token == "(":
            inner = self.ternary()
            self.expect(")")
            return inner
        if token == "[":
            items = self.arguments("]")
            return lambda scope: [item(scope) for item in items]
        if token[:1].isdigit():
            return _constant(float(token) if "." in token else int(token))
        if token[:1] in ("'", '"') and token:
            return _constant(_unquoted(token))
        if token in _WORDS:
            return _constant(_WORDS[token])
        return self.named(token)

    def named(self, token: str) -> Expression:
        if not token.isidentifier():
            raise CelError(f"found {token or 'the end'!r}")
        if not self.accept("("):
            return lambda scope: _variable(scope, token)
        if token == "has":
            return self.has()
        (argument,) = self.exactly(self.arguments(")"), 1, token)
        if token != "size":
            raise CelError(f"there is no function {token!r}")
        return lambda scope: _size(argument(scope))

    def has(self) -> Expression:
        path = self.primary()
        names: list[str] = []
        while self.accept("."):
            names.append(self.name())
        self.expect(")")
        if not names:
            raise CelError("has() takes a field")
        for name in names[:-1]:
            path = _selected(path, name)
        holder, last = path, names[-1]
        return lambda scope: last in _mapping(holder(scope))

    def method(self, value: Expression, name: str) -> Expression:
        if name in _MACROS:
            variable = self.name()
            self.expect(",")
            body = self.ternary()
            self.expect(")")
            macro = _MACROS[name]
            return lambda scope: macro(
                _elements(value(scope)), lambda item: body({**scope, variable: item})
            )
        arguments = self.arguments(")")
        if name == "size":
            self.exactly(arguments, 0, name)
            return lambda scope: _size(value(scope))
        if name not in _TESTS:
            raise CelError(f"there is no function {name!r}")
        (argument,) = self.exactly(arguments, 1, name)
        test = _TESTS[name]
        return lambda scope: test(_string(value(scope)), _string(argument(scope)))

    def arguments(self, end: str) -> list[Expression]:
        found: list[Expression] = []
        while not self.accept(end):
            found.append(self.ternary())
            if self.next != end:
                self.expect(",")
        return found

    def exactly(self, found: list[Expression], count: int, name: str) -> list[Expression]:
        if len(found) != count:
            raise CelError(f"{name}() takes {count} arguments, not {len(found)}")
        return found

    def name(self) -> str:
        token = self.advance()
        if not token.isidentifier():
            raise CelError(f"expected a name, found {token!r}")
        return token


def _constant(value: object) -> Expression:
    return lambda scope: value


def _unquoted(token: str) -> str:
    inner = re.sub(r"\\'", "'", token[1:-1])
    if token[0] == "'":
        inner = re.sub(r'(?<!\\)"', r"\"", inner)
    try:
        return msgspec.json.decode(f'"{inner}"', type=str)
    except msgspec.DecodeError:
        raise CelError(f"{token} is no string") from None


def _variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise CelError(f"there is no variable {name!r}")
    return scope[name]


def _selected(value: Expression, name: str) -> Expression:
    def select(scope: Scope) -> Any:
        holder = _mapping(value(scope))
        if name not in holder:
            raise CelError(f"no such key: {name}")
        return holder[name]

    return select


def _indexed(value: Expression, index: Expression) -> Expression:
    def look_up(scope: Scope) -> Any:
        try:
            return value(scope)[index(scope)]
        except (LookupError, TypeError):
            raise CelError(f"no such key: {index(scope)}") from None

    return look_up


_PLAIN: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "==": lambda a, b: type(a) is type(b) and a == b if isinstance(a, bool) else a == b,
    "!=": lambda a, b: a != b,
    "in": lambda a, b: a in _elements(b),
    "/": lambda a, b: int(a / b) if isinstance(a, int) and isinstance(b, int) else a / b,
    "%": lambda a, b: a - b * int(a / b),
}


def _operation(sign: str, left: Expression, right: Expression) -> Expression:
    if sign == "&&":
        return lambda scope: _truth(left(scope)) and _truth(right(scope))
    if sign == "||":
        return lambda scope: _truth(left(scope)) or _truth(right(scope))
    operate = _PLAIN[sign]

    def evaluate(scope: Scope) -> Any:
        try:
            return operate(left(scope), right(scope))
        except (TypeError, ArithmeticError) as error:
            raise CelError(str(error)) from None

    return evaluate


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r} is neither true nor false")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not is_mapping(value):
        raise CelError(f"{value!r} has no fields")
    return value


def _elements(value: Any) -> list[Any]:
    if is_list(value):
        return value
    return list(_mapping(value))


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise CelError(f"{value!r} is no string")
    return value


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(_elements(value))


def _matches(text: str, pattern: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except re.error as error:
        raise CelError(f"{pattern!r}: {error}") from None


_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
    "matches": _matches,
}
_MACROS: Final[Mapping[str, Callable[[list[Any], Callable[[Any], Any]], Any]]] = {
    "all": lambda items, body: all(_truth(body(item)) for item in items),
    "exists": lambda items, body: any(_truth(body(item)) for item in items),
    "exists_one": lambda items, body: sum(_truth(body(item)) for item in items) == 1,
    "filter": lambda items, body: [item for item in items if _truth(body(item))],
    "map": lambda items, body: [body(item) for item in items],
}
