"""Micro-benchmarks that run in the bench's own process.

A module of this folder that is named here and has ``rows() -> list[tuple[str, float]]`` (name, CPU
microseconds per operation) takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final, cast

MODULES: Final = ("codec", "cycle", "prefix", "kube", "parsers")


def present(modules: Sequence[str] = MODULES) -> list[str]:
    """Those of *modules* that exist."""
    return [name for name in modules if find_spec(f"{__package__}.{name}") is not None]


def rows(module: str) -> list[tuple[str, float]]:
    """What the module of that name measures; this takes as long as it takes."""
    measure = cast(
        "Callable[[], list[tuple[str, float]]]", import_module(f"{__package__}.{module}").rows
    )
    return measure()
