"""What tests of sessions share."""

from __future__ import annotations

from typing import Final

from pointsman.kernel.model import Endpoint, ProfileResult, SchedulingResult
from pointsman.kernel.testing import endpoints

ABC: Final = endpoints("a", "b", "c")


def chose(primary: str = "default", **targets: Endpoint | None) -> SchedulingResult:
    """What each profile chose among `ABC`; None: it found nobody."""
    return SchedulingResult(
        {
            name: None if target is None else ProfileResult((target,), ABC, [0.0] * len(ABC))
            for name, target in targets.items()
        },
        primary,
    )
