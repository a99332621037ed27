"""One run: a workload's requests, decided by one policy, on one fleet, from one seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import final

from attrs import define, field

from pointsman.actors.sim.work import Event, Finished, Generation, Work

from .clock import Clock
from .fleet import Fleet, Sizes
from .policies import Policy, Routed, Router
from .tallies import Result, Tally
from .workloads import ENGINE_BLOCK, Arrival, Workload


@final
@define(eq=False)
class Play:
    """Sends requests as they arrive, and hears when they end."""

    arrivals: Iterator[Arrival]
    clock: Clock
    tally: Tally
    fleet: Fleet = field(init=False)
    router: Router = field(init=False)
    _open: dict[Generation, Routed] = field(factory=dict[Generation, Routed], init=False)
    _coming: Arrival | None = field(default=None, init=False)

    @classmethod
    def of(cls, policy: Policy, workload: Workload, sizes: Sizes, seed: int) -> Play:
        """Raises ConfigError for a policy that the daemon would refuse."""
        play = cls(iter(workload.arrivals(seed)), Clock(), Tally(sizes.servers))
        play.fleet = Fleet.build(sizes, play.clock, play._hear, Random(seed))
        play.router = Router.of(policy, play.fleet.store, seed)
        return play

    def run(self) -> Result:
        """Until every request has been answered; the first one finds the servers scraped.

        Raises PluginsFailed.
        """
        self.fleet.scrape()
        self._expect()
        self.clock.run(until=lambda: self._coming is None and not self._open)
        self.router.check()
        return self.tally.result()

    def _expect(self) -> None:
        self._coming = arrival = next(self.arrivals, None)
        if arrival is not None:
            self.clock.at(arrival.at, lambda: self._arrive(arrival))

    def _arrive(self, arrival: Arrival) -> None:
        self._send(arrival)
        self._expect()

    def _send(self, arrival: Arrival) -> None:
        prompt = arrival.prompt
        routed = self.router.decide(prompt)
        identity = routed.endpoint.identity
        self._judge(routed, prompt.blocks[: (prompt.length - 1) // ENGINE_BLOCK])
        work = Work(
            prompt_tokens=prompt.length,
            output_tokens=arrival.output_tokens,
            blocks=prompt.blocks,
        )
        self._open[self.fleet.servers[identity].submit(work)] = routed
        self.fleet.scrapers[identity].picked()

    def _judge(self, routed: Routed, reusable: Sequence[int]) -> None:
        held = self.fleet.held(reusable)
        endpoint = routed.endpoint
        self.tally.decided(endpoint.name, held=held[endpoint.identity], best=max(held.values()))

    def _hear(self, event: Event) -> None:
        if isinstance(event, Finished):
            routed = self._open.pop(event.generation)
            routed.end()
            self.tally.finished(routed.endpoint.name, event.generation)
