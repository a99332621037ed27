"""Bodies that nobody reads."""

from __future__ import annotations

from typing import ClassVar, final

from attrs import define

from pointsman.kernel.keys import Keys
from pointsman.kernel.registry import Stability


@final
@define(eq=False)
class PassthroughParser:
    """Takes what no other parser claims, and looks at none of it."""

    type_name: ClassVar = "passthrough-parser"
    stability: ClassVar = Stability.BETA
    paths: ClassVar[tuple[str, ...]] = ()

    def reader(self, path: str, wanted: Keys) -> None:
        return None
