"""Nothing hangs and nothing is forgotten when the picker or Envoy goes while many requests run."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Final

import anyio
import httpx
import pytest
from attrs import evolve

from pointsman.actors.sim.envoy import envoy
from pointsman.actors.sim.envoy_bootstrap import EnvoySettings, Mode

from .gateway import SOON, Gateway, Layout, eventually, gateway, running_picker, scored_by
from .load import STREAMS, Ending, Load, gauges, load
from .modes import INCREMENTAL, in_each

DRAIN: Final = SOON  # seconds: the clients never pause, so a second signal has to end it
RUNNING: Final = ("pointsman_open_streams", "llm_d_epp_request_running")
SENT: Final = "llm_d_epp_inflight_requests"
"""Is there only for endpoints that something was sent to."""
UNHARMED: Final = {Ending.WHOLE, Ending.LEFT}
ANY: Final = set(Ending)

# httpx leaves its own iterator over a body to the garbage collector when a client leaves early.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <async_generator object ByteStream"
    ":pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture
def counting(pointsman: Layout) -> Layout:
    """A picker that counts what it sent to each model server."""
    config = scored_by({"active-request-scorer": 1, "queue-scorer": 1}, pointsman.endpoints)
    flags = (*pointsman.flags, f"--drain-timeout={DRAIN:g}s")
    return evolve(pointsman, config=config, flags=flags)


def recommended(where: Layout, mode: Mode) -> EnvoySettings:
    """As in deploy/envoy: over TLS, and lean buffered goes on without a picker."""
    lean = mode is Mode.LEAN_BUFFERED
    return evolve(where.envoy(), mode=mode, failure_mode_allow=lean, picker_tls=True)


async def assert_all_run(under_test: Gateway) -> None:
    found = await gauges(under_test)
    assert min(found[name] for name in (*RUNNING, SENT)) >= STREAMS


async def assert_at_rest(under_test: Gateway) -> None:
    """Picker and Envoy know that all requests have ended, and serve the next ones."""

    async def is_at_rest() -> bool:
        believed = await gauges(under_test)
        active = await under_test.stat("http.inference.downstream_rq_active")
        return believed == dict.fromkeys(RUNNING, 0) and not active

    await eventually(is_at_rest)
    assert (await under_test.chat()).status_code == 200
    assert (await under_test.chat(stream=True)).status_code == 200
    await eventually(is_at_rest)


async def assert_another_takes_over(under_test: Gateway, clients: Load) -> None:
    async def picks() -> bool:
        return RUNNING[1] in await gauges(under_test)

    where = under_test.layout
    async with running_picker(where, where.servers, tls=True):
        await clients.is_served_again()
        await eventually(picks)
        await clients.end()
        await assert_at_rest(under_test)


@in_each(INCREMENTAL)
async def test_no_request_hangs_when_the_picker_is_killed(counting: Layout, mode: Mode) -> None:
    lean = mode is Mode.LEAN_BUFFERED
    async with (
        gateway(counting, recommended(counting, mode)) as under_test,
        load(counting) as clients,
    ):
        await assert_all_run(under_test)
        under_test.picker.kill()
        await under_test.picker.wait()
        await assert_another_takes_over(under_test, clients)
    assert clients.streams == {Ending.WHOLE if lean else Ending.CUT: STREAMS}
    assert clients.others.keys() <= (UNHARMED if lean else ANY)


@in_each(INCREMENTAL)
async def test_no_request_hangs_when_the_picker_is_terminated(counting: Layout, mode: Mode) -> None:
    async def is_draining() -> bool:
        return not await counting.is_ready()

    async with (
        gateway(counting, recommended(counting, mode)) as under_test,
        load(counting) as clients,
    ):
        await assert_all_run(under_test)
        under_test.picker.terminate()
        await eventually(is_draining)
        clients.release()
        await eventually(lambda: clients.streams.total() == STREAMS)
        under_test.picker.terminate()
        with anyio.fail_after(SOON):
            assert await under_test.picker.wait() == 0
        await assert_another_takes_over(under_test, clients)
    assert clients.streams == {Ending.WHOLE: STREAMS}
    assert clients.others.keys() <= (UNHARMED if mode is Mode.LEAN_BUFFERED else ANY)


@in_each(INCREMENTAL)
async def test_no_request_hangs_or_stays_counted_when_envoy_is_restarted(
    counting: Layout, mode: Mode
) -> None:
    settings = recommended(counting, mode)
    counting.write_files(counting.servers)
    log = counting.folder / "envoy.log"
    async with (
        running_picker(counting, counting.servers, tls=True) as picker,
        httpx.AsyncClient(base_url=settings.url, trust_env=False, timeout=SOON) as client,
    ):
        under_test = Gateway(counting, settings, client, picker)
        async with AsyncExitStack() as first:
            await first.enter_async_context(envoy(settings, log_to=log))
            async with load(counting) as clients:
                await assert_all_run(under_test)
                await first.aclose()
                async with envoy(settings, log_to=log):
                    await clients.is_served_again()
                    await clients.end()
                    await assert_at_rest(under_test)
    assert clients.streams == {Ending.CUT: STREAMS}
    assert clients.others.keys() <= UNHARMED | {Ending.CUT}
