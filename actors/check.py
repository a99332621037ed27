"""``pointsman check`` and ``pointsman graph``: a configuration without running it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

from pointsman.kernel.candidates import Surroundings
from pointsman.kernel.config import read_config
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.topic import Topics
from pointsman.kernel.wiring import Wiring, wire

from . import report
from .arguments import USAGE
from .file_discovery import read_text
from .serve import make_registry

GRAPHS: Final[Mapping[str, Callable[[Wiring], Iterator[str]]]] = {
    "text": report.graph_text,
    "mermaid": report.graph_mermaid,
    "dot": report.graph_dot,
}


def read(options: argparse.Namespace) -> Wiring:
    """The wiring of the configuration that *options* name. Raises ConfigError."""
    path = Path(options.config)
    around = Surroundings(
        registry=make_registry(),
        topics=Topics(),
        random=Random(0),
        allow_experimental=options.allow_experimental_plugins,
    )
    return wire(read_config(read_text(path), str(path)), around)


def check(options: argparse.Namespace) -> int:
    """Print the mistakes (status 2) or the effective wiring (status 0)."""
    as_json = options.format == "json"
    try:
        wiring = read(options)
    except ConfigError as exc:
        found = report.mistakes_report(exc.mistakes)
        print(json.dumps(found, indent=2) if as_json else exc)
        return USAGE
    if as_json:
        print(json.dumps(report.wiring_report(wiring), indent=2))
    else:
        print("\n".join(report.text(wiring)))
    return 0


def graph(options: argparse.Namespace) -> int:
    """Print the data graph of a configuration, or its mistakes (status 2)."""
    try:
        wiring = read(options)
    except ConfigError as exc:
        print(exc)
        return USAGE
    print("\n".join(GRAPHS[options.format](wiring)))
    return 0
