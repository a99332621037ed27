"""The daemon: what it is built from, and how it ends. C-xx and M-xx are field reports."""

from __future__ import annotations

import logging
import signal
from collections.abc import (
    AsyncGenerator,
    Callable,
)
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
import trio
from trio.testing import MockClock

from pointsman.actors.cli import make_parser
from pointsman.actors.serve import Daemon
from pointsman.kernel.datastore import EndpointSpec, ReplaceEndpoints
from pointsman.kernel.errors import ConfigError
from pointsman.kernel.model import FRESHNESS, WAITING_QUEUE_SIZE
from pointsman.kernel.testing import decide

from .daemons import CONFIG, Make

CACHE = CONFIG.replace("queue-scorer", "kv-cache-utilization-scorer")
A = EndpointSpec(uid="a", name="a", address="127.0.0.1", port=1)


def value(daemon: Daemon, name: str, /, **labels: str) -> float | None:
    return daemon.figures.registry.get_sample_value(name, labels)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


# -- building -------------------------------------------------------------------------------------


def test_the_flags_reach_the_parts_that_they_are_for(make: Make) -> None:
    daemon = make(
        "--grpc-port=7",
        "--bind-address=127.0.0.1",
        "--secure-serving=false",
        "--plain-grpc",
        "--grpc-max-recv-msg-size=1Mi",
        "--refresh-metrics-interval=1s",
        "--metrics-staleness-threshold=10s",
    )
    listening = daemon.server.listening
    assert (listening.host, listening.port, listening.tls) == ("127.0.0.1", 7, None)
    assert (listening.plain, listening.sessions.body_limit) == (True, 1 << 20)
    rhythm = daemon.metrics.rhythm
    assert (rhythm.busy, rhythm.idle, rhythm.stale_after) == (1.0, 2.0, 10.0)


def test_serving_is_secure_unless_said_otherwise(make: Make) -> None:
    assert make().server.listening.tls is not None


@pytest.mark.parametrize("interval", ["0", "1ms", "-5s"])
def test_c_06_a_hostile_interval_is_raised_with_a_warning(
    make: Make, interval: str, caplog: pytest.LogCaptureFixture
) -> None:
    rhythm = make(f"--refresh-metrics-interval={interval}").metrics.rhythm
    assert rhythm.busy == 0.05
    assert complaints(caplog) == ["--refresh-metrics-interval is raised to 0.05 s"]


@pytest.mark.parametrize(("threshold", "seconds"), [("0s", 3.0), ("200ms", 3.0), ("3s", 3.0)])
def test_m_05_the_staleness_threshold_is_several_intervals_at_least(
    make: Make, threshold: str, seconds: float
) -> None:
    flags = ("--refresh-metrics-interval=1s", f"--metrics-staleness-threshold={threshold}")
    assert make(*flags).metrics.rhythm.stale_after == seconds


def test_an_interval_beyond_the_idle_one_is_kept_when_idle(make: Make) -> None:
    rhythm = make("--refresh-metrics-interval=5s").metrics.rhythm
    assert (rhythm.busy, rhythm.idle, rhythm.stale_after) == (5.0, 5.0, 15.0)


def test_snapshots_carry_what_the_plugins_read(make: Make) -> None:
    columns = make().datastore.snapshot.columns
    assert columns.keys() == {WAITING_QUEUE_SIZE.name, FRESHNESS.name}


def test_the_warnings_of_a_configuration_are_said(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    old = "apiVersion: inference.networking.x-k8s.io/v1alpha1\n"
    make(config=old + CONFIG)
    (complaint,) = complaints(caplog)
    assert "is deprecated" in complaint


def test_c_08_a_configuration_without_a_source_of_endpoints_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="name a plugin of type file-discovery"):
        make(config="plugins: [{type: queue-scorer}]")


async def test_a_missing_endpoints_file_is_refused(make: Make, endpoints_file: Path) -> None:
    endpoints_file.unlink()
    with pytest.raises(ConfigError, match=r"endpoints\.yaml: No such file"):
        await make().run()


def test_what_was_opened_before_a_refusal_is_closed() -> None:
    top, _ = make_parser()
    daemon = Daemon(top.parse_args(["serve", "--config-text=plugins: 5"]), Random(0))
    with pytest.raises(ConfigError):
        daemon.build()
    assert not daemon.inbox.offer(ReplaceEndpoints([]))


# -- what it shows --------------------------------------------------------------------------------


def test_m_12_the_pool_is_counted_also_when_it_is_empty(make: Make) -> None:
    daemon = make()
    ready = "llm_d_epp_ready_endpoints"
    assert value(daemon, ready, name="") == 0
    daemon.datastore.apply(ReplaceEndpoints([A]))
    assert value(daemon, ready, name="") == 1
    daemon.datastore.apply(ReplaceEndpoints([]))
    assert value(daemon, ready, name="") == 0


def test_open_streams_and_stale_endpoints_are_counted(make: Make) -> None:
    daemon = make()
    assert value(daemon, "pointsman_stale_endpoints") == 0
    daemon.server.open_streams.set(3)
    assert value(daemon, "pointsman_open_streams") == 3


@pytest.mark.parametrize(
    ("address", "shown"),
    [(None, False), ("0.0.0.0", False), ("10.0.0.1", False), ("127.0.0.1", True), ("::1", True)],
)
def test_z_05_only_the_machine_itself_may_look_inside(
    make: Make, address: str | None, shown: bool
) -> None:
    flags = () if address is None else (f"--bind-address={address}",)
    assert bool(make(*flags)._debug_pages()) is shown


def test_the_debug_pages_show_endpoints_and_plugins(make: Make) -> None:
    daemon = make("--bind-address=127.0.0.1")
    daemon.datastore.apply(ReplaceEndpoints([A]))
    pages = daemon._debug_pages()
    assert "default/a" in str(pages["/debug/endpoints"]())
    assert "queue-scorer" in str(pages["/debug/plugins/state"]())
    state: Any = pages["/debug/state"]()
    del state["timestamp"]
    assert state == {
        "pool": None,
        "endpoints": 1,
        "objectives": {},
        "rewrite_rules": [],
        "skipped": {},
        "watch_age_seconds": {},
    }


def test_readiness_says_what_it_waits_for(make: Make) -> None:
    daemon = make()
    assert daemon._waits_for() == "the first list of endpoints"
    daemon.discovery.synced.set(True)
    assert daemon._waits_for() == "the endpoints' first reports"
    daemon.draining = True
    assert daemon._waits_for() == "draining"


async def test_readiness_follows_the_pool(
    make: Make, unfrozen: None, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    daemon = make()
    daemon.datastore.apply(ReplaceEndpoints([]))
    nursery.start_soon(daemon._follow_readiness)
    for there in (True, False, True):
        daemon.discovery.synced.set(there)
        await anyio.sleep(3)
        assert daemon.ready.value is there


# -- another configuration ------------------------------------------------------------------------


def rewire(daemon: Daemon, text: str, endpoints_file: Path) -> None:
    daemon.rewire(text.replace("PATH", str(endpoints_file)), "config.yaml")


def test_another_configuration_takes_the_place_of_the_first(
    make: Make, endpoints_file: Path
) -> None:
    daemon = make()
    rewire(daemon, CACHE, endpoints_file)
    assert "kv-cache-utilization-scorer" in daemon.wiring.value.installed
    assert "kv-cache-usage" in daemon.datastore.snapshot.columns


def test_requests_under_way_end_on_the_configuration_that_they_began_with(
    make: Make, endpoints_file: Path
) -> None:
    daemon = make()
    daemon.datastore.apply(ReplaceEndpoints([A]))
    before = daemon.wiring.value
    rewire(daemon, CACHE, endpoints_file)
    assert decide(before, daemon.datastore.snapshot).decision.destination == "127.0.0.1:1"


def test_a_bad_configuration_leaves_everything_as_it_was(make: Make) -> None:
    daemon = make()
    with pytest.raises(ConfigError):
        daemon.rewire("plugins: [{type: queue-scorr}]", "config.yaml")
    assert daemon.wiring.version == 0


def test_another_source_of_endpoints_needs_a_restart_and_says_so(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rewire(make(), CONFIG, tmp_path / "elsewhere.yaml")
    assert "another source of endpoints takes effect with the next start" in complaints(caplog)


# -- the end --------------------------------------------------------------------------------------


@asynccontextmanager
async def draining(daemon: Daemon) -> AsyncGenerator[Callable[[], None]]:
    """A daemon that drains; sends it another signal. The block may not leave before it is done."""
    send, receive = anyio.create_memory_object_stream[object](1)
    with send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(daemon._drain, receive)
            await anyio.sleep(0.001)
            yield lambda: send.send_nowait(signal.SIGTERM)


async def test_p_18_a_daemon_that_drains_is_unready_at_once(
    make: Make, autojump_clock: MockClock
) -> None:
    daemon = make()
    daemon.ready.set(True)
    async with draining(daemon):
        assert not daemon.ready.value


async def test_draining_ends_when_no_stream_was_open_for_a_while(
    make: Make, autojump_clock: MockClock
) -> None:
    async with draining(make()):
        pass
    assert 5 <= anyio.current_time() < 5.1


async def test_p_18_draining_goes_on_while_streams_are_open(
    make: Make, autojump_clock: MockClock
) -> None:
    daemon = make()
    daemon.server.open_streams.set(1)
    async with draining(daemon):
        await anyio.sleep(12)
        daemon.server.open_streams.set(0)
        await anyio.sleep(1)
        daemon.server.open_streams.set(1)  # a request that still arrives is served
        await anyio.sleep(3)
        daemon.server.open_streams.set(0)
    assert 21 <= anyio.current_time() < 21.1


async def test_p_18_draining_ends_at_its_limit_whatever_is_open(
    make: Make, autojump_clock: MockClock
) -> None:
    daemon = make()
    daemon.server.open_streams.set(1)
    async with draining(daemon):
        pass
    assert 30 <= anyio.current_time() < 30.1


async def test_p_18_another_signal_ends_the_draining(make: Make, autojump_clock: MockClock) -> None:
    daemon = make()
    daemon.server.open_streams.set(1)
    async with draining(daemon) as another_signal:
        await anyio.sleep(3)
        another_signal()
    assert 3 <= anyio.current_time() < 3.1


async def test_a_drain_timeout_of_nothing_ends_at_once(
    make: Make, autojump_clock: MockClock
) -> None:
    daemon = make("--drain-timeout=0")
    daemon.server.open_streams.set(1)
    async with draining(daemon):
        pass
    assert anyio.current_time() < 0.1


async def test_readiness_waits_for_the_first_reports_but_not_for_ever(
    make: Make, unfrozen: None, autojump_clock: MockClock
) -> None:
    """Nobody asks the endpoint here, as if it hung."""
    daemon = make()
    daemon.datastore.apply(ReplaceEndpoints([A]))
    daemon.discovery.synced.set(True)
    await daemon._become_ready()
    assert daemon.ready.value
    assert anyio.current_time() == pytest.approx(2.0)
