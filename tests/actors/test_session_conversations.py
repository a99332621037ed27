"""The scripts, played to the session itself."""

from __future__ import annotations

import pytest

from .conversations.playing import told_to_all
from .conversations.scripts import THEMES


@pytest.mark.parametrize("theme", THEMES)
async def test_a_session_says_what_the_scripts_expect(theme: str) -> None:
    told = await told_to_all(THEMES[theme])
    expected = {script.name: (script.expected, script.over) for script in THEMES[theme]}
    said = {script.name: (one.understood, one.over) for script, one in told.items()}
    assert said == expected


@pytest.mark.parametrize("theme", THEMES)
def test_every_script_of_a_theme_has_a_name_of_its_own(theme: str) -> None:
    names = [script.name for script in THEMES[theme]]
    assert len(names) == len(set(names))
