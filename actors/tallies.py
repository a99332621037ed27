"""Families of the histograms that are kept where every request passes.

Tallies belong to whoever holds them, so that nothing is looked up by labels. Families are made
when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, islice
from typing import Final, final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.samples import Sample

from pointsman.kernel.tally import Bounds, Tally

PART: Final = 50  # tallies that are written in one go: about two thousand lines

Entry = tuple[Sequence[str], Tally]
"""The values of a tally's labels, and the tally."""

LONG: Final[Bounds] = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20),
    *(30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600),
)
SHORT: Final[Bounds] = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
FIRST_TOKEN: Final[Bounds] = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20),
    *(30, 45, 60, 120),
)
PER_TOKEN: Final[Bounds] = (
    *(0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4),
    *(0.5, 0.6, 0.8, 1, 2),
)
BETWEEN_CHUNKS: Final[Bounds] = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2),
)
NORMALIZED: Final[Bounds] = (*(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),)
REQUEST_PHASE: Final[Bounds] = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
RESPONSE_PHASE: Final[Bounds] = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
    5,
)
SIZES: Final[Bounds] = tuple(float(64 << doublings) for doublings in range(25))  # to 1 GiB
FEW_TOKENS: Final[Bounds] = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
TOKENS: Final[Bounds] = (*FEW_TOKENS, 16384, 32778, 65536)  # 32778 is the reference system's
MANY_TOKENS: Final[Bounds] = (*TOKENS, 131072, 262144, 524288, 1048576)
SETS: Final[Mapping[str, Bounds]] = {
    "long": LONG,
    "short": SHORT,
    "first token": FIRST_TOKEN,
    "per token": PER_TOKEN,
    "between chunks": BETWEEN_CHUNKS,
    "normalized": NORMALIZED,
    "request phase": REQUEST_PHASE,
    "response phase": RESPONSE_PHASE,
    "sizes": SIZES,
    "few tokens": FEW_TOKENS,
    "tokens": TOKENS,
    "many tokens": MANY_TOKENS,
}
"""All of them, by what the documentation calls them."""


@final
class Tallies(HistogramMetricFamily):
    """A family of tallies that have counted something, each with the values of its labels.

    As lines it is quicker by far than by the samples that the library would make lines of.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], tallies: Iterable[Entry]
    ) -> None:
        self.labels = tuple(labels)
        self.tallies = [(values, tally) for values, tally in tallies if any(tally.counts)]
        super().__init__(name, text, labels=self.labels)

        del self.samples  # they are made when somebody looks at single ones

    def __getattr__(self, name: str) -> list[Sample]:
        """The samples, while there are none."""
        if name != "samples":
            raise AttributeError(name)
        family = HistogramMetricFamily(self.name, "", labels=self.labels)
        for values, tally in self.tallies:
            bounds = [*map(number, tally.bounds), "+Inf"]
            counts = map(float, accumulate(tally.counts))
            family.add_metric(values, list(zip(bounds, counts, strict=True)), tally.sum)
        self.samples = family.samples
        return family.samples

    def lines(self) -> str:
        return "".join([line for entry in self.tallies for line in self._lines(*entry)])

    def _lines(self, values: Sequence[str], tally: Tally) -> Iterator[str]:
        labels = sorted(zip(self.labels, map(_escaped, values), strict=True))
        before = "".join([f'{name}="{value}",' for name, value in labels if name < "le"])
        after = "".join([f',{name}="{value}"' for name, value in labels if name > "le"])
        name, counts = self.name, list(accumulate(tally.counts))
        for bound, count in zip(_bounds(tally.bounds), counts, strict=True):
            yield f'{name}_bucket{{{before}le="{bound}"{after}}} {number(count)}\n'
        all_labels = f"{{{(before + after[1:]).rstrip(',')}}}" if labels else ""
        yield f"{name}_count{all_labels} {number(counts[-1])}\n"
        yield f"{name}_sum{all_labels} {number(tally.sum)}\n"


def histogram(name: str, text: str, tally: Tally) -> Tallies:
    """A family of one, without labels."""
    return Tallies(name, text, (), [((), tally)])


def histograms(
    name: str, text: str, labels: Sequence[str], tallies: Iterable[Entry]
) -> Iterator[Tallies]:
    """A family in parts, so that nobody has to wait until all of a large one is made."""
    left = iter(tallies)
    yield Tallies(name, text, labels, islice(left, PART))
    while part := [*islice(left, PART)]:
        yield Tallies(name, text, labels, part)


@cache
def _bounds(bounds: Bounds) -> tuple[str, ...]:
    return (*map(number, bounds), "+Inf")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def number(value: float) -> str:
    """As client libraries write it: millions with an exponent, like ``1.048576e+06``."""
    text = repr(float(value))
    point = text.find(".")
    if value < 1e6 or "e" in text:
        return text
    digits = text[:point] + text[point + 1 :]
    return f"{digits[0]}.{digits[1:]}".rstrip("0").rstrip(".") + f"e+{point - 1:02}"
