"""Which sources the daemon says it was built from."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pointsman import __version__
from pointsman.actors.build import commit
from pointsman.actors.figure_sources import show_version
from pointsman.actors.figures import Figures

from .figure_texts import series


def installed(folder: Path, noted: str | None) -> str:
    """A distribution in *folder*, with that in its direct_url.json; its name."""
    name = "of-a-test"
    info = folder / "of_a_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if noted is not None:
        (info / "direct_url.json").write_text(noted)
    return name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ({"url": "u", "vcs_info": {"vcs": "git", "commit_id": "abc"}}, "abc"),
        ({"url": "u", "dir_info": {"editable": True}}, "unknown"),
        ({"url": "u", "vcs_info": {"vcs": "git"}}, "unknown"),
        ([], "unknown"),
        (None, "unknown"),
    ],
)
def test_a_distribution_may_know_its_commit(folder: Path, noted: object, expected: str) -> None:
    name = installed(folder, None if noted is None else json.dumps(noted))
    assert commit({}, name) == expected


def test_what_is_not_installed_or_broken_has_an_unknown_commit(folder: Path) -> None:
    assert commit({}, "of-a-test") == "unknown"
    assert commit({}, installed(folder, "{")) == "unknown"


@pytest.mark.parametrize(
    ("said", "expected"), [(" def\n", "def"), ("", "abc"), (" ", "abc"), ("\udcff", "abc")]
)
def test_who_builds_an_image_knows_better(folder: Path, said: str, expected: str) -> None:
    name = installed(folder, '{"url": "u", "vcs_info": {"vcs": "git", "commit_id": "abc"}}')
    assert commit({"POINTSMAN_COMMIT": said}, name) == expected


def test_the_figures_name_commit_and_version() -> None:
    figures = Figures()
    show_version(figures, {"POINTSMAN_COMMIT": "abc"})
    assert series(figures, "llm_d_epp_info") == [{"commit": "abc", "build_ref": __version__}]
