"""Everything that the daemon shows, as the tables of docs/metrics.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from attrs import frozen
from prometheus_client.metrics_core import Metric

from pointsman import plugins
from pointsman.actors.conversation import Modes
from pointsman.actors.observing import Ending
from pointsman.actors.plugin_figures import merged
from pointsman.actors.serve import Daemon
from pointsman.actors.tallies import SETS
from pointsman.kernel.datastore import EndpointSpec, ReplaceEndpoints, ReportMetrics
from pointsman.kernel.errors import Refusal
from pointsman.kernel.model import EndCause, Freshness, Headers, Parsed, Usage
from pointsman.kernel.plugin import Role
from pointsman.kernel.pool import ModelRewrite, RewriteRule, RewriteTarget, SetRewrites
from pointsman.kernel.testing import decide, endpoints, make_request, pool, wired
from pointsman.plugins.keys import REQUEST_PROMPT, RequestPrompt
from pointsman.plugins.prefix_figures import BYTES, SHARES
from pointsman.plugins.stages import StageCount

FLAGS: Final = ("--enable-deprecated-metrics", "--enable-grpc-stream-metrics")
CONFIG: Final = """\
plugins:
- {type: queue-scorer}
- {type: running-requests-size-scorer}
- {type: kv-cache-utilization-scorer}
- {name: endpoints, type: file-discovery, parameters: {path: PATH}}
dataLayer: {discovery: {pluginRef: endpoints}}
"""
OF_PLUGINS: Final = """\
plugins:
- {type: random-picker}
- {type: approx-prefix-cache-producer}
- {type: inflight-load-producer}
"""
OF_THE_PROCESS: Final = ("process_", "python_")
CURRENT: Final = ("llm_d_epp_", "pointsman_")
NAMES: Final = {SHARES: "shares", BYTES: "hit bytes"} | {b: name for name, b in SETS.items()}


@frozen(order=True)
class Row:
    """A family."""

    name: str
    type: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...]
    text: str


def exercise(daemon: Daemon) -> None:
    """Let everything happen once that is counted."""
    spec = EndpointSpec(uid="1", name="a", address="10.0.0.1", port=8000)
    rule = RewriteRule(targets=(RewriteTarget("m"),))
    rewrite = ModelRewrite(name="all", created="2026-01-01T00:00:00Z", rules=(rule,))
    daemon.datastore.apply(SetRewrites([rewrite]))
    daemon.datastore.apply(ReplaceEndpoints([spec]))
    (endpoint,) = daemon.datastore.members.value
    names = daemon.wiring.value.processing.endpoint_values
    values: dict[str, Any] = {**dict.fromkeys(names, 0.5), "metrics-freshness": Freshness.FRESH}
    daemon.datastore.apply(ReportMetrics(endpoint.identity, values))
    _converse(daemon)
    figures = daemon.figures
    calls = figures.calls.of("queue-scorer", "queue-scorer")
    calls.failed(Role.SCORER)
    calls.violated(Role.SCORER, "kv-cache-usage", "read")
    figures.decisions.opaque("gzip")
    figures.poll_errors.labels("metrics-data-source").inc()
    figures.extract_errors.labels("metrics-data-source", "core-metrics-extractor").inc()
    figures.reloads.labels("success").inc()
    assert figures.streams is not None
    figures.streams.ended("OK", 1.0)


def _converse(daemon: Daemon) -> None:
    """A request that is answered in a stream, one that is answered at once, one refused."""
    usage = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=1)
    wiring = daemon.wiring.value
    for kind in (b"text/event-stream", b"application/json"):
        request, observer = make_request(model="m"), daemon.figures.observe()
        observer.began(request, Modes())
        outcome = wiring.director.decide_now(request, Parsed("m"), daemon.datastore.snapshot)
        observer.picked(request, outcome, 0.0001)
        observer.response_began(Headers({"content-type": kind}))
        for chunk in (b"one", b"two"):
            observer.chunk_came(chunk)
            observer.chunk_passed()
        observer.ended(Ending(EndCause.NATURAL, status=200, usage=usage, whole=True))
    observer = daemon.figures.observe()
    refusal = Refusal(503, "no")
    observer.ended(Ending(EndCause.ERROR, refusal))


def rows(daemon: Daemon) -> list[Row]:
    """All families of a daemon that was exercised, and those of plugins that it does not use."""
    families = [*daemon.figures.registry.collect(), *_of_plugins()]
    families.append(StageCount("disagg-profile-handler").family())
    shown = {row.name: row for row in map(_row, families)}
    return sorted(row for row in shown.values() if not row.name.startswith(OF_THE_PROCESS))


def _of_plugins() -> Iterator[Metric]:
    wiring = wired(OF_PLUGINS, *plugins.BUILT_IN)
    prompt = RequestPrompt(((b"x" * 1000,),))
    request = make_request(model="m")
    decide(wiring, pool(endpoints("a")), request, {REQUEST_PROMPT: prompt})
    yield from merged(wiring.installed.values())
    request.end()


def _row(family: Metric) -> Row:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    buckets: tuple[float, ...] = ()
    if family.type == "histogram":
        bounds = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
        buckets = tuple(sorted(float(bound) for bound in bounds - {"+Inf"}))
    return Row(name, family.type, _labels(family), buckets, family.documentation)


def _labels(family: Metric) -> tuple[str, ...]:
    named: tuple[str, ...] | None = getattr(family, "_labelnames", None)
    if named is not None:
        return tuple(named)
    assert family.samples, f"{family.name} has no sample that tells its labels"
    return tuple(label for label in family.samples[0].labels if label != "le")


def tables(found: Sequence[Row]) -> str:
    """The second part of docs/metrics.md."""
    current = [row for row in found if row.name.startswith(CURRENT)]
    old = [row for row in found if not row.name.startswith(CURRENT)]
    return "\n".join([*_current(current), *_sets(found), *_old(old), ""])


def _current(found: Iterable[Row]) -> Iterator[str]:
    yield "| Name | Type | Labels | Buckets | What it says |"
    yield "| --- | --- | --- | --- | --- |"
    for row in found:
        labels = ", ".join(row.labels) or "-"
        yield f"| `{row.name}` | {row.type} | {labels} | {_buckets(row)} | {row.text} |"


def _buckets(row: Row) -> str:
    return "-" if row.type != "histogram" else NAMES[row.buckets]


def _sets(found: Iterable[Row]) -> Iterator[str]:
    yield from ("", "## Buckets", "")
    sets = {_buckets(row): row.buckets for row in found if row.type == "histogram"}
    for name, bounds in sorted(sets.items()):
        yield f"- *{name}*: {' '.join(f'{bound:.10g}' for bound in bounds)}"


def _old(found: Iterable[Row]) -> Iterator[str]:
    yield from ("", "## Names of earlier releases, with `--enable-deprecated-metrics`", "")
    yield "| Name | Type | Labels | Buckets | |"
    yield "| --- | --- | --- | --- | --- |"
    for row in found:
        labels = ", ".join(row.labels) or "-"
        yield f"| `{row.name}` | {row.type} | {labels} | {_buckets(row)} | {row.text} |"
