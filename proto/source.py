"""Python source that is written once per message type, compiled, and kept.

The functions of all message types share one namespace: they call each other by name, whatever the
order in which they were compiled.
"""

from __future__ import annotations

import linecache
import textwrap
from typing import Any

from attrs import define, field

from .schema import MessageType


@define(eq=False)
class Namespace:
    """The globals of generated functions, and the names under which they find classes."""

    kind: str
    """What the functions do: the first part of their names."""
    globals: dict[str, Any]
    recursive: set[MessageType] = field(factory=set[MessageType], init=False)
    """Types that can be inside themselves, whose functions may have to count how deep they are."""
    _names: dict[type, str] = field(factory=dict[type, str], init=False)

    def name(self, value: type) -> str:
        """The name for a class, which is bound to it."""
        if value not in self._names:
            self._names[value] = f"{value.__name__}_{len(self._names)}"
            self.globals[self._names[value]] = value
        return self._names[value]

    def function(self, message_type: MessageType) -> str:
        """The name for the function of a message type."""
        return f"{self.kind}_{self.name(message_type)}"

    def define(self, function: str, source: str) -> Any:
        """Run *source* and return the *function* that it defines; tracebacks show its lines."""
        file = f"<{function}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        exec(compile(source, file, "exec"), self.globals)
        return self.globals[function]


def block(header: str, body: str) -> str:
    """A compound statement."""
    return f"{header}\n{textwrap.indent(body, '    ')}"


def lines(*parts: str) -> str:
    """The statements that are not empty, one below the other."""
    return "\n".join(part for part in parts if part)
