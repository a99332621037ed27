"""What is counted of InferenceModelRewrites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

from attrs import define, field
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.model import Request
from pointsman.kernel.pool import NO_REWRITES, Rewrites

from .request_figures import PREFIX, Labels


@final
@define(eq=False)
class RewriteFigures:
    """How often each rewrite decided which model was asked."""

    current: Callable[[], Rewrites] = lambda: NO_REWRITES
    _decisions: dict[tuple[str, str, str], int] = field(
        factory=dict[tuple[str, str, str], int], init=False
    )

    def decided(self, request: Request, labels: Labels) -> None:
        """*request* was sent to its model, by a rewrite or without."""
        rewrites = self.current()
        name = rewrites.source(request.incoming_model) if rewrites.rules else None
        if name is not None:
            key = (name, labels[0], labels[1])
            self._decisions[key] = self._decisions.get(key, 0) + 1

    def families(self) -> Iterator[Metric]:
        text = "Requests whose model was chosen by an InferenceModelRewrite."
        names = ["model_rewrite_name", "model_name", "target_model"]
        family = CounterMetricFamily(f"{PREFIX}model_rewrite_decisions", text, labels=names)
        for values, count in self._decisions.items():
            family.add_metric(values, count)
        yield family
