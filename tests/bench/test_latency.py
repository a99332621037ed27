from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from threading import Thread
from typing import Any

import pytest

from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, HostPort, bootstrap

from .http_load import http_client, post
from .latency import EXT_PROC, PATIENCE, QUIET, Arm, Run, table, without_ext_proc
from .process import MachineTime, keep_to
from .server import model_servers
from .stream import LoadError

pytestmark = pytest.mark.long

HERE = HostPort("127.0.0.1", 1)


@pytest.fixture(scope="module")
def upstream() -> Generator[int]:
    """The port of a model server on 127.0.0.1."""
    with model_servers("127.0.0", 1) as models:
        yield models.port


def filters(config: Any) -> list[str]:
    (listener,) = config["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    return [each["name"] for each in manager["http_filters"]]


def test_the_yardstick_differs_by_the_filter_that_asks_the_picker() -> None:
    config: Any = bootstrap(EnvoySettings(listen=HERE, admin=HERE, picker=HERE, fallback=(HERE,)))
    plain = without_ext_proc(config)
    assert EXT_PROC in filters(config)
    assert [name for name in filters(config) if name != EXT_PROC] == filters(plain)
    assert plain["static_resources"]["clusters"] == config["static_resources"]["clusters"]


def arm(name: str, *runs: Run) -> Arm:
    return Arm(name, 0, 2, list(runs))


def test_what_is_added_is_told_by_the_latencies_of_the_quietest_runs() -> None:
    plain = arm("plain", Run([1.0] * 99, 0.0), Run([9.0] * 99, 0.2), Run([2.0] * 101, 0.1))
    lean = arm("lean", Run([3.0] * 197 + [4.0] * 3, 0.0), Run([], 0.0))
    *_, row = table([plain, lean]).splitlines()
    assert row.split() == ["lean", "3.00", "4.00", "1.00", "2.00", "3.00", "2", "of", "2"]


def test_more_than_the_budget_is_marked() -> None:
    *_, row = table([arm("plain", Run([1.0], 0.0)), arm("slow", Run([4.1], 0.0))]).splitlines()
    assert "OVER" in row


def test_runs_are_repeated_until_enough_were_quiet_or_there_were_too_many() -> None:
    quiet, loud = Run([1.0], QUIET), Run([1.0], 2 * QUIET)
    assert not arm("a", quiet, loud, loud).enough
    assert arm("a", quiet, loud, quiet).enough
    assert arm("a", *[loud] * 2 * PATIENCE).enough


def test_the_machine_knows_how_much_of_its_time_was_taken_away() -> None:
    assert MachineTime(1400, 30).stolen_since(MachineTime(1000, 20)) == 0.025
    now = MachineTime.now()
    assert now.all > now.stolen >= 0
    assert now.stolen_since(now) == 0


def test_a_process_keeps_to_its_cores_and_those_it_starts_do_too() -> None:
    before = os.sched_getaffinity(0)
    keep_to(os.getpid(), {min(before)})
    try:
        command = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"]
        assert subprocess.run(command, capture_output=True, check=True).stdout == (
            f"{{{min(before)}}}\n".encode()
        )
    finally:
        keep_to(os.getpid(), before)


def test_requests_are_played_at_their_rate(upstream: int) -> None:
    with http_client(upstream) as client:
        latencies = client.play(post("/v1/chat/completions", b"{}" * 1000), 30, rate=3000.0)
    assert len(latencies) == 30
    assert min(latencies) > 0


def test_an_answer_that_is_no_200_ends_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(65_536)
                sock.sendall(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")

        thread = Thread(target=refuse)
        thread.start()
        with (
            http_client(listener.getsockname()[1]) as client,
            pytest.raises(LoadError, match="503"),
        ):
            client.play(post("/", b"{}"), 1, rate=1.0)
        thread.join()


def test_a_chunked_answer_is_read_to_its_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(65_536)
                sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
                sock.sendall(b"0\r\n\r\n")

        thread = Thread(target=answer)
        thread.start()
        with http_client(listener.getsockname()[1]) as client:
            assert len(client.play(post("/", b"{}"), 1, rate=1.0)) == 1
        thread.join()
