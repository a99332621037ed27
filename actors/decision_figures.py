"""What is counted of decisions and conversations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, final

from attrs import define, field
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.director import Outcome
from pointsman.kernel.model import EndCause, Endpoint
from pointsman.kernel.names import OTHER
from pointsman.kernel.tally import Tally

from .conversation import BodyMode, Modes
from .modes import name_of
from .request_figures import PREFIX
from .tallies import SHORT, histogram

OWN: Final = "pointsman_"
ATTEMPTS: Final = f"{PREFIX}scheduler_attempts"
ATTEMPT_LABELS: Final = ("status", "target_model_name", "endpoint_name", "namespace", "port")
ENCODINGS: Final = ("gzip", "br", "deflate", "zstd", OTHER)
PICK_SECONDS: Final = f"{PREFIX}scheduler_e2e_duration_seconds"


@define(eq=False)
class _Picks:
    """How often an endpoint was chosen for a model."""

    endpoint: Endpoint
    count: int = 0


@final
@define(eq=False)
class DecisionFigures:
    """Decisions by their outcome, and conversations by their kind and end."""

    seconds: Tally = field(factory=lambda: Tally(SHORT), init=False)
    ends: dict[EndCause, int] = field(factory=lambda: dict.fromkeys(EndCause, 0), init=False)
    modes: list[list[int]] = field(
        factory=lambda: [[0] * len(BodyMode) for _ in BodyMode], init=False
    )
    """By the request's body mode, then by the response's."""
    _opaque: dict[str, int] = field(factory=lambda: dict.fromkeys(ENCODINGS, 0), init=False)
    _picks: dict[tuple[str, str, int], _Picks] = field(
        factory=dict[tuple[str, str, int], _Picks], init=False
    )
    _failures: dict[str, int] = field(factory=dict[str, int], init=False)

    def picked(self, model: str, outcome: Outcome, seconds: float) -> None:
        """A decision was made for *model*, a label."""
        self.seconds.observe(seconds)
        target = outcome.decision.result.target
        key = (model, target.id, target.port)
        picks = self._picks.get(key)
        if picks is None:
            picks = self._picks[key] = _Picks(target)
        picks.count += 1

    def failed(self, model: str) -> None:
        """There was no endpoint for *model*."""
        self._failures[model] = self._failures.get(model, 0) + 1

    def opaque(self, encoding: str) -> None:
        """A response was encoded like that, and its usage would have been of interest."""
        self._opaque[encoding if encoding in self._opaque else OTHER] += 1

    def forget(self, endpoint: Endpoint) -> None:
        """Remove the series that name an endpoint which is gone."""
        # Its port may have changed meanwhile.
        for key in [key for key in self._picks if key[1] == endpoint.id]:
            del self._picks[key]

    # -- as families --------------------------------------------------------------------------

    def families(self) -> Iterator[Metric]:
        text = "Time from the parsed request to the decision."
        yield histogram(PICK_SECONDS, text, self.seconds)
        yield self.attempts(ATTEMPTS, ATTEMPT_LABELS)
        text = "ext_proc conversations, by how they ended."
        ends = {cause.value: count for cause, count in self.ends.items()}
        yield _counter(f"{OWN}conversations", text, "cause", ends)
        text = "ext_proc conversations, by what the proxy shows in them."
        yield _counter(f"{OWN}streams", text, "mode", self._by_mode())
        text = "Responses whose tokens could not be counted because of their content encoding."
        yield _counter(f"{OWN}opaque_responses", text, "encoding", self._opaque)

    def attempts(self, name: str, labels: Iterable[str]) -> Metric:
        """Decisions, under a name and labels of the caller's."""
        family = CounterMetricFamily(
            name, "Decisions, by outcome and chosen endpoint.", labels=list(labels)
        )
        for (model, _, port), picks in self._picks.items():
            where = picks.endpoint
            values = ("success", model, where.name, where.namespace, str(port))
            family.add_metric(values, picks.count)
        for model, count in self._failures.items():
            family.add_metric(("failure", model, "", "", ""), count)
        return family

    def _by_mode(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for request in BodyMode:
            for response in BodyMode:
                key = name_of(Modes(request, response))
                counts[key] = counts.get(key, 0) + self.modes[request][response]
        return counts


def _counter(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in counts.items():
        if count:
            family.add_metric([value], count)
    return family
