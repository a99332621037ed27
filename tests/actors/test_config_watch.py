"""A changed configuration is taken in when it is good, and left alone when it is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from pointsman.actors.config_watch import ConfigWatch
from pointsman.actors.figures import Figures
from pointsman.kernel.testing import wired
from pointsman.kernel.wiring import Wiring

GOOD = "plugins: []"
BETTER = "plugins: []\nfeatureGates: []"
BAD = "plugins: [{type: nobody}]"


@define(eq=False)
class Rewired:
    texts: list[str] = field(factory=list[str])

    def __call__(self, text: str, source: str) -> Wiring:
        wiring = wired(text)
        self.texts.append(text)
        return wiring


@pytest.fixture
def rewired() -> Rewired:
    return Rewired()


@pytest.fixture
def figures() -> Figures:
    return Figures()


@pytest.fixture
async def file(
    tmp_path: Path,
    rewired: Rewired,
    figures: Figures,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(GOOD)
    nursery.start_soon(ConfigWatch(path, rewired, figures).run)
    await anyio.sleep(0.5)
    return path


def reloads(figures: Figures, result: str) -> float:
    return (
        figures.registry.get_sample_value("pointsman_config_reload_total", {"result": result})
        or 0.0
    )


async def test_an_unchanged_file_changes_nothing(
    autojump_clock: MockClock, file: Path, rewired: Rewired
) -> None:
    await anyio.sleep(60)
    assert rewired.texts == []


async def test_a_changed_file_is_taken_in_once(
    autojump_clock: MockClock, file: Path, rewired: Rewired, figures: Figures
) -> None:
    file.write_text(BETTER)
    await anyio.sleep(60)
    assert rewired.texts == [BETTER]
    assert reloads(figures, "success") == 1


async def test_a_bad_file_is_counted_and_the_next_good_one_taken_in(
    autojump_clock: MockClock, file: Path, rewired: Rewired, figures: Figures
) -> None:
    file.write_text(BAD)
    await anyio.sleep(10)
    assert (rewired.texts, reloads(figures, "failure")) == ([], 1)
    file.write_text(BETTER)
    await anyio.sleep(10)
    assert rewired.texts == [BETTER]


async def test_a_file_that_is_being_written_is_waited_for(
    autojump_clock: MockClock, file: Path, rewired: Rewired
) -> None:
    for length in range(1, len(BETTER)):
        file.write_text(BETTER[:length])
        await anyio.sleep(1)
    file.write_text(BETTER)
    await anyio.sleep(10)
    assert rewired.texts == [BETTER]


async def test_a_directory_swapped_by_symlink_is_noticed(
    tmp_path: Path,
    rewired: Rewired,
    figures: Figures,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    """As kubelet does with a ConfigMap."""
    for name, text in (("one", GOOD), ("two", BETTER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    nursery.start_soon(ConfigWatch(tmp_path / "config.yaml", rewired, figures).run)
    await anyio.sleep(2)
    (tmp_path / "..tmp").symlink_to("two")
    os.replace(tmp_path / "..tmp", tmp_path / "..data")
    await anyio.sleep(10)
    assert rewired.texts == [BETTER]


async def test_a_file_that_is_gone_leaves_things_as_they_are(
    autojump_clock: MockClock, file: Path, rewired: Rewired
) -> None:
    file.unlink()
    await anyio.sleep(10)
    file.write_text(GOOD)
    await anyio.sleep(10)
    assert rewired.texts == []


async def test_a_hangup_reads_the_file_at_once(file: Path, rewired: Rewired) -> None:
    file.write_text(BETTER)
    os.kill(os.getpid(), signal.SIGHUP)
    await wait_all_tasks_blocked()
    assert rewired.texts == [BETTER]
