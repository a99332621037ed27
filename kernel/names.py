"""Names that clients choose, kept from growing without end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from attrs import define, field

from .model import Headers

FLOW_HEADERS: Final = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
DEFAULT_FLOW: Final = "default-flow"
MOST_NAMES: Final = 1000
LONGEST_NAME: Final = 200  # characters
OTHER: Final = "other"


def flow_of(headers: Headers) -> str:
    """The flow that a request says to be of, as the client wrote it."""
    return headers.first(*FLOW_HEADERS) or DEFAULT_FLOW


@final
@define(eq=False)
class Names:
    """A label's values: the first so many; all later ones, and very long ones, are ``other``.

    Names that are pinned keep their own label however many there are.
    """

    most: int = MOST_NAMES
    _seen: set[str] = field(factory=set[str], init=False)
    _pinned: set[str] = field(factory=set[str], init=False)

    def pin(self, names: Iterable[str]) -> None:
        """Names that an operator chose: they take no slot, and are never unpinned."""
        self._pinned.update(names)

    def label(self, name: str) -> str:
        if name in self._seen or name in self._pinned or not name:
            return name
        if len(self._seen) >= self.most or len(name) > LONGEST_NAME or not _is_text(name):
            return OTHER
        self._seen.add(name)
        return name


def _is_text(name: str) -> bool:
    """Whether it can be written down: bytes that were no UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
