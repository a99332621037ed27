"""How many examples hypothesis makes: few in `make test`, many in `make check`."""

from __future__ import annotations

from hypothesis import settings


def share(part: float) -> int:
    """The examples of a test each of whose examples takes as long as several others."""
    usual = settings.default
    if usual is None:
        raise LookupError("hypothesis has no default settings")
    return max(2, round(usual.max_examples * part))
