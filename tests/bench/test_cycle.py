"""The bench of the cycle measures what its rows name."""

from __future__ import annotations

import pytest

from . import cycle

pytestmark = pytest.mark.long


def test_every_row_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "SECONDS", 0.001)
    names = [name for name, _ in cycle.rows()]
    assert names == [
        "cycle, 10 endpoints",
        "cycle, 100 endpoints",
        "cycle, 1000 endpoints",
        "a checked read of declared data",
    ]
