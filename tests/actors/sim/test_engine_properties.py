"""What holds for every engine, whatever is submitted and cancelled when."""

from __future__ import annotations

import attrs
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.engine import Engine
from pointsman.actors.sim.work import (
    EngineConfig,
    Event,
    Finished,
    Generation,
    QueueFull,
    Tokens,
    Work,
)


def work(prompt: int, output: int, group: int, adapter: str | None, streams: bool) -> Work:
    blocks = [group * 1000 + depth for depth in range(prompt // 16)]
    return Work(
        prompt_tokens=prompt,
        output_tokens=output,
        blocks=blocks,
        adapter=adapter,
        streams=streams,
    )


works = st.builds(
    work,
    st.integers(1, 200),
    st.integers(1, 30),
    st.integers(0, 3),
    st.sampled_from([None, None, "a", "b", "c"]),
    st.booleans(),
)
scripts = st.lists(st.tuples(st.floats(0, 0.5), works, st.booleans()), min_size=1, max_size=25)
Script = list[tuple[float, Work, bool]]


@define(eq=False)
class Play:
    """Submits each work after its pause, and cancels the oldest where the script says so."""

    script: Script
    engine: Engine = field(
        factory=lambda: Engine(
            EngineConfig(max_num_seqs=3, max_loras=1, num_gpu_blocks=40, max_num_queued_reqs=9), 1
        )
    )
    submitted: list[Generation] = field(factory=list[Generation], init=False)
    told: list[tuple[str, int, float]] = field(factory=list[tuple[str, int, float]], init=False)
    """What happened, to the request of which number, when."""

    def run(self) -> Play:
        now, cancelled = 0.0, 0
        for pause, each, cancels in self.script:
            now += pause
            self._advance(now)
            try:
                self.submitted.append(self.engine.submit(each, now))
            except QueueFull:
                continue
            if cancels:
                self.engine.cancel(self.submitted[cancelled], now)
                cancelled += 1
        self._advance(float("inf"))
        return self

    def _advance(self, now: float) -> None:
        while (due := self.engine.next_at()) is not None and due <= now:
            for event in self.engine.advance(due):
                self._note(event)

    def _note(self, event: Event) -> None:
        if not isinstance(event, Tokens):
            number = self.submitted.index(event.generation)
            self.told.append((type(event).__name__, number, event.at))


@given(scripts)
def test_every_request_ends_once(script: Script) -> None:
    play = Play(script).run()
    finished = [number for kind, number, _at in play.told if kind == Finished.__name__]
    aborted = [number for number, each in enumerate(play.submitted) if each.reason == "abort"]
    assert sorted(finished + aborted) == list(range(len(play.submitted)))
    assert len(play.submitted) + play.engine.stats.rejected == len(script)


@given(scripts)
def test_nothing_is_left_behind(script: Script) -> None:
    engine = Play(script).run().engine
    assert (engine.running, engine.waiting, engine.cache.held) == (0, 0, 0)
    assert engine.kv_cache_usage == 0.0
    assert engine.adapters.fits("another")
    assert engine.next_at() is None


@given(scripts)
def test_no_more_is_cached_than_was_asked(script: Script) -> None:
    for each in Play(script).run().submitted:
        assert 0 <= each.cached_tokens < each.work.prompt_tokens


@given(scripts)
def test_a_requests_times_are_in_order(script: Script) -> None:
    for each in Play(script).run().submitted:
        stages = (each.arrived, each.started, each.first_token, each.ended)
        times = [time for time in stages if time is not None]
        assert times == sorted(times)
        assert each.reason == "abort" or (len(times), each.done) == (4, True)


@given(scripts)
def test_the_same_seed_and_calls_give_the_same_events(script: Script) -> None:
    assert Play(script).run().told == Play(script).run().told


@given(scripts)
def test_it_makes_no_difference_who_listens(script: Script) -> None:
    def listening(streams: bool) -> Play:
        changed = [(pause, attrs.evolve(each, streams=streams), c) for pause, each, c in script]
        return Play(changed).run()

    loud, silent = listening(True), listening(False)
    assert loud.told == silent.told
    assert loud.engine.stats.inter_token.counts == silent.engine.stats.inter_token.counts
