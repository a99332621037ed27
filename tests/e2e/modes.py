"""The processing modes that every picker is tried in."""

from __future__ import annotations

import pytest

from pointsman.actors.sim.envoy_bootstrap import Mode

MODES = (Mode.FULL_DUPLEX, Mode.LEAN_DUPLEX, Mode.LEAN_BUFFERED, Mode.BUFFERED)
HOLDING_THE_BODY = (Mode.LEAN_BUFFERED, Mode.BUFFERED)
INCREMENTAL = (Mode.FULL_DUPLEX, Mode.LEAN_DUPLEX, Mode.LEAN_BUFFERED)
"""Clients get a response while it is produced."""


def in_each(modes: tuple[Mode, ...]) -> pytest.MarkDecorator:
    """Run a test once for each of *modes*, under the mode's own name."""
    return pytest.mark.parametrize("mode", modes, ids=[mode.value for mode in modes])


in_each_mode = in_each(MODES)
