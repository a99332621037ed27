"""The scripts over real gRPC with its own client, on the fast edge and on grpclib's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import chain

import anyio
import pytest
from tests.actors.conversations import asking, playing
from tests.actors.conversations.exchanges import whole
from tests.actors.conversations.phases import DUPLEX, MODES
from tests.actors.conversations.script import Script, Setup, Step, Told
from tests.actors.conversations.scripts import THEMES
from tests.actors.conversations.setups import COUNTING, WAITING
from tests.actors.scripts import Desk

from pointsman.kernel.model import RequestEnd

pytestmark = pytest.mark.long

Hear = Callable[[bool], Mapping[Script, Told]]
SCRIPTS = [script for scripts in THEMES.values() for script in scripts]
edges = pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])


@pytest.fixture(scope="module")
def hear() -> Hear:
    """What the proxies of all scripts hear at an edge, side by side."""

    @cache
    def at(plain: bool) -> Mapping[Script, Told]:
        return anyio.run(partial(asking.told_to_all, SCRIPTS, plain=plain))

    return at


@edges
@pytest.mark.parametrize("theme", THEMES)
def test_proxies_hear_the_bytes_of_the_session_as_the_scripts_expect_them(
    theme: str, plain: bool, hear: Hear
) -> None:
    scripts = THEMES[theme]
    said = anyio.run(playing.told_to_all, scripts, backend="trio")
    heard = {script: hear(plain)[script] for script in scripts}
    assert named(heard) == named(said)
    understood = {script.name: told.understood for script, told in heard.items()}
    assert understood == {script.name: script.expected for script in scripts}


HASTY = (
    "modes that are not known",
    "decisions that wait",
    "empty pieces",
    "responses in other bytes",
)


@edges
def test_proxies_that_wait_for_nothing_hear_the_same(plain: bool) -> None:
    scripts = [script for theme in HASTY for script in THEMES[theme]]
    heard = anyio.run(partial(asking.told_to_all, scripts, plain=plain, patient=False))
    for script in scripts:
        assert heard[script].status == "OK"
        assert heard[script].understood == [tuple(chain.from_iterable(script.expected))], script


def named(told: Mapping[Script, Told]) -> Mapping[str, Told]:
    return {script.name: one for script, one in told.items()}


# -- cancelling ----------------------------------------------------------------------------------


def left_of(desk: Desk) -> tuple[Sequence[RequestEnd], int, Sequence[str]]:
    """The ends that were heard of since; what is still in flight; plugins with a trace of it."""
    installed = desk.wiring.installed
    heard = installed["ears"].plugin.heard
    ends = tuple(heard)
    heard.clear()
    shares = installed["inflight-load-producer"].plugin.ledger.shares()
    in_flight = sum(load.requests for _, _, load in shares)
    return ends, in_flight, [one.name for one in installed.values() if one.failures or one.state]


async def ended(desk: Desk, setup: Setup, steps: Sequence[Step]) -> Sequence[RequestEnd]:
    """How the session that is played to takes it that the stream ends there."""
    it = playing.session(setup, desk)
    await playing.played(it, desk, steps)
    it.close()
    ends, in_flight, traces = left_of(desk)
    assert (in_flight, traces) == (0, [])
    return ends


async def cancelled(house: asking.House, steps: Sequence[Step]) -> None:
    """Talk so far, and go."""
    call = house.call()
    await call.wait_for_connection()
    for one in steps:
        assert await asking.ask(call, one) == one.hears
    with anyio.fail_after(asking.PATIENCE):
        await house.server.open_streams.until(1)
        call.cancel()
        await house.server.open_streams.until(0)


@edges
@pytest.mark.parametrize(
    ("setup", "modes"), [(COUNTING, MODES), (WAITING, (DUPLEX,))], ids=["at once", "waiting"]
)
def test_wherever_a_proxy_cancels_the_end_is_heard_of_and_nothing_stays(
    setup: Setup, modes: Sequence[str], plain: bool
) -> None:
    async def talk() -> None:
        apart = setup.desk()
        async with asking.serving([setup], plain=plain) as houses:
            house = houses[setup]
            for mode in modes:
                script = whole(mode, setup)
                for point in range(len(script.steps)):
                    steps = script.steps[:point]
                    await cancelled(house, steps)
                    ends = await ended(apart, setup, steps)
                    assert left_of(house.desk) == (ends, 0, []), (mode, point)

    anyio.run(talk)
