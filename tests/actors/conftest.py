"""What the tests of several actors share."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path
from random import Random

import pytest

from pointsman.actors.cli import make_parser
from pointsman.actors.serve import Daemon

from .daemons import CONFIG, Make


@pytest.fixture
def endpoints_file(tmp_path: Path) -> Path:
    path = tmp_path / "endpoints.yaml"
    path.write_text("endpoints: []")
    return path


@pytest.fixture
def make(endpoints_file: Path) -> Generator[Make, None, None]:
    """Builds daemons from flags, and closes what they opened."""
    made: list[Daemon] = []

    def make(*flags: str, config: str = CONFIG) -> Daemon:
        top, _ = make_parser()
        text = config.replace("PATH", str(endpoints_file))
        options = top.parse_args(["serve", f"--config-text={text}", *flags])
        daemon = Daemon(options, Random(0))
        daemon.build()
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.inbox.close()
        daemon.topics.close()


@pytest.fixture
def unfrozen() -> Generator[None, None, None]:
    """The daemon takes what is there out of the garbage collector's sight."""
    yield
    gc.unfreeze()
