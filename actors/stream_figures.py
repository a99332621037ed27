"""What is counted of gRPC streams, for whoever asked for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

from attrs import define, field
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.tally import Tally

from .request_figures import PREFIX
from .tallies import LONG, histogram


@final
@define(eq=False)
class StreamFigures:
    """Streams by how they ended, and how long they were open."""

    open: Callable[[], int] = lambda: 0
    seconds: Tally = field(factory=lambda: Tally(LONG), init=False)
    codes: dict[str, int] = field(factory=dict[str, int], init=False)
    """By the name of the gRPC status."""

    def ended(self, code: str, seconds: float) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1
        self.seconds.observe(seconds)

    def families(self) -> Iterator[Metric]:
        text = "ext_proc streams that are open."
        yield GaugeMetricFamily(f"{PREFIX}extproc_streams_inflight", text, value=self.open())
        text = "How long ext_proc streams were open."
        name = f"{PREFIX}extproc_stream_duration_seconds"
        yield histogram(name, text, self.seconds)
        text = "ext_proc streams that ended, by the name of their gRPC status."
        family = CounterMetricFamily(f"{PREFIX}extproc_streams", text, labels=["code"])
        for code, count in self.codes.items():
            family.add_metric([code], count)
        yield family
