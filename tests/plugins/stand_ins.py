"""Plugins that play a part in tests of others: fixed data, roles by label, load that is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import define, field
from tests.kernel import zoo

from pointsman.kernel.keys import DataView, Key, keys
from pointsman.kernel.model import Endpoint, Identity, SchedulingResult
from pointsman.plugins.keys import IN_FLIGHT_LOAD, UNCACHED_TOKENS, InFlightLoad


def publishing(name: str, values: Mapping[Any, Any]) -> type[Any]:
    """A producer of these values, whatever is asked."""
    declared: list[Key] = list(values)

    def produce(data: DataView, endpoints: Sequence[Endpoint]) -> None:
        for key, value in values.items():
            data[key] = value

    return zoo.producer(name, produce, keys(*declared))


def only(role: str) -> type[Any]:
    """The filter ``only-<role>``: endpoints with that role in their label."""

    def keep(data: DataView, endpoints: Sequence[Endpoint]) -> list[bool]:
        return [endpoint.labels.get("role") == role for endpoint in endpoints]

    return zoo.keeper(f"only-{role}", keep, empty_means_absent=True)


@define(eq=False)
class CountedAtThePick:
    """Counts requests the moment that they are sent somewhere, and until told that they ended."""

    type_name: ClassVar = "inflight-load-producer"
    produces: ClassVar = keys(IN_FLIGHT_LOAD, UNCACHED_TOKENS)
    default_for: ClassVar = keys(IN_FLIGHT_LOAD, UNCACHED_TOKENS)
    requests: Counter[Identity] = field(factory=Counter[Identity], init=False)

    def produce(self, data: DataView, endpoints: Sequence[Endpoint]) -> None:
        counts = [self.requests[endpoint.identity] for endpoint in endpoints]
        data[IN_FLIGHT_LOAD] = [InFlightLoad(count, 100 * count) for count in counts]
        data[UNCACHED_TOKENS] = [100] * len(endpoints)

    def before_request(self, data: DataView, result: SchedulingResult) -> None:
        self.requests[result.target.identity] += 1
