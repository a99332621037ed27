"""Memory that is free goes back to the system."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from types import SimpleNamespace

import anyio
import pytest
from trio.testing import MockClock

from pointsman.actors import memory

PEAK = """
import sys
from pointsman.actors.memory import return_large_buffers
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
if len(sys.argv) > 1:
    assert return_large_buffers()
once = bytes(8 << 20)  # from here on glibc would keep buffers of this size
del once
before = resident()
held, kept = [], []
for _ in range(64):
    held.append(bytearray(b"x" * (1 << 20)))
    kept.append(bytearray(b"x" * 100_000))  # holds the memory around it where it is
del held
print(resident() - before)
"""


def left(*arguments: str) -> int:
    """Bytes that stay resident after 64 buffers of 1 MiB have come and gone."""
    command = [sys.executable, "-c", PEAK, *arguments]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_buffers_of_large_bodies_leave_nothing_behind() -> None:
    if not memory.return_large_buffers():
        pytest.skip("the C library is not glibc")
    assert left("set") < 24 << 20 < 48 << 20 < left()


async def test_memory_is_trimmed_now_and_then(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    asked: list[int] = []

    def glibc(name: str | None) -> object:
        return SimpleNamespace(malloc_trim=asked.append)

    monkeypatch.setattr(ctypes, "CDLL", glibc)
    with anyio.move_on_after(3.5 * memory.TRIM_EVERY):
        await memory.keep_trimmed()
    assert asked == [0, 0, 0]


async def test_a_full_collection_takes_a_thousandth_of_the_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    durations, at = iter([0.01, 0.25, 0.0]), [0.0]
    collected: list[float] = []

    def collect() -> None:
        assert gc.get_threshold() == (*before[:2], 2**31 - 1)
        collected.append(anyio.current_time() - began)
        at[0] += next(durations)

    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(memory, "perf_counter", lambda: at[0])
    before, began = gc.get_threshold(), anyio.current_time()
    with anyio.move_on_after(400):
        await memory.keep_collected()
    assert collected == pytest.approx([60.0, 120.0, 370.0])
    assert gc.get_threshold() == before


def nothing(name: str | None) -> object:
    """The functions of another C library, as far as ours go."""
    return object()


async def test_another_c_library_is_not_asked_to_trim(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", nothing)
    with anyio.move_on_after(3 * memory.TRIM_EVERY) as scope:
        await memory.keep_trimmed()
    assert scope.cancelled_caught


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", nothing)
    assert not memory.return_large_buffers()
