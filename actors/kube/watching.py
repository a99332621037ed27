"""What a watch tells: lines in, changes out, errors as exceptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Final, Generic, final

import anyio
import httpx
import msgspec
from attrs import define, field, frozen

from .errors import Interrupted, Unavailable, error_for
from .kinds import Named, Notice, O, RawNotice, Reference, Selection, Status
from .lines import Lines, LineTooLong

LINE_LIMIT: Final = 16 * 1024 * 1024  # bytes; etcd takes objects of at most 1.5 MB
CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


@final
@frozen
class Bookmark:
    """Nothing changed up to this version."""

    version: str


@final
@frozen
class Broken:
    """A change of an object that does not fit its schema."""

    type: str
    metadata: Reference
    problem: str


Seen = Notice[O] | Bookmark | Broken


@final
@define(eq=False)
class Watch(Generic[O]):
    """A watch that is open."""

    selection: Selection[O]
    seconds: float
    """After this time the server ends it."""
    chunks: AsyncIterator[bytes]
    _lines: Lines = field(factory=lambda: Lines(LINE_LIMIT), init=False)

    async def batch(self) -> Iterator[Seen[O]] | None:
        """Wait for changes; None when the watch has ended without an error.

        What is wrong with a line is raised when the iterator comes to it.

        Raises:
            Interrupted: the connection broke, or fell silent, or ended in the middle of a line.
            ApiError: the server says why it ends the watch.
        """
        try:
            async for chunk in self.chunks:
                if lines := self._lines.feed(chunk):
                    return self._decoded(lines)
        except (httpx.HTTPError, OSError) as exc:
            raise self._broke_off(f"{type(exc).__name__}: {exc}") from exc
        except LineTooLong:
            raise self._broke_off(f"a line of more than {LINE_LIMIT} bytes") from None
        if self._lines.rest:
            raise self._broke_off("it ended in the middle of a line")
        return None

    def _broke_off(self, reason: str) -> Interrupted:
        return Interrupted("watch", str(self.selection), reason)

    def _decoded(self, lines: list[bytes]) -> Iterator[Seen[O]]:
        for line in lines:
            if (seen := decode(self.selection, line)) is not None:
                yield seen

    async def abandon(self) -> None:
        """Leave the stream before its end.

        An async generator that waits at its yield is closed at some later time by somebody else;
        one whose next read is cancelled closes its connection now.
        """
        with anyio.CancelScope() as scope, suppress(httpx.HTTPError, OSError):
            scope.cancel()
            async for _ in self.chunks:
                pass


def decode(selection: Selection[O], line: bytes) -> Seen[O] | None:
    """What *line* says; None for a type that nobody knows.

    Raises:
        ApiError: the server reports an error (410 as `Expired`), or the line is no JSON.
    """
    try:
        notice = selection.kind.notice.decode(line)
    except msgspec.DecodeError as exc:
        return _odd(selection, line, str(exc).replace("$.object", "$"))  # as in a list
    if notice.type in CHANGES and notice.object.metadata.name:
        return notice
    return _odd(selection, line, "it has no name")


def _odd(selection: Selection[O], line: bytes, problem: str) -> Bookmark | Broken | None:
    """The lines that are no change of a well-formed object."""
    try:
        raw = msgspec.json.decode(line, type=RawNotice)
        if raw.type == "ERROR":
            raise _error(selection, msgspec.json.decode(raw.object, type=Status))
        metadata = reference_of(raw.object)
    except msgspec.DecodeError as exc:
        raise Unavailable("watch", str(selection), f"garbage: {exc}") from exc
    if raw.type == "BOOKMARK":
        return Bookmark(metadata.resource_version)
    return Broken(raw.type, metadata, problem) if raw.type in CHANGES else None


def _error(selection: Selection[O], status: Status) -> Exception:
    wait = status.details.retry_after_seconds if status.details is not None else 0.0
    reason = status.message or status.reason or f"code {status.code}"
    return error_for(status.code)("watch", str(selection), reason, retry_after=wait)


def reference_of(raw: msgspec.Raw) -> Reference:
    """What an object that cannot be read is called, if that much can be read."""
    try:
        return msgspec.json.decode(raw, type=Named).metadata
    except msgspec.ValidationError:
        return Reference()
