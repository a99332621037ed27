"""Objectives and rewrites: objects that name the pool which they are about.

Their kinds moved to another API group. The new one is followed where it is installed, the older
one where it is not, and none where neither is; what is installed later is noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar, assert_never, final

import anyio
from attrs import define, field

from pointsman.kernel.pool import (
    ModelRewrite,
    Objective,
    RewriteRule,
    RewriteTarget,
    SetObjectives,
    SetRewrites,
)

from .cluster import Cluster
from .kinds import InferenceModelRewrite, InferenceObjective, Kind, PoolReference, Rule
from .reflector import Changed, Gone, News, Reflector, Replace

A = TypeVar("A", InferenceObjective, InferenceModelRewrite)


@final
@define(eq=False)
class Attached(Generic[A]):
    """Follows the objects of one kind that name the pool, and hands them on when they change."""

    cluster: Cluster
    kind: Kind[A]
    older: Kind[A]
    pool: PoolReference
    hand_on: Callable[[list[A]], Awaitable[None]]
    _current: Reflector[A] = field(init=False)
    _older: Reflector[A] = field(init=False)
    _objects: dict[str, A] = field(factory=dict[str, A], init=False, repr=False)
    _handed: list[A] | None = field(default=None, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        follow = self.cluster.optional_reflector
        self._current = follow(self.kind, self._take, absence=logging.DEBUG)
        self._older = follow(self.older, self._take_older, absence=logging.INFO)

    @property
    def reflector(self) -> Reflector[A]:
        """The one whose objects count."""
        return self._older if self._current.installed.value is False else self._current

    async def run(self) -> None:
        self._handed = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._current.run)
            while True:
                await self._current.installed.until(False)
                await self._follow_older()

    async def _follow_older(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._older.run)
            await self._current.installed.until(True)
            tasks.cancel_scope.cancel()

    async def _take_older(self, news: News[A]) -> None:
        if self._current.installed.value is False:
            await self._take(news)

    async def _take(self, news: News[A]) -> None:
        match news:
            case Replace(objects):
                self._objects = {obj.metadata.name: obj for obj in objects}
            case Changed(obj):
                self._objects[obj.metadata.name] = obj
            case Gone(obj):
                self._objects.pop(obj.metadata.name, None)
            case _:
                assert_never(news)
        ours = [obj for obj in self._objects.values() if self._is_ours(obj)]
        if ours != self._handed:
            self._handed = ours
            await self.hand_on(ours)

    def _is_ours(self, obj: A) -> bool:
        return obj.metadata.deletion_timestamp is None and obj.spec.pool_ref == self.pool


def objectives_of(objects: Iterable[InferenceObjective]) -> SetObjectives:
    """Without a priority an objective is worth 0."""
    found = (Objective(obj.metadata.name, obj.spec.priority or 0) for obj in objects)
    return SetObjectives({objective.name: objective for objective in found})


def rewrites_of(objects: Iterable[InferenceModelRewrite]) -> SetRewrites:
    """The oldest first, of those of one second the smaller name."""
    found = [
        ModelRewrite(
            name=obj.metadata.name,
            created=obj.metadata.creation_timestamp or "",
            rules=tuple(map(_rule_of, obj.spec.rules or ())),
        )
        for obj in objects
    ]
    return SetRewrites(sorted(found, key=lambda rewrite: (rewrite.created, rewrite.name)))


def _rule_of(rule: Rule) -> RewriteRule:
    return RewriteRule(
        models=frozenset(match.model.value for match in rule.matches or ()),
        targets=tuple(RewriteTarget(t.model_rewrite, t.weight) for t in rule.targets),
    )
