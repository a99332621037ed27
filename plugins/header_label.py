"""Affinity by a label that the request names in a header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import REQUEST_HEADERS, Endpoint
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import not_blank


@final
@frozen(kw_only=True)
class HeaderLabelParameters:
    header_name: str = field(validator=not_blank)
    """Upper and lower case are the same."""
    label_key: str = field(validator=not_blank)


@final
@define(eq=False)
class HeaderLabelAffinityScorer:
    """Prefers endpoints whose label has the value of the request's header.

    1 where they are equal, else 0; 0 for all when the header is missing or empty.
    """

    type_name: ClassVar = "header-label-affinity-scorer"
    stability: ClassVar = Stability.ALPHA
    consumes: ClassVar = Consumes(REQUEST_HEADERS)
    parameters: HeaderLabelParameters

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        wanted = data[REQUEST_HEADERS].get(self.parameters.header_name.strip().lower())
        if not wanted:
            return [0.0] * len(endpoints)
        key = self.parameters.label_key
        return [1.0 if endpoint.labels.get(key) == wanted else 0.0 for endpoint in endpoints]
