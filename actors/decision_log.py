"""What became of each request, as one record: for whoever looks for a fault, at debug level."""

from __future__ import annotations

import logging
from typing import final

from pointsman.kernel.director import Outcome
from pointsman.kernel.model import Request

from .conversation import Modes
from .observing import Ending, Observer
from .relaying import Relay

logger = logging.getLogger(__name__)


def wanted() -> bool:
    """Whether anybody would see the records."""
    return logger.isEnabledFor(logging.DEBUG)


@final
class DecisionLog(Relay):
    """Tells of a decision, or why there is none; never of a prompt."""

    def __init__(self, inner: Observer) -> None:
        super().__init__(inner)
        self._request: Request | None = None

    def began(self, request: Request, modes: Modes) -> None:
        self._request = request
        super().began(request, modes)

    def picked(self, request: Request, outcome: Outcome, seconds: float) -> None:
        super().picked(request, outcome, seconds)
        result = outcome.decision.result.primary_result
        target = result.targets[0]
        scored = zip(result.candidates, result.scores, strict=False)
        score = next((score for candidate, score in scored if candidate is target), None)
        fields = {
            **_known(request),
            "endpoint": target.id,
            "destination": outcome.decision.destination,
            "score": None if score is None else round(score, 4),
            "candidates": len(result.candidates),
            "duration_ms": round(seconds * 1000, 3),
        }
        logger.debug("picked", extra={"fields": fields})

    def ended(self, ending: Ending) -> None:
        super().ended(ending)
        refusal = ending.refusal
        if refusal is None:
            return
        known = _known(self._request) if self._request is not None else {}
        fields = {**known, "status": refusal.status, "reason": refusal.reason or ""}
        logger.debug("refused", extra={"fields": fields})


def _known(request: Request) -> dict[str, object]:
    return {
        "request_id": request.headers.get("x-request-id") or "",
        "model": request.model or request.incoming_model,
        "priority": request.priority,
        "path": request.path,
    }
