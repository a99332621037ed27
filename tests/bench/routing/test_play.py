"""Whole runs on small fleets."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import frozen

from pointsman.actors.sim.latency import LatencyProfile
from pointsman.actors.sim.work import EngineConfig
from pointsman.kernel.plugin import Role

from .fleet import Sizes
from .mooncake import Mooncake
from .play import Play
from .policies import (
    LOAD_ONLY,
    RANDOM,
    REFERENCE,
    ROUND_ROBIN,
    PluginsFailed,
    Policy,
    compared,
    with_active,
)
from .small import FOUR, TWO, conversations, shop
from .tallies import Result, percentile
from .workloads import Arrival, Segment, Workload, prompt_of

pytestmark = pytest.mark.long

CHAT = Mooncake(entries=conversations(12, 6))
EVERY = pytest.mark.parametrize("policy", compared([2, 4]), ids=lambda policy: policy.name)


def result(policy: Policy, workload: Workload, *, sizes: Sizes = FOUR, seed: int = 1) -> Result:
    return Play.of(policy, workload, sizes, seed).run()


@EVERY
def test_every_request_is_answered_once_and_nothing_stays_behind(policy: Policy) -> None:
    workload = shop(seconds=5)
    play = Play.of(policy, workload, FOUR, seed=1)
    outcome = play.run()
    sent = list(workload.arrivals(1))
    assert outcome.requests == len(sent)
    assert play.tally.output_tokens == 40 * len(sent)
    assert play.tally.prompt_tokens == sum(one.prompt.length for one in sent)
    assert play.tally.in_flight.total() == 0
    assert all(server.engine.cache.held == 0 for server in play.fleet.servers.values())


def test_the_daemon_hears_of_every_end() -> None:
    play = Play.of(with_active(4), shop(seconds=5), FOUR, seed=1)
    play.run()
    producer = play.router.wiring.installed["inflight-load-producer"].plugin
    assert len(producer.ledger) == 0


@EVERY
def test_the_same_seed_gives_the_same_figures(policy: Policy) -> None:
    assert result(policy, CHAT, seed=2) == result(policy, CHAT, seed=2)
    assert result(policy, CHAT, seed=2) != result(policy, CHAT, seed=3)


def test_a_run_in_which_a_plugin_failed_has_no_figures() -> None:
    play = Play.of(REFERENCE, shop(seconds=1), TWO, seed=1)
    play.router.wiring.installed["queue-scorer"].failed(Role.SCORER, ZeroDivisionError())
    with pytest.raises(PluginsFailed, match="plugins failed: queue-scorer"):
        play.run()


def test_a_policy_does_not_change_what_is_asked() -> None:
    asked = [result(policy, shop(seconds=5)).requests for policy in (RANDOM, REFERENCE)]
    assert asked[0] == asked[1]


def test_round_robin_gives_each_server_its_turn() -> None:
    play = Play.of(ROUND_ROBIN, shop(seconds=5), TWO, seed=1)
    outcome = play.run()
    picks = [identity.picks for identity in play.fleet.servers]
    assert sum(picks) == outcome.requests
    assert max(picks) - min(picks) <= 1


def test_prefix_aware_beats_random_on_the_small_shop() -> None:
    aware, blind = result(with_active(4), shop()), result(RANDOM, shop())
    assert aware.captured >= 0.95 > blind.captured
    assert aware.hit > blind.hit + 0.2
    assert aware.ttft_p90 < blind.ttft_p90


def test_prefix_aware_beats_random_on_small_conversations() -> None:
    aware, blind = result(with_active(4), CHAT), result(RANDOM, CHAT)
    assert aware.captured > blind.captured + 0.2
    assert aware.hit > blind.hit
    assert aware.ttft_p50 < blind.ttft_p50


def test_load_only_is_more_even_than_random() -> None:
    assert result(LOAD_ONLY, shop()).unevenness < result(RANDOM, shop()).unevenness


# -- one prefix for all ----------------------------------------------------------------------

TWO_SECONDS = LatencyProfile(
    prefill_overhead=0.0,
    prefill_time_per_token=0.0,
    inter_token_latency=0.02,
    time_factor_under_load=1.0,
)
EIGHT_SLOTS = Sizes(4, EngineConfig(max_num_seqs=8, num_gpu_blocks=2048, profile=TWO_SECONDS))


@frozen
class Burst:
    """200 requests that begin with the same 2,000 tokens, 50 ms apart; each takes 2 s."""

    own: int
    """Tokens at the end that are nobody else's."""
    name: str = "burst"

    def __len__(self) -> int:
        return 200

    def arrivals(self, seed: int) -> list[Arrival]:
        system = Segment(1, 2000)
        return [
            Arrival(n * 0.05, prompt_of([system, Segment(2 + n, self.own)]), 100)
            for n in range(len(self))
        ]


def burst(policy: Policy, own: int) -> tuple[float, float]:
    """The busiest server's share of the requests, and the 95th percentile of waiting."""
    play = Play.of(policy, Burst(own), EIGHT_SLOTS, seed=1)
    play.run()
    picks = Counter({one.uid: one.picks for one in play.fleet.servers})
    return max(picks.values()) / picks.total(), percentile(play.tally.ttft, 95)


OWN = pytest.mark.parametrize("own", [0, 100], ids=["identical prompts", "a common prefix"])


@OWN
@pytest.mark.parametrize("weight", [3, 4])
def test_s_06_one_prefix_of_all_requests_spreads_before_queues_build(
    weight: float, own: int
) -> None:
    """40 requests at a time for 32 slots: taking turns is the best that can be done."""
    share, waiting = burst(with_active(weight), own)
    _, least = burst(ROUND_ROBIN, own)
    assert share <= 0.5
    assert waiting <= 1.05 * least


@OWN
def test_s_06_without_active_requests_one_prefix_draws_all_requests_to_one_server(
    own: int,
) -> None:
    """Why the reference's default is not enough: the prefix outweighs whatever is reported."""
    share, waiting = burst(REFERENCE, own)
    assert share == 1.0
    assert waiting > 30.0
