"""Observers in a row: each looks at what it cares for, and passes everything on."""

from __future__ import annotations

from pointsman.kernel.director import Outcome
from pointsman.kernel.model import Headers, Request

from .conversation import Modes
from .observing import Ending, Observer


class Relay:
    """An Observer that stands before another one."""

    def __init__(self, inner: Observer) -> None:
        self._inner = inner

    @property
    def tokens(self) -> bool:
        return self._inner.tokens

    def began(self, request: Request, modes: Modes) -> None:
        self._inner.began(request, modes)

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        self._inner.picked(request, outcome, seconds)

    def response_began(self, headers: Headers) -> None:
        self._inner.response_began(headers)

    def response_opaque(self, encoding: str) -> None:
        self._inner.response_opaque(encoding)

    def chunk_came(self, data: bytes) -> None:
        self._inner.chunk_came(data)

    def chunk_passed(self) -> None:
        self._inner.chunk_passed()

    def ended(self, ending: Ending) -> None:
        self._inner.ended(ending)
