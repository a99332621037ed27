"""Requests may be pinned to an endpoint: one plugin finds the pin, another honours it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from attrs import define, frozen

from pointsman.kernel.keys import Consumes, DataKey, DataView, keys
from pointsman.kernel.model import REQUEST_HEADERS, Endpoint

PIN = DataKey("pin", str)
"""The name of the endpoint that a request would like to go to."""


@frozen(kw_only=True)
class PinParameters:
    header_name: str = "x-pin"
    default: str = ""
    """For requests without the header; empty leaves them unpinned."""


@define(eq=False)
class PinProducer:
    """Reads the pin from a header."""

    type_name: ClassVar = "pin-producer"
    consumes: ClassVar = Consumes(REQUEST_HEADERS)
    produces: ClassVar = keys(PIN)
    default_for: ClassVar = keys(PIN)
    parameters: PinParameters

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        pin = data[REQUEST_HEADERS].get(self.parameters.header_name) or self.parameters.default
        if pin:
            data[PIN] = pin


@define(eq=False)
class PinScorer:
    """Gives 1 to the endpoint that the request is pinned to; nothing to anybody without a pin."""

    type_name: ClassVar = "pin-scorer"
    consumes: ClassVar = Consumes(PIN)

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        pin = data[PIN]
        return [1.0 if endpoint.name == pin else 0.0 for endpoint in endpoints]
