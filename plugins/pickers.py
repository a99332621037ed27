"""Choosing among scored endpoints. Each takes up to ``maxNumOfEndpoints``, best first."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from random import Random
from typing import ClassVar, final

from attrs import define, frozen

from pointsman.kernel.keys import DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.registry import Stability


@final
@frozen(kw_only=True)
class PickerParameters:
    max_num_of_endpoints: int = 1
    """How many to name, the first being the choice and the rest fallbacks; below 1 means 1."""

    @property
    def count(self) -> int:
        return max(1, self.max_num_of_endpoints)


@final
@define(eq=False)
class MaxScorePicker:
    """The highest score wins; among equals, chance decides."""

    type_name: ClassVar = "max-score-picker"
    stability: ClassVar = Stability.BETA
    parameters: PickerParameters
    random: Random

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        if self.parameters.count > 1:
            return self._several(endpoints, scores)
        best = max(scores)
        if scores.count(best) == 1:
            return (endpoints[scores.index(best)],)
        winners = [e for e, score in zip(endpoints, scores, strict=True) if score == best]
        return (winners[int(self.random.random() * len(winners))],)

    def _several(
        self, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        order = list(range(len(endpoints)))
        self.random.shuffle(order)
        order.sort(key=scores.__getitem__, reverse=True)
        return [endpoints[index] for index in order[: self.parameters.count]]


@final
@define(eq=False)
class RandomPicker:
    """Every endpoint is equally likely, whatever its score."""

    type_name: ClassVar = "random-picker"
    stability: ClassVar = Stability.BETA
    parameters: PickerParameters
    random: Random

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        return self.random.sample(endpoints, min(self.parameters.count, len(endpoints)))


@final
@define(eq=False)
class WeightedRandomPicker:
    """Chance in proportion to the score (A-Res: the largest of ``u ** (1 / score)``).

    Endpoints without a score only fill up the list, in any order; when none has one, all are
    alike.
    """

    type_name: ClassVar = "weighted-random-picker"
    stability: ClassVar = Stability.BETA
    parameters: PickerParameters
    random: Random

    def pick(
        self, data: DataView, endpoints: Sequence[Endpoint], scores: Sequence[float]
    ) -> Sequence[Endpoint]:
        count = min(self.parameters.count, len(endpoints))
        # In logarithms: u ** (1 / score) is 0 in floats for small scores, whatever u is.
        wait = self.random.expovariate
        waits = {index: wait(score) for index, score in enumerate(scores) if score > 0}
        chosen = nsmallest(count, waits, key=waits.__getitem__)
        if len(chosen) < count:
            rest = [index for index in range(len(scores)) if index not in waits]
            chosen += self.random.sample(rest, count - len(chosen))
        return [endpoints[index] for index in chosen]
