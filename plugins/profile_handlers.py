"""Which profiles run, and whose result counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from attrs import define

from pointsman.kernel.errors import Refusal
from pointsman.kernel.keys import DataView
from pointsman.kernel.plugin import Results
from pointsman.kernel.registry import Stability


@final
@define(eq=False)
class SingleProfileHandler:
    """Runs the one profile there is, once."""

    type_name: ClassVar = "single-profile-handler"
    stability: ClassVar = Stability.BETA
    most_profiles: ClassVar = 1

    def profiles(self, data: DataView, available: Sequence[str], results: Results) -> Sequence[str]:
        return () if results else available

    def primary(self, data: DataView, results: Results) -> str:
        succeeded = [name for name, result in results.items() if result is not None]
        if len(succeeded) != 1:
            raise Refusal(429, "failed to find target endpoint: the profile has no result")
        return succeeded[0]
