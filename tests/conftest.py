"""Guards that hold for the whole suite, and what all of it may use."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

settings.register_profile("thorough", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden", action="store_true", help="write expected outputs anew instead of comparing"
    )


@pytest.fixture
def uncollected() -> Generator[None]:
    """Circles stay."""
    gc.disable()
    yield
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Nobody may have imported a folder under its bare name: that is a second copy."""
    bare = {"kernel", "actors", "plugins", "proto", "conf"} & sys.modules.keys()
    if bare:
        pytest.exit(f"imported outside pointsman: {', '.join(sorted(bare))}", returncode=1)
