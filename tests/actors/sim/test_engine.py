"""The engine: batching, slots, queue, prefix cache and adapters, on time from outside."""

from __future__ import annotations

import pytest

from pointsman.actors.sim.engine import Engine
from pointsman.actors.sim.latency import LatencyProfile
from pointsman.actors.sim.work import (
    EngineConfig,
    Event,
    Finished,
    FirstToken,
    Generation,
    NeverFits,
    QueueFull,
    Tokens,
    Work,
)

EXACT = LatencyProfile(
    prefill_overhead=1.0,
    prefill_time_per_token=0.01,
    prefill_std=0.0,
    inter_token_latency=0.5,
    inter_token_std=0.0,
    time_factor_under_load=1.0,
)
PROMPT = Work(prompt_tokens=100, output_tokens=5)


def engine(
    *, slots: int = 8, queue: int | None = None, loras: int = 0, blocks: int = 2048
) -> Engine:
    return Engine(
        EngineConfig(
            max_num_seqs=slots,
            max_num_queued_reqs=queue,
            max_loras=loras,
            num_gpu_blocks=blocks,
            profile=EXACT,
        )
    )


def drained(subject: Engine) -> list[Event]:
    """All that is still to come, told as it comes."""
    events: list[Event] = []
    while (due := subject.next_at()) is not None:
        events += subject.advance(due)
    return events


def finish_order(events: list[Event]) -> list[Generation]:
    return [event.generation for event in events if isinstance(event, Finished)]


def test_a_request_alone_takes_what_the_latency_model_says() -> None:
    subject = engine()
    generation = subject.submit(PROMPT, 10.0)
    assert drained(subject) == [FirstToken(generation, 12.0), Finished(generation, 14.0)]
    assert (generation.generated, generation.reason) == (5, "length")


def test_everything_slows_down_while_others_run() -> None:
    profile = LatencyProfile(
        prefill_overhead=1.0,
        prefill_time_per_token=0.0,
        prefill_std=0.0,
        inter_token_latency=0.5,
        inter_token_std=0.0,
        time_factor_under_load=2.0,
    )
    subject = Engine(EngineConfig(max_num_seqs=2, profile=profile))
    first = subject.submit(Work(prompt_tokens=10, output_tokens=100), 0.0)
    second = subject.submit(Work(prompt_tokens=10, output_tokens=2), 0.5)
    drained(subject)
    assert first.first_token == 1.0
    assert second.first_token == 1.0 + 2.0 * (1.0 + 0.5)  # its prompt and the other's token
    assert second.ended == 4.0 + 2.0 * 0.5


def test_one_prompt_delays_another() -> None:
    subject = engine()
    generations = [subject.submit(PROMPT, 0.0) for _ in range(3)]
    drained(subject)
    # the second and third are computed together, beside the first one's second token
    assert [each.first_token for each in generations] == [2.0, 5.5, 5.5]


def test_a_long_prompt_is_computed_in_parts_between_the_tokens_of_others() -> None:
    subject = engine()
    short = subject.submit(Work(prompt_tokens=1, output_tokens=4, streams=True), 0.0)
    long = subject.submit(Work(prompt_tokens=4096, output_tokens=1), 0.5)
    told = [event for event in drained(subject) if event.generation is short]
    assert [type(event) for event in told] == [FirstToken, Tokens, Tokens, Tokens, Finished]
    assert told[1].at == pytest.approx(1.01 + 1.0 + 20.47 + 0.5)  # 2,047 tokens and its own
    assert long.first_token is not None
    assert told[2].at < long.first_token


def test_those_who_find_no_slot_wait_in_their_order() -> None:
    subject = engine(slots=2)
    generations = [subject.submit(PROMPT, 0.0) for _ in range(5)]
    assert (subject.running, subject.waiting) == (1, 4)
    events = subject.advance(4.0)
    assert (subject.running, subject.waiting) == (2, 3)
    assert finish_order(events + drained(subject)) == generations


def test_a_slot_that_gets_free_is_taken_at_once() -> None:
    subject = engine(slots=1)
    first, second = subject.submit(PROMPT, 0.0), subject.submit(PROMPT, 0.0)
    drained(subject)
    assert first.ended == second.started == 4.0


def test_an_arrival_joins_the_batch_after_the_running_iteration() -> None:
    subject = engine()
    subject.submit(Work(prompt_tokens=100, output_tokens=100), 0.0)
    late = subject.submit(PROMPT, 10.2)
    drained(subject)
    assert late.started == 10.5


def test_a_prefix_that_was_seen_is_not_computed_again() -> None:
    subject = engine()
    work = Work(prompt_tokens=100, output_tokens=1, blocks=[1, 2, 3, 4, 5, 6])
    drained_first = subject.submit(work, 0.0)
    drained(subject)
    again = subject.submit(work, 10.0)
    drained(subject)
    assert (drained_first.cached_tokens, again.cached_tokens) == (0, 96)
    assert again.first_token == pytest.approx(11.04)


def test_at_least_one_token_of_a_prompt_is_computed() -> None:
    subject = engine()
    work = Work(prompt_tokens=32, output_tokens=1, blocks=[1, 2])
    subject.submit(work, 0.0)
    drained(subject)
    again = subject.submit(work, 10.0)
    drained(subject)
    assert again.cached_tokens == 16


def test_an_answer_is_part_of_the_next_prompts_prefix() -> None:
    subject = engine()
    turn = Work(prompt_tokens=20, output_tokens=29, blocks=[1, 2, 3])
    subject.submit(turn, 0.0)
    drained(subject)
    following = subject.submit(Work(prompt_tokens=60, output_tokens=1, blocks=[1, 2, 3]), 50.0)
    drained(subject)
    assert following.cached_tokens == 48


def test_a_request_waits_until_all_its_blocks_are_free() -> None:
    subject = engine(blocks=10)
    first = subject.submit(Work(prompt_tokens=100, output_tokens=10), 0.0)
    second = subject.submit(Work(prompt_tokens=100, output_tokens=10), 0.0)
    third = subject.submit(Work(prompt_tokens=16, output_tokens=1), 0.0)
    drained(subject)
    assert first.ended == second.started
    assert third.started == second.started  # it does not overtake


def test_usage_of_the_cache_grows_with_the_tokens() -> None:
    subject = engine(blocks=100)
    subject.submit(Work(prompt_tokens=16, output_tokens=33), 0.0)
    usages: list[float] = []
    for now in (0.0, 1.2, 1.7, 9.5, 18.0):
        subject.advance(now)
        usages.append(subject.kv_cache_usage)
    assert usages == [0.01, 0.02, 0.02, 0.03, 0.0]


def test_requests_of_too_many_adapters_wait_and_others_pass_them() -> None:
    subject = engine(loras=1)
    works = [
        Work(prompt_tokens=10, output_tokens=3, adapter=adapter) for adapter in ("a", "b", None)
    ]
    first, deferred, base = (subject.submit(work, 0.0) for work in works)
    subject.advance(1.5)
    assert (subject.running, subject.waiting, subject.deferred) == (2, 1, 1)
    assert deferred.started is None
    drained(subject)
    assert first.ended is not None
    assert base.started == 1.1
    assert deferred.started == pytest.approx(first.ended)


def test_the_states_of_the_adapters_are_dated_and_the_last_is_the_latest() -> None:
    subject = engine(loras=1)
    subject.submit(Work(prompt_tokens=10, output_tokens=1, adapter="a"), 1.0)
    subject.submit(Work(prompt_tokens=10, output_tokens=1, adapter="b"), 1.5)
    subject.advance(2.5)
    changes = subject.adapters.changes
    assert changes == pytest.approx(
        {("a", ""): 1.0, ("a", "b"): 1.5, ("", "b"): 2.1, ("b", ""): 2.1}, abs=1e-5
    )
    assert changes["b", ""] > changes["", "b"]


def test_old_states_of_the_adapters_are_forgotten() -> None:
    subject = engine(loras=1)
    for number in range(100):
        work = Work(prompt_tokens=10, output_tokens=1, adapter=f"a{number}")
        subject.submit(work, number * 5.0)
    assert len(subject.adapters.changes) == 64
    assert next(reversed(subject.adapters.changes)) == ("a99", "")


def test_a_full_queue_takes_nobody() -> None:
    subject = engine(slots=1, queue=1)
    subject.submit(PROMPT, 0.0)
    subject.submit(PROMPT, 0.0)
    with pytest.raises(QueueFull):
        subject.submit(PROMPT, 0.0)
    assert (subject.waiting, subject.stats.rejected) == (1, 1)


def test_what_could_never_run_is_refused_at_once() -> None:
    with pytest.raises(NeverFits):
        engine(blocks=4).submit(Work(prompt_tokens=60, output_tokens=5), 0.0)


def test_cancelling_frees_the_slot_for_the_next() -> None:
    subject = engine(slots=1)
    first, second = subject.submit(PROMPT, 0.0), subject.submit(PROMPT, 0.0)
    subject.advance(2.7)
    subject.cancel(first, 2.7)
    assert (first.reason, first.generated, subject.running) == ("abort", 2, 0)
    assert finish_order(drained(subject)) == [second]
    assert second.started == 3.0
    assert subject.stats.finished == {
        "stop": 0,
        "length": 1,
        "abort": 1,
        "error": 0,
        "repetition": 0,
    }


def test_cancelling_a_prompt_that_is_being_computed_frees_its_slot() -> None:
    subject = engine()
    generation = subject.submit(PROMPT, 0.0)
    subject.cancel(generation, 1.0)
    assert drained(subject) == []
    assert (subject.running, subject.cache.held, generation.first_token) == (0, 0, None)


def test_cancelling_one_who_waits_takes_it_out_of_the_queue() -> None:
    subject = engine(slots=1)
    subject.submit(PROMPT, 0.0)
    waiting = subject.submit(PROMPT, 0.0)
    subject.cancel(waiting, 1.0)
    assert (subject.waiting, waiting.reason) == (0, "abort")
    assert waiting not in finish_order(drained(subject))


def test_cancelling_what_has_ended_changes_nothing() -> None:
    subject = engine()
    generation = subject.submit(PROMPT, 0.0)
    drained(subject)
    subject.cancel(generation, 20.0)
    assert generation.reason == "length"


def test_whoever_streams_hears_of_every_iteration() -> None:
    subject = engine()
    generation = subject.submit(Work(prompt_tokens=100, output_tokens=3, streams=True), 0.0)
    assert drained(subject) == [
        FirstToken(generation, 2.0),
        Tokens(generation, 1, 2.5),
        Tokens(generation, 1, 3.0),
        Finished(generation, 3.0),
    ]


def test_tokens_that_came_while_nobody_looked_are_told_together() -> None:
    subject = engine()
    generation = subject.submit(Work(prompt_tokens=100, output_tokens=9, streams=True), 0.0)
    assert subject.advance(3.7) == [FirstToken(generation, 2.0), Tokens(generation, 3, 3.5)]


def test_totals_add_up() -> None:
    subject = engine(slots=2)
    for _ in range(4):
        subject.submit(Work(prompt_tokens=20, output_tokens=3, blocks=[1], asked_tokens=7), 0.0)
    drained(subject)
    stats = subject.stats
    assert (stats.queried_tokens, stats.prompt_tokens, stats.generated_tokens) == (80, 80, 12)
    assert stats.cached_tokens == 48
    assert (stats.first_token.count, stats.inter_token.count) == (4, 8)
    assert (stats.request_asked.sum, stats.request_generation.sum) == (28.0, 12.0)
    assert stats.end_to_end.sum == pytest.approx(stats.queued.sum + stats.inference.sum)
