"""All scripts, by their theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from . import beside, cutting, exchanges, refusals, renaming, spelling
from .script import Script

_MODULES: Final = (exchanges, refusals, renaming, cutting, beside, spelling)

THEMES: Final[Mapping[str, Sequence[Script]]] = {
    theme: tuple(scripts()) for module in _MODULES for theme, scripts in module.THEMES.items()
}
