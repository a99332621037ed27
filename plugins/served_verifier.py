"""A hook for conformance tests: the response says who served it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, final

from attrs import define

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import SERVED_ENDPOINT, SchedulingResult
from pointsman.kernel.registry import Stability

SERVED: Final = "x-conformance-test-served-endpoint"
MISSING: Final = "fail: missing the served endpoint in the proxy's metadata"


@final
@define(eq=False)
class ServedEndpointVerifier:
    """Adds who answered, as the proxy says, to the response, in a header of conformance tests."""

    type_name: ClassVar = "destination-endpoint-served-verifier"
    stability: ClassVar = Stability.BETA
    consumes: ClassVar = Consumes(optional=[SERVED_ENDPOINT])

    def on_response_headers(self, data: DataView, result: SchedulingResult) -> Mapping[str, str]:
        served = data.get(SERVED_ENDPOINT)
        return {SERVED: served or MISSING}
