"""The two ways in which tasks hand values to each other.

A channel is a bounded queue: every value counts, and a full one makes its senders wait.
A `Latest` is a cell: only the newest value counts, and writing never waits.
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Self, TypeVar, final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from attrs import define, field

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class _Closing:
    """Something that its ``with`` block closes."""

    __slots__ = ()

    def close(self) -> None:
        raise AssertionError("each end says how it closes")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


@final
@define(eq=False)
class Sender(_Closing, Generic[T_contra]):
    """The writing end of a channel. Each producer holds its own, made by `clone`."""

    _stream: MemoryObjectSendStream[T_contra]

    async def send(self, item: T_contra) -> None:
        """Put *item* in the channel, waiting while it is full."""
        await self._stream.send(item)

    def offer(self, item: T_contra) -> bool:
        """Put *item* in the channel if there is room now; tell whether there was."""
        try:
            self._stream.send_nowait(item)
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            return False
        return True

    def clone(self) -> Sender[T_contra]:
        return Sender(self._stream.clone())

    def close(self) -> None:
        self._stream.close()


@final
@define(eq=False)
class Receiver(_Closing, Generic[T_co]):
    """The reading end of a channel; iterating it ends when it or every sender is closed."""

    _stream: MemoryObjectReceiveStream[T_co]

    async def receive(self) -> T_co:
        return await self._stream.receive()

    def poll(self) -> T_co | None:
        """Take what is there now, without waiting; None when there is nothing."""
        try:
            return self._stream.receive_nowait()
        except (anyio.WouldBlock, anyio.EndOfStream):
            return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co:
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None

    def __len__(self) -> int:
        return self._stream.statistics().current_buffer_used

    def close(self) -> None:
        self._stream.close()


@final
@define(eq=False)
class Channel(_Closing, Generic[T]):
    """Both ends of one bounded queue: ``Channel[PodDeleted].open(capacity=64)``."""

    sender: Sender[T]
    receiver: Receiver[T]

    @classmethod
    def open(cls, *, capacity: int) -> Self:
        """Open a queue of at most *capacity* items.

        There is no default: the number is a decision about back-pressure, and it is
        taken where the channel is opened.
        """
        send, receive = anyio.create_memory_object_stream[T](capacity)
        return cls(Sender(send), Receiver(receive))

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@final
@define(eq=False)
class Latest(Generic[T]):
    """A cell whose readers see the newest value and may wait for a newer one."""

    value: T
    version: int = field(default=0, init=False)
    _changed: anyio.Event | None = field(default=None, init=False)

    def set(self, value: T) -> None:
        """Replace the value and wake everyone who waits for a newer one."""
        self.value = value
        self.version += 1
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set()

    async def newer(self, than: int) -> tuple[int, T]:
        """Wait until the version is above *than*; return it with its value."""
        while self.version <= than:
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()
        return self.version, self.value

    async def until(self, wanted: T) -> None:
        """Wait until the value equals *wanted*."""
        while self.value != wanted:
            await self.newer(self.version)
