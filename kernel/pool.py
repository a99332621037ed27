"""What Kubernetes says about a pool beside its endpoints: its own object, priorities, rewrites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import final

from attrs import field, frozen


@final
@frozen(kw_only=True)
class Pool:
    """An InferencePool."""

    namespace: str
    name: str
    selector: Mapping[str, str] = field(factory=dict[str, str])
    ports: tuple[int, ...] = ()
    """Each is an endpoint of its own on every pod."""
    app_protocol: str = "http"


@final
@frozen
class Objective:
    """An InferenceObjective: how important the requests are that name it."""

    name: str
    priority: int = 0
    """Higher is more important, negative may be shed."""


@final
@frozen
class RewriteTarget:
    """A model that requests are sent to instead."""

    model: str
    weight: int | None = None


@final
@frozen(kw_only=True)
class RewriteRule:
    """Which models are rewritten, to what."""

    models: frozenset[str] = frozenset()
    """Exact names; empty matches every model, and a request that names none."""
    targets: tuple[RewriteTarget, ...] = ()

    def pick(self, random: Random) -> str:
        """A target by weight; without any weight all are alike. Empty when there is no target."""
        if not self.targets:
            return ""
        weights = [target.weight or 0 for target in self.targets]
        if sum(weights) <= 0:
            return random.choice(self.targets).model
        return random.choices(self.targets, weights)[0].model


@final
@frozen(kw_only=True)
class ModelRewrite:
    """An InferenceModelRewrite."""

    name: str
    created: str
    """RFC 3339, to the second: the older object wins, then the smaller name."""
    rules: tuple[RewriteRule, ...] = ()


@final
@frozen
class Rewrites:
    """All rewrites of a pool, in the order in which they are asked."""

    rules: tuple[RewriteRule, ...] = ()
    generic: RewriteRule | None = None
    """The first rule for every model."""
    exact: Mapping[str, RewriteRule] = field(factory=dict[str, RewriteRule])
    """The first rule that names a model."""
    sources: Mapping[str, str] = field(factory=dict[str, str])
    """The names of the rewrites that these rules are of, by model; empty is for every model."""

    @classmethod
    def of(cls, rewrites: Iterable[ModelRewrite]) -> Rewrites:
        ordered = sorted(rewrites, key=lambda rewrite: (rewrite.created, rewrite.name))
        rules = tuple(rule for rewrite in ordered for rule in rewrite.rules)
        exact: dict[str, RewriteRule] = {}
        sources: dict[str, str] = {}
        for rewrite in ordered:
            for rule in rewrite.rules:
                for model in rule.models or ("",):
                    sources.setdefault(model, rewrite.name)
                for model in rule.models:
                    exact.setdefault(model, rule)
        generic = next((rule for rule in rules if not rule.models), None)
        return cls(rules, generic, exact, sources)

    def target(self, model: str, random: Random) -> str | None:
        """The model to ask instead of *model*; None when no rule speaks of it."""
        rule = self.exact.get(model) or self.generic
        return None if rule is None else rule.pick(random)

    def source(self, model: str) -> str | None:
        """The rewrite that says what to ask instead of *model*; None when none does."""
        return self.sources.get(model) or self.sources.get("")

    def __bool__(self) -> bool:
        return bool(self.rules)


NO_REWRITES = Rewrites()


@frozen
class SetPool:
    """The pool's object is this now; None: there is none."""

    pool: Pool | None


@frozen
class SetObjectives:
    """These are all objectives now, by name."""

    objectives: Mapping[str, Objective]


@frozen
class SetRewrites:
    """These are all rewrites now."""

    rewrites: Sequence[ModelRewrite]
