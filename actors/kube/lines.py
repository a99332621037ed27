"""Lines out of bytes that come in any pieces."""

from __future__ import annotations

from typing import final

from attrs import define, field


class LineTooLong(Exception):
    """More bytes than a line may have, and no end in sight."""


@final
@define(eq=False)
class Lines:
    """Cuts a stream into its lines; what is not yet a line is kept."""

    limit: int
    """Bytes that a line may have."""
    _pieces: list[bytes] = field(factory=list[bytes], init=False, repr=False)
    _size: int = field(default=0, init=False)

    @property
    def rest(self) -> int:
        """Bytes of the line that has not ended."""
        return self._size

    def feed(self, data: bytes) -> list[bytes]:
        """Take *data* in; the lines that it completes, without their ends and without empty ones.

        Raises:
            LineTooLong: the line that goes on is longer than the limit.
        """
        head, newline, data = data.partition(b"\n")
        self._pieces.append(head)
        self._size += len(head)
        if not newline:
            if self._size > self.limit:
                raise LineTooLong
            return []
        *lines, rest = (b"".join(self._pieces), *data.split(b"\n"))
        self._pieces, self._size = [rest], len(rest)
        return [line for line in lines if line]
