"""Simulated servers on the clock, and what the daemon hears of them."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

import pytest

from pointsman.actors.metrics import Rhythm
from pointsman.actors.sim.work import Event, Finished, FirstToken, Work
from pointsman.kernel.model import KV_CACHE_USAGE, RUNNING_REQUESTS, WAITING_QUEUE_SIZE

from .clock import Clock
from .fleet import Fleet, Server
from .small import TWO

pytestmark = pytest.mark.long

WORK = Work(prompt_tokens=160, output_tokens=100, blocks=range(10))


def fleet(told: list[Event]) -> Fleet:
    made = Fleet.build(TWO, Clock(), told.append, Random(1))
    made.store.track({WAITING_QUEUE_SIZE.name, RUNNING_REQUESTS.name, KV_CACHE_USAGE.name})
    return made


def test_a_server_tells_the_first_token_and_the_end_when_they_come() -> None:
    told: list[Event] = []
    server, _ = fleet(told).servers.values()
    generation = server.submit(WORK)
    server.clock.run()
    first, last = told
    assert isinstance(first, FirstToken)
    assert isinstance(last, Finished)
    assert (first.at, last.at) == (generation.first_token, generation.ended)
    assert server.clock.now == last.at


def _submit(server: Server) -> None:
    server.submit(WORK)


def test_requests_that_come_in_between_are_served_at_once() -> None:
    """An iteration of one request takes 14 ms: nobody waits for the other to end."""
    told: list[Event] = []
    server, _ = fleet(told).servers.values()
    server.submit(WORK)
    server.clock.at(0.5, partial(_submit, server))
    server.clock.run()
    second = [event for event in told if isinstance(event, FirstToken)][1]
    assert 0.5 < second.at < 0.55


def test_a_scrape_shows_what_the_engine_has() -> None:
    made = fleet([])
    busy, _ = made.servers.values()
    busy.submit(WORK)
    made.scrape()
    columns = made.store.snapshot.columns
    assert columns[RUNNING_REQUESTS.name] == (1.0, 0.0)
    assert columns[KV_CACHE_USAGE.name] == (10 / 2048, 0.0)


def scrapes(until: float, picked: float | None = None) -> list[float]:
    """When a server without requests is scraped; *picked* is when it is chosen nevertheless."""
    made = fleet([])
    identity, server = next(iter(made.servers.items()))
    scraper, clock = made.scrapers[identity], server.clock
    times: list[float] = []
    rounds = [scraper._round]

    def pick() -> None:
        identity.note_pick()
        scraper.picked()
        rounds.append(scraper._round)

    def watched() -> bool:
        if scraper._round not in rounds:
            rounds.append(scraper._round)
            times.append(clock.now)
        return clock.now > until

    scraper.start()
    if picked is not None:
        clock.at(picked, pick)
    clock.run(until=watched)
    return times


def test_an_idle_server_is_scraped_ever_less_often_up_to_the_longest_pause() -> None:
    times = scrapes(20.0)
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] < 0.5
    assert Rhythm().idle * 0.9 <= pauses[-1] <= Rhythm().idle * 1.1


def test_a_pick_brings_the_next_scrape_of_an_idle_server_forward() -> None:
    times = scrapes(20.0, picked=15.05)
    after = [at for at in times if at > 15.05]
    assert after[0] == pytest.approx(15.05 + Rhythm().busy)


def test_what_servers_hold_is_counted_from_the_beginning_of_the_prompt() -> None:
    made = fleet([])
    one, _ = made.servers.values()
    one.submit(WORK)
    assert list(made.held(range(10)).values()) == [10, 0]
    assert list(made.held(range(5, 10)).values()) == [5, 0]
    assert list(made.held([77, *range(9)]).values()) == [0, 0]
