"""A YAML or JSON text as plain data that remembers on which line everything stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast, final

import yaml
from attrs import define, field

from .errors import ConfigError, Mistake

Path = tuple[str | int, ...]
_MERGE: Final = "tag:yaml.org,2002:merge"
_LOADER: Final[type[yaml.SafeLoader | yaml.CSafeLoader]] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # a file of a thousand endpoints takes the other one 0.25 s, on the loop that serves requests


def spell(path: Path) -> str:
    """``("plugins", 2, "type")`` as people write it: ``plugins[2].type``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


class Table(dict[str, Any]):
    """A mapping of the document that knows where it stands."""

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path


@final
@define(eq=False)
class Document:
    """The data of a configuration text, and the lines of its parts."""

    source: str
    data: Any = None
    mistakes: list[Mistake] = field(factory=list[Mistake], init=False)
    _lines: dict[Path, int] = field(factory=dict[Path, int], init=False, repr=False)

    def line(self, path: Path) -> int | None:
        """The line of what stands at *path*, or of the nearest thing around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)

    def blame(self, path: Path, message: str, hint: str = "") -> None:
        self.mistakes.append(Mistake(message, spell(path), self.line(path), hint))

    def refuse_if_mistaken(self) -> None:
        """Raises ConfigError with all the mistakes noted so far, in the order of their lines."""
        if self.mistakes:
            ordered = sorted(self.mistakes, key=lambda mistake: mistake.line or 0)
            raise ConfigError(self.source, ordered)


def read_document(text: str, source: str) -> Document:
    """Parse YAML (or JSON, which is YAML).

    A key that stands twice in one mapping is noted as a mistake, not an override.

    Raises:
        ConfigError: the text is neither.
    """
    document = Document(source)
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
    try:
        node = yaml.compose(text, Loader=_LOADER)
        document.data = None if node is None else _Reader(document).read(node, ())
    except (yaml.YAMLError, RecursionError) as exc:
        raise ConfigError(source, [_syntax_mistake(exc, text)]) from None
    return document


def _syntax_mistake(exc: Exception, text: str) -> Mistake:
    mark = getattr(exc, "problem_mark", None)
    problem = getattr(exc, "problem", None) or str(exc).partition("\n")[0]
    line = None if mark is None else min(mark.line, text.count("\n")) + 1
    return Mistake(f"not valid YAML or JSON: {problem}", line=line)


@final
@define(eq=False)
class _Reader:
    """Turns composed nodes into data. Anchors are followed; circular ones are a mistake."""

    document: Document
    _scalars: yaml.constructor.SafeConstructor = field(
        factory=yaml.constructor.SafeConstructor, init=False
    )
    _open: set[int] = field(factory=set[int], init=False)

    def read(self, node: yaml.Node, path: Path) -> Any:
        self.document._lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in self._open:
            self.document.blame(path, "this alias refers to something that contains it")
            return None
        self._open.add(id(node))
        try:
            return self._read(node, path)
        finally:
            self._open.discard(id(node))

    def _read(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._table(node, path)
        if isinstance(node, yaml.SequenceNode):
            children = cast("list[yaml.Node]", node.value)
            return [self.read(child, (*path, index)) for index, child in enumerate(children)]
        return self._scalar(node, path)

    def _table(self, node: yaml.MappingNode, path: Path) -> Table:
        table = Table(path)
        for key_node, value_node in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if key_node.tag == _MERGE:
                self._blame_key(key_node, path, "merge keys (<<) are not supported")
                continue
            key = self._key(key_node, path)
            where = (*path, key)
            if key in table:
                self._blame_key(key_node, where, "this key stands twice in one mapping")
                continue
            self.document._lines[where] = key_node.start_mark.line + 1
            table[key] = self.read(value_node, where)
        return table

    def _blame_key(self, node: yaml.Node, path: Path, message: str) -> None:
        line = node.start_mark.line + 1
        self.document.mistakes.append(Mistake(message, spell(path), line))

    def _key(self, node: yaml.Node, path: Path) -> str:
        return str(self._scalar(node, path)) if isinstance(node, yaml.ScalarNode) else repr(node)

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            return cast("Any", self._scalars).construct_object(node)
        except (yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError) as exc:
            kind = node.tag.rpartition(":")[2]
            problem = getattr(exc, "problem", None) or f"{node.value!r} is no {kind}"
            self.document.blame(path, f"unreadable value: {problem}")
            return None


def plain(value: object) -> object:
    """A copy of document data in ordinary dicts and lists."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list):
        return [plain(item) for item in cast("list[object]", value)]
    return value
