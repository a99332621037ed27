"""What a daemon has to be like after a soak."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from attrs import frozen
from prometheus_client.parser import text_string_to_metric_families as families

GROWTH: Final = 1.05  # of memory, at most
READER: Final = 80.0  # MB of a process that reads large bodies, at most; without one it has 42
EXPECTED: Final = re.compile(r"^the configuration stays as it was:")
"""The only error that a soak provokes on purpose."""
ENDED: Final = {
    "pointsman_open_streams": "open streams",
    "llm_d_epp_inflight_requests": "requests in flight",
    "llm_d_epp_inflight_tokens": "tokens in flight",
}


@frozen
class Finding:
    """One thing that was looked at."""

    name: str
    well: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.well else 'FAIL'}  {self.name}: {self.text}"


@frozen
class Sample:
    """The daemon's memory at some moment."""

    at: float
    """Seconds since the beginning."""
    resident: float
    """MB."""
    open: int
    """Streams."""
    reader: float = 0.0
    """MB of the largest process beside the daemon that reads large bodies for it."""


def memory(samples: Sequence[Sample], seconds: float) -> Finding:
    """Compare the last moments of the first quarter with the last ones of all.

    In between memory comes and goes with bodies of some MB, so medians are compared.
    """
    window = max(2.0, seconds / 20)
    before, after = (
        [each for each in samples if end - window <= each.at <= end]
        for end in (seconds / 4, seconds)
    )
    if not before or not after:
        return Finding("memory", False, "there are too few samples")
    first, last = (median(each.resident for each in window) for window in (before, after))
    streams = [round(median(each.open for each in window)) for window in (before, after)]
    text = f"{first:.1f} MB with {streams[0]:,} streams, {last:.1f} MB with {streams[1]:,}"
    return Finding("memory", last <= first * GROWTH, f"{text} ({last / first - 1:+.1%})")


def readers(samples: Sequence[Sample]) -> Finding:
    """They come and go with large bodies, so what counts is that none ever grows large."""
    most = max((each.reader for each in samples), default=0.0)
    return Finding("memory of a reader", most <= READER, f"{most:.1f} MB at most")


def totals(page: str) -> dict[str, float]:
    """Of a page of metrics, the sum over each series of a name."""
    found: dict[str, float] = {}
    for family in families(page):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def unfinished(found: dict[str, float]) -> str:
    """What has not come back to nothing; empty when all has."""
    left = {text: found.get(name, 0.0) for name, text in ENDED.items()}
    return ", ".join(f"{value:g} {text}" for text, value in left.items() if value)


def counters(found: dict[str, float]) -> Iterable[Finding]:
    left = unfinished(found)
    yield Finding("at rest", not left, left or "no streams, nothing in flight")
    failures = found.get("pointsman_plugin_failures_total", 0.0)
    yield Finding("plugin failures", not failures, f"{failures:g}")
    violations = found.get("llm_d_epp_plugin_data_scope_violations_total", 0.0)
    yield Finding("undeclared data", not violations, f"{violations:g}")


def log(text: str) -> Finding:
    """No error but those that were asked for, no traceback, and only lines of JSON."""
    wrong = [line for line in text.splitlines() if _is_wrong(line)]
    shown = "".join(f"\n      {line[:1500]}" for line in wrong[:5])
    lines = text.count("\n")
    return Finding("log", not wrong, f"{lines:,} lines, {len(wrong)} errors{shown}")


def _is_wrong(line: str) -> bool:
    try:
        entry = json.loads(line)
        level, said = entry["level"], entry["msg"]
    except (ValueError, LookupError, TypeError):
        return True
    if "stacktrace" in entry:
        return True
    return level in ("error", "fatal") and EXPECTED.match(said) is None
