"""Affinity to endpoints that have the requested LoRA adapter, or room for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import define

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import FRESHNESS, LORA_ADAPTERS, MODEL_NAME, Endpoint, LoraAdapters
from pointsman.kernel.registry import Stability

from .load import Scores, score_reports

RUNNING: Final = 1.0
ROOM: Final = 0.8
WAITING: Final = 0.6


@final
@define(eq=False)
class LoraAffinityScorer:
    """Prefers endpoints that run the requested adapter, then those with room for one more.

    1 where it runs, 0.8 where fewer adapters run and wait than fit, 0.6 where it waits, else 0.
    """

    type_name: ClassVar = "lora-affinity-scorer"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(LORA_ADAPTERS, MODEL_NAME, optional=[FRESHNESS])

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Scores:
        model, reports = data[MODEL_NAME], data[LORA_ADAPTERS]
        if not model:
            return [None] * len(reports)
        ratings = [None if report is None else _rate(model, report) for report in reports]
        freshness = data.get(FRESHNESS) or [None] * len(reports)
        return score_reports(ratings, freshness, list)


def _rate(model: str, adapters: LoraAdapters) -> float:
    if model in adapters.running:
        return RUNNING
    if len(adapters.running) + len(adapters.waiting) < adapters.most:
        return ROOM
    return WAITING if model in adapters.waiting else 0.0
