"""The fuzzer finds what it should, and a short run of it finds nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from .__main__ import main
from .mutation import Mutator
from .running import Fuzzer, bounded, shrunk
from .targets import Target, chunks, targets

INPUTS = 150
"""Per target: the samples and somewhat more. `make fuzz` goes on for longer."""


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_foreign_bytes_are_read_or_refused(target: Target) -> None:
    fuzzer = Fuzzer(target, seed=1, longest=3_000, limit=5.0)
    failure = fuzzer.run(INPUTS)
    assert failure is None, failure.text
    assert fuzzer.tried == INPUTS


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_samples_are_of_many_kinds(target: Target) -> None:
    """One that reads nothing, or refuses everything alike, would make for poor fuzzing."""
    fuzzer = Fuzzer(target, seed=1, longest=3_000, limit=5.0)
    fuzzer.run(INPUTS)
    assert len(fuzzer.kinds) >= 2


def _planted(data: bytes) -> str:
    assert b"\\" not in data, "planted"
    return "read"


def _endless(data: bytes) -> str:
    while len(data) > 20:
        pass
    return "read"


PLANTED = Target("planted", [b'{"a": "bcdefgh"}'], _planted)
ENDLESS = Target("endless", [b'{"a": "b"}'], _endless)


def test_a_fault_is_found_and_can_be_seen_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seed", "1", "--seconds", "60", "--save", str(tmp_path)], [PLANTED]) == 1
    (kept,) = tmp_path.iterdir()
    assert kept.read_bytes() == b"\\"
    shown = capsys.readouterr().out
    assert "AssertionError: planted" in shown
    assert f"again: python -m tests.fuzz --target '^planted$' --replay {kept}" in shown
    again = ["--target", "^planted$", "--replay", str(kept), "--save", str(tmp_path)]
    assert main(again, [PLANTED]) == 1


def test_an_input_that_takes_too_long_is_a_fault() -> None:
    failure = Fuzzer(ENDLESS, seed=1, limit=0.05).run(1000)
    assert failure is not None
    assert "TooSlowError: more than 0.05 s of CPU" in failure.text


def test_what_is_quick_enough_is_let_pass() -> None:
    with bounded(5.0):
        assert _planted(b"x") == "read"


def test_each_target_gets_its_share(capsys: pytest.CaptureFixture[str]) -> None:
    well = Target("well", [b"x"], lambda data: "read")
    assert main(["--inputs", "120", "--seconds", "60"], [well, well]) == 0
    assert capsys.readouterr().err.endswith("240 inputs of 2 kinds\n")


def test_a_pattern_that_matches_nothing_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--target", "nothing"], [PLANTED]) == 2
    assert "'nothing'" in capsys.readouterr().err


def test_the_seed_alone_says_which_inputs_are_tried() -> None:
    def tried(seed: int) -> list[bytes]:
        seen: list[bytes] = []

        def note(data: bytes) -> str:
            seen.append(data)
            return "seen"

        Fuzzer(Target("x", [b"[1, 2]"], note), seed).run(50)
        return seen

    assert tried(1) == tried(1)
    assert tried(1) != tried(2)


def test_inputs_are_no_longer_than_they_may_be() -> None:
    mutator = Mutator(Random(1), longest=500)
    made = [mutator.make([b'{"a": [1, 2]}', b"x" * 500]) for _ in range(1000)]
    assert max(map(len, made)) == 500


def test_what_fails_is_made_smaller() -> None:
    assert shrunk(b"x" * 300 + b"ab" + b"y" * 300, lambda data: b"ab" in data) == b"ab"


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256))])
def test_chunks_are_all_of_the_data_and_always_the_same(data: bytes) -> None:
    assert b"".join(chunks(data)) == data
    assert list(chunks(data)) == list(chunks(data))
