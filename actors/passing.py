"""Pieces of a response that go on as they are."""

from __future__ import annotations

from typing import final

from attrs import define

from .observing import Observer
from .usage import UsageReader


@final
@define(eq=False)
class Passing:
    """Takes note of the pieces: that is all that is left to do about them."""

    observer: Observer
    usage: UsageReader | None

    def note(self, data: bytes) -> None:
        """A piece passes by, which is not the end."""
        self.observer.chunk_came(data)
        if self.usage is not None:
            self.usage.feed(data)
        self.observer.chunk_passed()
