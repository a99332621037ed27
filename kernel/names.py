"""Names that clients choose, kept from growing without end."""

from __future__ import annotations

from typing import Final, final

from attrs import define, field

MOST_NAMES: Final = 1000
LONGEST_NAME: Final = 200  # characters


@final
@define(eq=False)
class Names:
    """A label's values: the first so many; all later ones, and very long ones, are ``other``."""

    most: int = MOST_NAMES
    _seen: set[str] = field(factory=set[str], init=False)

    def label(self, name: str) -> str:
        if name in self._seen or not name:
            return name
        if len(self._seen) >= self.most or len(name) > LONGEST_NAME:
            return "other"
        self._seen.add(name)
        return name
