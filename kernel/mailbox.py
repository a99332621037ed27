"""An actor's inbox, the address that others hold of it, and how questions are answered."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, final

import anyio
from attrs import define, field, frozen

from .channel import Channel
from .errors import ActorStopped

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")
P = ParamSpec("P")


@final
@define(eq=False)
class Reply(Generic[R]):
    """Where the answer to one question goes. Answering twice is an error, late is not."""

    _future: anyio.Future[R] = field(factory=lambda: anyio.Future[Any](), repr=False)

    @property
    def abandoned(self) -> bool:
        """Whether the asker gave up, so that working out an answer is pointless."""
        return self._future.status is anyio.Future.Status.CANCELLED

    def send(self, answer: R) -> None:
        if not self.abandoned and self._future.status is not anyio.Future.Status.FAILED:
            self._future.return_value = answer

    def fail(self, error: Exception) -> None:
        if self._future.status is anyio.Future.Status.PENDING:
            self._future.exception = error

    async def wait(self) -> R:
        """The answer. A cancelled wait abandons the question."""
        try:
            await self._future.wait()
        except BaseException:
            self._future.cancel()
            raise
        if error := self._future.exception:
            raise error
        return self._future.return_value


@frozen(eq=False)
class _Envelope(Generic[M]):
    message: M
    reply: Reply[Any] | None = None


@final
@define(eq=False)
class Mailbox(Generic[M]):
    """The bounded inbox of one actor. It outlives the actor's restarts."""

    name: str
    _channel: Channel[_Envelope[M]]
    _unanswered: set[Reply[Any]] = field(factory=set[Reply[Any]], init=False, repr=False)
    _taken: set[Reply[Any]] = field(factory=set[Reply[Any]], init=False, repr=False)

    @classmethod
    def open(cls, name: str, *, capacity: int) -> Self:
        return cls(name, Channel[_Envelope[M]].open(capacity=capacity))

    @property
    def address(self) -> Address[M]:
        return Address(self.name, self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        try:
            envelope = await self._channel.receiver.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            raise StopAsyncIteration from None
        return self._take(envelope)

    def _take(self, envelope: _Envelope[M]) -> M:
        if envelope.reply in self._unanswered:  # or the asker gave up while it lay here
            self._taken.add(envelope.reply)
        return envelope.message

    def __len__(self) -> int:
        return len(self._channel.receiver)

    def abandon(self) -> None:
        """Fail the questions that a crashed run of the actor had taken in hand."""
        for reply in self._taken:
            reply.fail(ActorStopped(self.name))
        self._taken.clear()

    def seal(self) -> None:
        """Refuse new messages; the actor's loop ends once it has handled the old ones."""
        self._channel.sender.close()

    def close(self) -> None:
        """Refuse new messages, drop the old ones and fail every question still open."""
        self._channel.close()
        for reply in self._unanswered:
            reply.fail(ActorStopped(self.name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def awaiting(self, reply: Reply[Any]) -> Generator[None, None, None]:
        """Keep *reply* on the list of those that fail when the actor goes away."""
        self._unanswered.add(reply)
        try:
            yield
        finally:
            self._unanswered.discard(reply)
            self._taken.discard(reply)

    async def deliver(self, message: M, reply: Reply[Any] | None = None) -> None:
        try:
            await self._channel.sender.send(_Envelope(message, reply))
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            raise ActorStopped(self.name) from None

    def offer(self, message: M) -> bool:
        try:
            return self._channel.sender.offer(_Envelope(message))
        except anyio.ClosedResourceError:
            return False


@final
@frozen(eq=False)
class Address(Generic[M_contra]):
    """The right to send one actor its messages."""

    name: str
    _mailbox: Mailbox[Any] = field(repr=False)

    async def tell(self, message: M_contra) -> None:
        """Deliver *message*, waiting while the mailbox is full.

        Raises:
            ActorStopped: the mailbox takes no messages any more.
        """
        await self._mailbox.deliver(message)

    def offer(self, message: M_contra) -> bool:
        """Deliver *message* if there is room now; tell whether there was."""
        return self._mailbox.offer(message)

    async def ask(
        self,
        question: Callable[Concatenate[Reply[R], P], M_contra],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Deliver ``question(reply, *args, **kwargs)`` and wait for the reply.

        How long to wait is the caller's affair: put the call in a cancel scope.

        Raises:
            ActorStopped: the actor went away first.
        """
        reply = Reply[R]()
        with self._mailbox.awaiting(reply):
            await self._mailbox.deliver(question(reply, *args, **kwargs), reply)
            return await reply.wait()
