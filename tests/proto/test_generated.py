"""The generated classes: up to date, and light to import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).resolve().parents[2]


def test_the_classes_are_what_the_proto_files_generate_now(tmp_path: Path) -> None:
    fresh = tmp_path / "generated"
    subprocess.run(
        [ROOT / "tools/generate_proto.sh", fresh],
        env={**os.environ, "BIN": str(Path(sys.executable).parent)},
        check=True,
    )
    assert _sources(fresh) == _sources(ROOT / "proto/generated")


def test_importing_the_messages_brings_in_neither_protobuf_nor_grpcio() -> None:
    program = (
        "import sys, pointsman.proto; print(*{'grpc', 'google.protobuf'} & sys.modules.keys())"
    )
    command = [sys.executable, "-P", "-c", program]
    assert subprocess.run(command, check=True, capture_output=True).stdout.split() == []


def _sources(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
