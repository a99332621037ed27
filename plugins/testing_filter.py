"""A filter for conformance tests: the request says itself where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, final

from attrs import define

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import REQUEST_HEADERS, Endpoint, in_subset, parse_subset
from pointsman.kernel.plugin import Mask
from pointsman.kernel.registry import Stability

SELECTION: Final = "test-epp-endpoint-selection"


@final
@define(eq=False)
class HeaderBasedTestingFilter:
    """Keeps the endpoints that the header ``test-epp-endpoint-selection`` lists; else nobody.

    The list has commas between addresses, ``ip`` or ``ip:port``, IPv6 with or without brackets.
    A filter does not reorder: unlike the reference's, it does not put the endpoints in the
    order of the header. For more than one address, the picker chooses among them.
    """

    type_name: ClassVar = "header-based-testing-filter"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(REQUEST_HEADERS)

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        listed = parse_subset((data[REQUEST_HEADERS].get(SELECTION) or "").split(","))
        return [in_subset(endpoint, listed) for endpoint in endpoints]
