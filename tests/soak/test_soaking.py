from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .soaking import sample

pytestmark = pytest.mark.long


def test_processes_that_the_daemon_has_started_are_looked_at() -> None:
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        ours, its = sample(1.0, os.getpid(), 3), sample(1.0, child.pid, 3)
        child.communicate(b"\n")
    assert ours.reader > 0
    assert its.reader == 0
    assert ours.open == 3
