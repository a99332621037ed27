"""Trying inputs on a target, each in bounded time, until one of them shows a fault."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from time import process_time
from types import FrameType
from typing import Final

from attrs import define, field, frozen

from .mutation import Mutator
from .targets import Target

LONGEST: Final = 100_000  # bytes of an input
LIMIT: Final = 1.0  # CPU seconds for one input
MOST_KINDS: Final = 500  # inputs that are kept to be changed further
SHRINKING: Final = 400  # inputs that are tried to make a failing one smaller


class TooSlowError(Exception):
    """An input took more CPU time than it may."""


@frozen
class Failure:
    """An input that shows a fault."""

    target: str
    data: bytes
    text: str
    """The exception with its traceback."""


@contextmanager
def bounded(seconds: float) -> Generator[None]:
    """Stop what is inside once it used that much CPU time; only for the main thread.

    Raises:
        TooSlowError: it was stopped, or it came to its end too late.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooSlowError(f"more than {seconds} s of CPU")

    before = signal.signal(signal.SIGPROF, stop)
    started = process_time()
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if process_time() - started > seconds:
        raise TooSlowError(f"more than {seconds} s of CPU")


@define(eq=False)
class Fuzzer:
    """Makes inputs for one target; which ones depends on the seed alone."""

    target: Target
    seed: int
    longest: int = LONGEST
    limit: float = LIMIT
    tried: int = field(default=0, init=False)
    kinds: set[str] = field(factory=set[str], init=False)
    _corpus: list[bytes] = field(init=False)
    _mutator: Mutator = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._corpus = list(self.target.samples)
        self._mutator = Mutator(Random(f"{self.seed} {self.target.name}"), self.longest)

    def run(self, inputs: int) -> Failure | None:
        """Try so many inputs more, the samples themselves first."""
        for _ in range(inputs):
            samples = self.target.samples
            fresh = self.tried >= len(samples)
            data = self._mutator.make(self._corpus) if fresh else samples[self.tried]
            self.tried += 1
            if (failure := self.attempt(data)) is not None:
                return failure
        return None

    def attempt(self, data: bytes) -> Failure | None:
        """Try one input."""
        try:
            with bounded(self.limit):
                found = self.target.check(data)
        except Exception as fault:
            data = data if isinstance(fault, TooSlowError) else self._smaller(data, type(fault))
            return Failure(self.target.name, data, "".join(traceback.format_exception(fault)))
        if found not in self.kinds and len(self.kinds) < MOST_KINDS:
            self.kinds.add(found)
            self._corpus.append(data)
        return None

    def _smaller(self, data: bytes, fault: type[Exception]) -> bytes:
        def fails(smaller: bytes) -> bool:
            try:
                with bounded(self.limit):
                    self.target.check(smaller)
            except Exception as other:
                return type(other) is fault
            return False

        return shrunk(data, fails)


def shrunk(data: bytes, fails: Callable[[bytes], bool], tries: int = SHRINKING) -> bytes:
    """Less of *data* that still fails, found by leaving out ever smaller pieces."""
    size = len(data) // 2
    while size:
        start = 0
        while start < len(data):
            if (tries := tries - 1) < 0:
                return data
            smaller = data[:start] + data[start + size :]
            if fails(smaller):
                data = smaller
            else:
                start += size
        size //= 2
    return data
