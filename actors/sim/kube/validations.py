"""The ``x-kubernetes-validations`` of a schema."""

from __future__ import annotations

import logging
from typing import Any, final

from attrs import frozen

from .cel import CelError, Expression, compile_cel
from .objects import Object

logger = logging.getLogger(__name__)


@final
@frozen
class Rule:
    """A condition that a value must meet."""

    text: str
    message: str
    holds: Expression

    @property
    def compares(self) -> bool:
        """Whether it is about a change and not about a value."""
        return "oldSelf" in self.text

    def problem(self, value: Any, old: Any) -> str:
        """What is wrong with *value*, which replaces *old*; empty when nothing is."""
        if self.compares and old is None:
            return ""
        try:
            return "" if self.holds({"self": value, "oldSelf": old}) is True else self.message
        except CelError as error:
            return f"rule evaluation error: {error}: {self.text}"


def rules_of(schema: Object) -> tuple[Rule, ...]:
    """The rules of one part of a schema; those in an unknown dialect are left out, with a line."""
    rules: list[Rule] = []
    for entry in schema.get("x-kubernetes-validations", ()):
        text = entry["rule"]
        try:
            holds = compile_cel(text)
        except CelError as error:
            logger.warning("a validation rule is not applied: %s (%s)", text, error)
            continue
        rules.append(Rule(text, entry.get("message") or f"failed rule: {text}", holds))
    return tuple(rules)
