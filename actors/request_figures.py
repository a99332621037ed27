"""What is counted and measured of requests, by model, flow and priority.

Every series of one combination of labels is in one object, which a request finds once; from then
on nothing is looked up. Combinations are limited as their labels are: a client that varies its
headers must not make a scrape grow without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, final

from attrs import define, field, frozen
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from pointsman.kernel.model import Request
from pointsman.kernel.names import DEFAULT_FLOW, OTHER, Names, flow_of
from pointsman.kernel.tally import Bounds, Tally

from . import tallies
from .tallies import histogram, histograms

PREFIX: Final = "llm_d_epp_"
MOST_SERIES: Final = 1000  # combinations of labels; the flow of later ones is ``other``

Labels = tuple[str, str, str, str]
LABELS: Final = ("model_name", "target_model_name", "fairness_id", "priority")
_Key = tuple[str, str, str, int]


def _tally(bounds: Bounds) -> Tally:
    return field(factory=lambda: Tally(bounds), init=False)


@final
@define(eq=False)
class Series:
    """All that is known of one combination of labels."""

    labels: Labels
    total: int = field(default=0, init=False)
    running: int = field(default=0, init=False)
    errors: dict[str, int] = field(factory=dict[str, int], init=False)
    """By code."""
    duration: Tally = _tally(tallies.LONG)
    size: Tally = _tally(tallies.SIZES)
    response_size: Tally = _tally(tallies.TOKENS)
    input_tokens: Tally = _tally(tallies.MANY_TOKENS)
    cached_tokens: Tally = _tally(tallies.MANY_TOKENS)
    output_tokens: Tally = _tally(tallies.FEW_TOKENS)
    per_token: Tally = _tally(tallies.NORMALIZED)
    streaming_per_token: Tally = _tally(tallies.PER_TOKEN)
    between_chunks: Tally = _tally(tallies.BETWEEN_CHUNKS)
    first_chunk: Tally = _tally(tallies.FIRST_TOKEN)
    streaming_first_chunk: Tally = _tally(tallies.FIRST_TOKEN)

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


@final
@frozen
class Measure:
    """A histogram of requests: its name, what it says, and where it is."""

    name: str
    text: str
    of: Callable[[Series], Tally]


MEASURES: Final = (
    Measure(
        "request_duration_seconds",
        "From the request's headers to the end of its response.",
        lambda series: series.duration,
    ),
    Measure("request_size_bytes", "Bytes of a request's body.", lambda series: series.size),
    Measure(
        "response_size_bytes",
        "Bytes of a response's body, where it passes by.",
        lambda series: series.response_size,
    ),
    Measure(
        "request_input_tokens",
        "Tokens of the prompt, as the model server counted them.",
        lambda series: series.input_tokens,
    ),
    Measure(
        "request_cached_tokens",
        "Tokens of the prompt that the model server had in its cache.",
        lambda series: series.cached_tokens,
    ),
    Measure(
        "request_output_tokens",
        "Tokens of the answer, as the model server counted them.",
        lambda series: series.output_tokens,
    ),
    Measure(
        "request_ntpot_seconds",
        "A request's duration by its output tokens.",
        lambda series: series.per_token,
    ),
    Measure(
        "request_streaming_tpot_seconds",
        "Seconds for each token of a streamed answer after the first.",
        lambda series: series.streaming_per_token,
    ),
    Measure(
        "request_streaming_itl_seconds",
        "Seconds between two chunks of a streamed answer.",
        lambda series: series.between_chunks,
    ),
)


@final
@define(eq=False)
class RequestFigures:
    """The series of all combinations of labels."""

    pinned: Callable[[], Iterable[str]] = tuple
    """Models that an operator named: they are never ``other``."""
    models: Names = field(factory=Names)
    flows: Names = field(factory=Names)
    request_phase: Tally = field(factory=lambda: Tally(tallies.REQUEST_PHASE), init=False)
    response_phase: Tally = field(factory=lambda: Tally(tallies.RESPONSE_PHASE), init=False)
    _by_labels: dict[Labels, Series] = field(factory=dict[Labels, Series], init=False)
    _by_key: dict[_Key, Series] = field(factory=dict[_Key, Series], init=False)
    """The same, by what requests say: only where that is what the labels say, too."""

    def series(self, request: Request | None) -> Series:
        """Where *request* is counted, which may change with its model and priority."""
        if request is None:
            return self._find(("", "", DEFAULT_FLOW, 0))
        flow = flow_of(request.headers)
        key = (request.incoming_model, request.model, flow, request.priority)
        return self._by_key.get(key) or self._find(key)

    def _find(self, key: _Key) -> Series:
        model, target, flow, priority = key
        self.models.pin(self.pinned())
        labels = (
            self.models.label(model),
            self.models.label(target),
            self.flows.label(flow),
            str(priority),
        )
        series = self._by_labels.get(labels) or self._make(labels)
        if series.labels[:3] == key[:3]:
            self._by_key[key] = series
        return series

    def _make(self, labels: Labels) -> Series:
        if len(self._by_labels) >= MOST_SERIES:
            model, target, _, priority = labels
            labels = (model, target, OTHER, priority)
            if labels not in self._by_labels and len(self._by_labels) >= 2 * MOST_SERIES:
                labels = (OTHER, OTHER, OTHER, priority)
        series = self._by_labels.get(labels)
        if series is None:
            series = self._by_labels[labels] = Series(labels)
        return series

    def __iter__(self) -> Iterator[Series]:
        return iter(self._by_labels.values())

    # -- as families --------------------------------------------------------------------------

    def families(self) -> Iterator[Metric]:
        yield self._totals()
        yield self._errors()
        yield self._running()
        for measure in MEASURES:
            of = [(series.labels, measure.of(series)) for series in self]
            yield from histograms(PREFIX + measure.name, measure.text, LABELS, of)
        yield from self._first_chunks()
        text = "From a request's headers to its decision or refusal."
        yield self._phase("request_processing_duration_seconds", text, self.request_phase)
        text = "What was done about a streamed response; from headers to end of any other."
        yield self._phase("response_processing_duration_seconds", text, self.response_phase)

    def _totals(self) -> Metric:
        text = "Requests for which an endpoint was chosen."
        family = CounterMetricFamily(f"{PREFIX}request", text, labels=LABELS)
        for series in self:
            if series.total:
                family.add_metric(series.labels, series.total)
        return family

    def _errors(self) -> Metric:
        text = "Requests that the picker refused or a model server failed."
        labels = (*LABELS, "error_code")
        family = CounterMetricFamily(f"{PREFIX}request_error", text, labels=labels)
        for series in self:
            for code, count in series.errors.items():
                family.add_metric((*series.labels, code), count)
        return family

    def _running(self) -> Metric:
        text = "Requests whose endpoint was chosen and whose stream has not ended."
        family = GaugeMetricFamily(f"{PREFIX}request_running", text, labels=LABELS)
        for series in self:
            if series.total:
                family.add_metric(series.labels, series.running)
        return family

    def _first_chunks(self) -> Iterator[Metric]:
        text = "From the request's headers to the first piece of its response."
        of = [((*s.labels, "false"), s.first_chunk) for s in self]
        of += [((*s.labels, "true"), s.streaming_first_chunk) for s in self]
        return histograms(f"{PREFIX}request_ttft_seconds", text, (*LABELS, "streaming"), of)

    def _phase(self, name: str, text: str, tally: Tally) -> Metric:
        return histogram(PREFIX + name, text, tally)
