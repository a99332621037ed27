"""What the kernel tells of the calls of plugins, to whoever keeps figures of them.

An extension point is a role by its name, but for a profile handler, which has two.
"""

from __future__ import annotations

from typing import Final, Protocol

from attrs import frozen

PROCESS_RESULTS: Final = "ProcessProfilesResults"
"""Where a profile handler is asked what comes of the profiles; before, it is asked for them."""


class Calls(Protocol):
    """Keeps figures of one plugin. It must not raise."""

    def took(self, point: str, seconds: float) -> None:
        """A call at an extension point is over, whether it failed or not."""
        ...

    def failed(self, point: str) -> None:
        """A call raised."""
        ...

    def violated(self, point: str, key: str, access: str) -> None:
        """A call was refused something that the plugin did not declare.

        Args:
            key: what, by its name.
            access: whether it was to ``read``, to ``write``, or a decider to ``ask``.
        """
        ...


@frozen
class Uncounted:
    """Keeps nothing."""

    def took(self, point: str, seconds: float) -> None: ...
    def failed(self, point: str) -> None: ...
    def violated(self, point: str, key: str, access: str) -> None: ...


def uncounted(type_name: str, name: str) -> Calls:
    """Nobody is interested in the plugin of that type and name."""
    return Uncounted()
