"""A request's body while its end is awaited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from attrs import define, field

from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import Buffer
from pointsman.kernel.rewriting import NamePlace, model_place, with_model


@final
@define(eq=False)
class HeldBody:
    """Pieces of any size, kept in little more than the bytes that they have.

    One piece is kept as it is. More of them grow in one place, which for large bodies moves
    pages and not bytes: putting all together at the end would take as long as many picks.
    """

    _whole: Buffer = field(default=b"", init=False)
    _growing: bytearray | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._whole if self._growing is None else self._growing)

    def add(self, data: Buffer, limit: int) -> None:
        """Raises Refusal (413) for what comes to more than *limit* bytes."""
        if len(self) + len(data) > limit:
            raise Refusal(413, f"the request body is larger than {limit} bytes")
        if self._growing is not None:
            self._growing += data
        elif not self._whole:
            self._whole = data
        elif data:
            self._growing = bytearray(self._whole)
            self._growing += data
            self._whole = b""

    def bytes(self) -> bytes:
        return bytes(self._whole if self._growing is None else self._growing)

    def view(self) -> Buffer:
        """All of it, without a copy. Nothing can be added while the view is in use."""
        return self._whole if self._growing is None else memoryview(self._growing).toreadonly()

    def clear(self) -> None:
        self._whole, self._growing = b"", None


def renamed(body: Buffer, place: NamePlace | None, model: str) -> Sequence[Buffer]:
    """*body* with *model* at the place of its name, which is looked for if it is not known.

    A view is not copied; what comes of it is in pieces.
    """
    if isinstance(body, bytes):
        return (with_model(body, model, place),)
    return (place or model_place(bytes(body))).filled(body, model)
