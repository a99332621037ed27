"""A conversation as data: what the proxy says step by step, and what it is told to each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen
from tests.actors.scripts import LOAD_ONLY, Desk, wired

from pointsman.actors.conversation import SessionSettings
from pointsman.kernel.pool import ModelRewrite, RewriteRule, RewriteTarget, SetRewrites

from .messages import rewritten


@frozen(kw_only=True, eq=False)
class Setup:
    """The daemon that a proxy talks to: configuration, pool and settings."""

    config: str = LOAD_ONLY
    plugins: tuple[type[Any], ...] = ()
    settings: SessionSettings = SessionSettings()
    pool: tuple[str, ...] = ("10.0.0.1", "10.0.0.2")
    renames: Mapping[str, str] = field(factory=dict[str, str])
    """Which model serves another one's requests."""
    response_figures: bool = True

    def desk(self) -> Desk:
        """All of it, made anew. The second endpoint of the pool has the shorter queue."""
        desk = Desk(wired(self.config, *self.plugins), settings=self.settings)
        desk.pool(*self.pool)
        desk.queue(*(5, 1)[: len(self.pool)])
        rules = [
            RewriteRule(models=frozenset({asked}), targets=(RewriteTarget(served),))
            for asked, served in self.renames.items()
        ]
        rewrite = ModelRewrite(name="r", created="2026-01-01T00:00:00Z", rules=tuple(rules))
        desk.datastore.apply(SetRewrites([rewrite] if rules else []))
        return desk


@frozen(eq=False)
class Step:
    """One message of the proxy, and the replies that it waits for before the next."""

    says: bytes
    hears: tuple[bytes, ...]


def step(says: bytes, *hears: bytes) -> Step:
    return Step(says, hears)


@frozen(eq=False)
class Script:
    """A conversation of one stream, from its beginning."""

    name: str
    setup: Setup = field(repr=False)
    steps: tuple[Step, ...] = field(converter=tuple[Step, ...], repr=False)
    over: bool = False
    """Whether the daemon ends the stream then, or the proxy has to."""

    @property
    def expected(self) -> Sequence[Sequence[bytes]]:
        """The replies to each step."""
        return [one.hears for one in self.steps]


@frozen
class Told:
    """What a proxy was told."""

    replies: Sequence[Sequence[bytes]]
    """To each step, as they came."""
    over: bool
    """The daemon ends the stream after that."""
    status: str = "OK"
    """With which the stream ends."""

    @property
    def understood(self) -> Sequence[Sequence[bytes]]:
        """The replies as the official runtime understands them."""
        return [tuple(map(rewritten, replies)) for replies in self.replies]
