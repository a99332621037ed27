"""How old things are, as people read it."""

from __future__ import annotations

import pytest

from pointsman.actors.sim.kube.tables import age


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (200, "3m20s"),
        (600, "10m"),
        (7199, "1h59m"),
        (8 * 3600 + 60, "8h"),
        (86400 + 7200, "1d2h"),
        (5 * 86400, "5d"),
    ],
)
def test_an_age_is_told_in_the_units_that_matter(seconds: float, text: str) -> None:
    assert age(seconds) == text
