"""What a session tells of its course to whoever keeps figures of it.

Everything that is told passes by anyway: nothing is asked of the proxy for it.
"""

from __future__ import annotations

from typing import Protocol, final

from attrs import frozen

from pointsman.kernel.director import Outcome
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Headers, Request, Usage

from .conversation import Modes


@final
@frozen
class Ending:
    """How a conversation ended."""

    cause: EndCause
    refusal: Refusal | None = None
    status: int | None = None
    """The upstream's, where it was seen."""
    usage: Usage | None = None
    whole: bool = False
    """The end of the conversation is the end of the response."""


class Observer(Protocol):
    """Follows one conversation. It must not raise."""

    @property
    def tokens(self) -> bool:
        """Whether the counts in a response that passes by are of interest."""
        ...

    def began(self, request: Request, modes: Modes) -> None:
        """The headers of the request are here."""
        ...

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        """The decision was made, and took so many seconds."""
        ...

    def response_began(self, headers: Headers) -> None: ...

    def response_opaque(self, encoding: str) -> None:
        """The usage in it is of interest and cannot be read: it is encoded like that."""
        ...

    def chunk_came(self, data: bytes) -> None:
        """A piece of the response is here."""
        ...

    def chunk_passed(self) -> None:
        """The piece was dealt with; plugins see it after it has left."""
        ...

    def ended(self, ending: Ending) -> None:
        """The conversation is over; this comes once."""
        ...
