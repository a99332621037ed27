"""Load as a shade rather than a ranking: a short queue costs little, whatever the others' are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import define, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import FRESHNESS, WAITING_QUEUE_SIZE, Endpoint
from pointsman.kernel.registry import Stability

from .load import Scores, score_reports

FULL_QUEUE: Final = 128  # waiting requests


@final
@frozen(kw_only=True)
class LoadAwareParameters:
    threshold: int = FULL_QUEUE
    """Waiting requests from which on an endpoint gets 0; 0 and below mean 128."""


@final
@define(eq=False)
class LoadAwareScorer:
    """Prefers endpoints with a shorter queue, by its length and not by comparison.

    ``0.5 * (threshold - waiting) / threshold``: never more than 0.5, and 0 from the threshold on.
    """

    type_name: ClassVar = "load-aware-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(WAITING_QUEUE_SIZE, optional=[FRESHNESS])
    parameters: LoadAwareParameters

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Scores:
        waiting = data[WAITING_QUEUE_SIZE]
        freshness = data.get(FRESHNESS) or [None] * len(waiting)
        return score_reports(waiting, freshness, self._room)

    def _room(self, waiting: Sequence[float]) -> list[float]:
        full = self.parameters.threshold if self.parameters.threshold > 0 else FULL_QUEUE
        return [0.5 * (full - number) / full if number < full else 0.0 for number in waiting]
