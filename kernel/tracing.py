"""What the kernel tells of the steps of a request, to whoever follows that request.

Few requests are followed. Those that are carry a `Trace`; all others carry None, and cost the
look that finds it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value]


class Step(Protocol):
    """A step that is being taken."""

    def note(self, attributes: Attributes) -> None:
        """Add what the step came to."""
        ...


class Trace(Protocol):
    """Follows one request; no two of its steps overlap without one being inside the other."""

    def step(self, name: str, attributes: Attributes) -> AbstractContextManager[Step]:
        """A step for the length of the block, within the one that is being taken.

        An exception that leaves the block makes it a failure.
        """
        ...

    def headers(self) -> Mapping[str, str]:
        """What tells the model server to go on with the trace."""
        ...
