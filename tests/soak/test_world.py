from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from tests.actors.scripts import wired
from tests.bench import server
from tests.bench.server import Models

from pointsman.kernel.errors import ConfigError

from . import world as worlds
from .world import BROKEN, World

pytestmark = pytest.mark.long

MODELS = Models([f"127.0.3.{number}" for number in range(1, 6)], 8000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the world takes for the time."""
    now = [100.0]
    monkeypatch.setattr(worlds, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def world(tmp_path: Path, clock: list[float]) -> World:
    return World(tmp_path, MODELS, Random(1))


def listed(world: World) -> set[str]:
    """What the file says now."""
    entries = json.loads((world.folder / "endpoints.yaml").read_text())["endpoints"]
    return {f"{entry['address']}:{entry['port']}" for entry in entries}


def test_all_that_was_listed_since_some_moment_is_known(world: World, clock: list[float]) -> None:
    every = MODELS.endpoints
    for now, numbers in ((110.0, [0, 1, 2]), (120.0, [2, 3, 4])):
        clock[0] = now
        world._list(numbers)
    assert set(world.endpoints(121.0)) == set(every[2:]) == listed(world)
    assert set(world.endpoints(120.0)) == set(every[2:])
    assert set(world.endpoints(119.0)) == set(every)


def test_every_list_leaves_some_endpoints(world: World) -> None:
    for _ in range(50):
        world._endpoints_change()
        assert len(listed(world)) >= worlds.FEWEST


def test_endpoints_change_only_when_the_last_change_has_settled(
    world: World, clock: list[float]
) -> None:
    assert world._endpoints_change not in world._choices()
    clock[0] += worlds.SETTLED + 0.1
    assert world._endpoints_change in world._choices()


def test_what_is_reloaded_is_a_configuration(world: World) -> None:
    for _ in range(10):
        wired(world._config_text())


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_to_be_refused_is_none(text: str) -> None:
    with pytest.raises(ConfigError):
        wired(text)


def test_nothing_changes_before_it_is_time(
    world: World, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ignore(*arguments: object) -> None: ...

    monkeypatch.setattr(server, "get", ignore)
    monkeypatch.setattr("os.kill", ignore)
    world.go_on(1)
    world.go_on(1)
    assert world.changes.total() == 1
    clock[0] += worlds.APART[1]
    world.go_on(1)
    assert world.changes.total() == 2
