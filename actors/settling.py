"""Notices changes that have come to an end."""

from __future__ import annotations

from typing import Generic, TypeVar, final

from attrs import define, field

T = TypeVar("T")


@final
@define(eq=False)
class Settling(Generic[T]):
    """Tells when a value that is looked at from time to time is another one, and stays it.

    kubelet swaps files by symlink, editors replace or truncate them: what counts is the content,
    once it has been the same for two looks. None means that it could not be read.
    """

    used: T | None = None
    """What was taken in last, whether or not it was any good."""
    _seen: T | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self.used

    def look(self, value: T | None) -> T | None:
        """*value*, if it is new and has settled: it counts as taken in then. Otherwise None."""
        settled = value == self._seen
        self._seen = value
        if not settled or value is None or value == self.used:
            return None
        self.used = value
        return value
