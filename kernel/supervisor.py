"""Keeps children running: who is restarted, how often, and what happens when that fails."""

from __future__ import annotations

import enum
import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Generic, TypeVar, final

import anyio
from anyio.abc import TaskGroup
from attrs import define, field, frozen

from .errors import RestartBudgetSpent
from .mailbox import Mailbox

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)


class Restart(enum.Enum):
    """What to do when a child's `run` ends."""

    ALWAYS = "always"
    ON_CRASH = "on-crash"
    NEVER = "never"


@frozen(kw_only=True)
class Backoff:
    """Exponential delays with jitter: ``first``, ``2 * first``, … up to ``most`` seconds."""

    first: float = 0.1
    most: float = 30.0

    def delay(self, crashes: int, random: Random) -> float:
        doubled = math.ldexp(self.first, min(crashes - 1, 32))
        return min(self.most, doubled) * random.uniform(0.5, 1.0)


@frozen(kw_only=True)
class Child:
    """Something with a `run`.

    An inbox named here fails the questions in hand when `run` crashes, and is closed when the
    child has ended for good.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    inbox: Mailbox[Any] | None = None
    restart: Restart = Restart.ON_CRASH
    backoff: Backoff = Backoff()


@final
@define(eq=False)
class Handle:
    """A running child, as its parent sees it."""

    name: str
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope)
    _ended: anyio.Event = field(factory=anyio.Event)
    crashes: int = field(default=0, init=False)

    def cancel(self) -> None:
        """Ask the child to end, without waiting for it."""
        self._scope.cancel()

    async def stop(self) -> None:
        """Cancel the child and wait until it is gone."""
        self._scope.cancel()
        await self._ended.wait()

    async def ended(self) -> None:
        """Wait until the child has ended for good."""
        await self._ended.wait()


@final
@define(eq=False)
class Supervisor:
    """Restarts each of its children on its own (one-for-one); escalates past the budget."""

    crashes: int = 5
    within: float = 60.0
    random: Random = field(factory=Random)
    _tasks: TaskGroup = field(init=False)

    def start(self, child: Child) -> Handle:
        handle = Handle(child.name)
        self._tasks.start_soon(self._keep_running, child, handle, name=child.name)
        return handle

    async def _keep_running(self, child: Child, handle: Handle) -> None:
        recent: deque[float] = deque()
        try:
            with handle._scope:
                while not await self._run_once(child, handle, recent):
                    pass
        except Exception as exc:
            if not handle._scope.cancel_called:
                raise
            logger.warning("%s failed while it was stopped", child.name, exc_info=exc)
        finally:
            if child.inbox is not None:
                child.inbox.close()  # nobody will ever read it again: askers must not wait
            handle._ended.set()

    async def _run_once(self, child: Child, handle: Handle, recent: deque[float]) -> bool:
        """Run the child to its end; tell whether that was the last time."""
        try:
            await child.run()
        except Exception as exc:
            if child.inbox is not None:
                child.inbox.abandon()
            if child.restart is Restart.NEVER:
                raise
            handle.crashes += 1
            self._note_crash(child, recent, exc)
            await anyio.sleep(child.backoff.delay(len(recent), self.random))
            return False
        if child.restart is not Restart.ALWAYS:
            return True
        await anyio.sleep(child.backoff.delay(1, self.random))
        return False

    def _note_crash(self, child: Child, recent: deque[float], exc: Exception) -> None:
        now = anyio.current_time()
        recent.append(now)
        while recent[0] < now - self.within:
            recent.popleft()
        logger.warning("%s crashed (%d recent)", child.name, len(recent), exc_info=exc)
        if len(recent) > self.crashes:
            raise RestartBudgetSpent(child.name, len(recent), self.within) from exc


@asynccontextmanager
async def supervise(
    *, crashes: int = 5, within: float = 60.0, random: Random | None = None
) -> AsyncGenerator[Supervisor, None]:
    """Open a task group whose children are restarted; leaving it cancels them all.

    Args:
        crashes: how many crashes of one child within *within* seconds are tolerated.

    Raises:
        RestartBudgetSpent: (in an exception group) one more than tolerated happened.
    """
    supervisor = Supervisor(crashes, within, random or Random())
    async with anyio.create_task_group() as supervisor._tasks:
        yield supervisor
        supervisor._tasks.cancel_scope.cancel()


@final
@define(eq=False)
class Crew(Generic[K]):
    """Children that come and go, by key."""

    supervisor: Supervisor
    _running: dict[K, Handle] = field(factory=dict[K, Handle], init=False)

    async def become(self, wanted: Mapping[K, Child]) -> None:
        """Stop who is not wanted any more, wait for their end, and start who is missing."""
        for key in self._running.keys() - wanted.keys():
            await self._running.pop(key).stop()
        for key, child in wanted.items():
            if key not in self._running:
                self._running[key] = self.supervisor.start(child)
