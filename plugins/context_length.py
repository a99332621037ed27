"""Prompts to the endpoints that are meant for prompts of their length, by a label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Final, final

from attrs import define, field, frozen

from pointsman.kernel.keys import Consumes, DataView
from pointsman.kernel.model import Endpoint
from pointsman.kernel.plugin import Mask, Role
from pointsman.kernel.registry import Stability
from pointsman.kernel.structure import not_blank

from .keys import TOKENIZED_PROMPT

UNLABELLED: Final = 0.5
FITS_AT_LEAST: Final = 0.3
"""What separates the ranges that a prompt fits from those that it does not."""
_RANGE: Final = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)


@final
@frozen
class LengthRange:
    """The prompts that an endpoint is meant for, in tokens; both ends belong to it."""

    least: int
    most: int

    @classmethod
    def parse(cls, text: str) -> LengthRange | None:
        """``min-max``; None for anything else."""
        found = _RANGE.fullmatch(text)
        if found is None:
            return None
        least, most = int(found[1]), int(found[2])
        return cls(least, most) if least <= most else None

    def __contains__(self, length: int) -> bool:
        return self.least <= length <= self.most

    def fit(self, length: int) -> float:
        """From 0 to 1. Inside: better the narrower, and the more room. Outside: the nearer."""
        if length not in self:
            distance = max(self.least - length, length - self.most)
            return FITS_AT_LEAST / (1 + distance / 1000)
        width = self.most - self.least
        if width == 0:
            return 1.0
        raw = 0.7 / (1 + width / 10000) + 0.3 * (self.most - length) / width
        return FITS_AT_LEAST + (1 - FITS_AT_LEAST) * raw


# Labels come with pods, and few differ; a malformed one is remembered as such.
_range_of: Final = lru_cache(maxsize=1024)(LengthRange.parse)


@final
@frozen(kw_only=True)
class ContextLengthParameters:
    label: str = field(default="llm-d.ai/context-length-range", validator=not_blank)
    """The label that holds an endpoint's range, ``min-max`` in tokens."""
    enable_filtering: bool = False
    """Whether endpoints of other ranges are left out, not only rated lower."""


@final
@define(eq=False)
class ContextLengthAware:
    """Keeps and prefers endpoints whose labelled range fits the length of the prompt.

    Fits: ``0.3 + 0.7 * (0.7 / (1 + width / 10000) + 0.3 * (max - length) / width)``, 1 for a
    width of 0; fits not: ``0.3 / (1 + distance / 1000)``. Without the label an endpoint stays
    and gets 0.5; with one that is no range it goes, and gets 0.
    """

    type_name: ClassVar = "context-length-aware"
    stability: ClassVar = Stability.BETA
    # A prompt that is too long for everybody is no question of load.
    empty_means_absent: ClassVar = True
    consumes: ClassVar = Consumes(TOKENIZED_PROMPT)
    parameters: ContextLengthParameters

    @property
    def idle_roles(self) -> frozenset[Role]:
        return frozenset() if self.parameters.enable_filtering else frozenset({Role.FILTER})

    def keep(self, data: DataView, endpoints: Sequence[Endpoint]) -> Mask:
        length = data[TOKENIZED_PROMPT].count
        texts = self._texts(endpoints)
        kept = {text: text is None or _holds(text, length) for text in set(texts)}
        return [kept[text] for text in texts]

    def score(self, data: DataView, endpoints: Sequence[Endpoint]) -> Sequence[float]:
        length = data[TOKENIZED_PROMPT].count
        texts = self._texts(endpoints)
        scores = {text: UNLABELLED if text is None else _fit(text, length) for text in set(texts)}
        return [scores[text] for text in texts]

    def _texts(self, endpoints: Sequence[Endpoint]) -> list[str | None]:
        label = self.parameters.label
        return [endpoint.labels.get(label) for endpoint in endpoints]


def _holds(text: str, length: int) -> bool:
    found = _range_of(text)
    return found is not None and length in found


def _fit(text: str, length: int) -> float:
    found = _range_of(text)
    return 0.0 if found is None else found.fit(length)
