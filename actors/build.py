"""Which sources the daemon was built from."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

import msgspec

COMMIT: Final = "POINTSMAN_COMMIT"
"""The variable in which whoever builds an image says it."""
UNKNOWN: Final = "unknown"


class _Repository(msgspec.Struct):
    commit_id: str


class _Origin(msgspec.Struct):
    """What installers note of where a distribution came from: its direct_url.json."""

    vcs_info: _Repository


def commit(environment: Mapping[str, str], name: str = "pointsman") -> str:
    """The commit that the environment names, or the installed distribution *name* if it knows."""
    said = environment.get(COMMIT, "").strip()
    return said if said and said.isprintable() else _installed_from(name)


def _installed_from(name: str) -> str:
    try:
        noted = distribution(name).read_text("direct_url.json") or ""
        return msgspec.json.decode(noted, type=_Origin).vcs_info.commit_id
    except (PackageNotFoundError, msgspec.DecodeError):
        return UNKNOWN
