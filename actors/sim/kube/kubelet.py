"""Lets pods that are being deleted go when their time is over, as the kubelets of nodes do."""

from __future__ import annotations

from typing import final

import anyio
from anyio.abc import TaskGroup
from attrs import define, field

from pointsman.kernel.channel import Latest

from .cursors import Cursor
from .failures import ApiError
from .kinds import PODS
from .objects import Object, at, is_terminating, key_of, uid_of
from .store import Deletion, Store


@final
@define(eq=False)
class Kubelet:
    """Watches the pods of all nodes."""

    store: Store
    pulse: Latest[int]
    """Changes with the store."""
    _ending: set[tuple[str, int]] = field(factory=set[tuple[str, int]], init=False)
    """Uid and grace of the pods whose end is being waited for."""

    async def run(self) -> None:
        """End pods until cancelled."""
        cursor = self.store.watch(PODS)
        async with anyio.create_task_group() as tasks:
            while True:
                seen = self.pulse.version
                cursor = self._look(cursor, tasks)
                await self.pulse.newer(seen)

    def _look(self, cursor: Cursor, tasks: TaskGroup) -> Cursor:
        """Take note of what happened; the cursor to look through the next time."""
        try:
            for change in cursor.read():
                if change.type != "DELETED" and is_terminating(change.object):
                    self._note(change.object, tasks)
        except ApiError:  # compacted meanwhile: what is there says enough
            return self._look(self.store.watch(PODS), tasks)
        return cursor

    def _note(self, pod: Object, tasks: TaskGroup) -> None:
        grace: int = at(pod, "metadata", "deletionGracePeriodSeconds") or 0
        if grace and (uid_of(pod), grace) not in self._ending:
            self._ending.add((uid_of(pod), grace))
            tasks.start_soon(self._end, pod, grace)

    async def _end(self, pod: Object, grace: int) -> None:
        await anyio.sleep(grace)
        self._ending.discard((uid_of(pod), grace))
        if uid_of(self.store.objects(PODS).get(key_of(pod), {})) == uid_of(pod):
            self.store.delete(PODS, key_of(pod), Deletion(grace=0))
