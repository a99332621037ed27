"""One vLLM engine as a state machine: continuous batching, slots, LoRA slots, a prefix cache.

There is no clock in it: times are seconds of the caller's choosing, and nothing happens except
when a call says how late it is. Requests are admitted between iterations, in their order. One
that is admitted gets the blocks for its whole output, so that none is ever preempted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import final

from attrs import define, field

from .adapters import AdapterSlots
from .blocks import BlockCache
from .latency import Pace, jitter
from .stats import EngineStats, token_buckets
from .steps import Step
from .work import (
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


@final
@define(eq=False)
class Engine:
    """Runs what is submitted: the same seed and the same calls give the same events."""

    config: EngineConfig = field(factory=EngineConfig)
    seed: int = 0
    stats: EngineStats = field(init=False)
    cache: BlockCache = field(init=False)
    adapters: AdapterSlots = field(init=False)
    now: float = field(default=0.0, init=False)
    _random: Random = field(init=False)
    _pace: Pace = field(init=False)
    _waiting: deque[Generation] = field(factory=deque[Generation], init=False)
    _prefilling: list[Generation] = field(factory=list[Generation], init=False)
    _decoding: list[Generation] = field(factory=list[Generation], init=False)
    _streaming: int = field(default=0, init=False)
    """How many of those run for somebody who wants to hear of every iteration."""
    _step: Step | None = field(default=None, init=False)
    _iteration: int = field(default=0, init=False)
    _events: list[Event] = field(factory=list[Event], init=False)

    def __attrs_post_init__(self) -> None:
        self.stats = EngineStats(token_buckets(self.config.max_model_len))
        self.cache = BlockCache(self.config.num_gpu_blocks)
        self.adapters = AdapterSlots(self.config.max_loras)
        self._random = Random(self.seed)
        self._pace = Pace.draw(self.config.profile, self._random)

    @property
    def running(self) -> int:
        return len(self._prefilling) + len(self._decoding)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def deferred(self) -> int:
        """Those of the waiting that wait for a LoRA slot."""
        return sum(not self.adapters.fits(each.work.adapter) for each in self._waiting)

    @property
    def kv_cache_usage(self) -> float:
        """The part of all blocks that running requests have filled by now, from 0 to 1."""
        self._settle()
        unfilled = self._unfilled(self._prefilling) + self._unfilled(self._decoding)
        return (self.cache.held - unfilled) / self.cache.capacity

    def submit(self, work: Work, now: float) -> Generation:
        """Queue a request that arrives at *now*.

        Raises:
            QueueFull: there is no slot for it and no place in the queue.
            NeverFits: it would wait for ever.
        """
        self._run_until(now)
        self._check(work)
        generation = Generation(work, self.now)
        self._waiting.append(generation)
        if self._step is None:
            self._begin_step(self.now)
        elif self.running < self.config.max_num_seqs:
            self._step.cut(self.now)
        self._note_adapters(work)
        return generation

    def cancel(self, generation: Generation, now: float) -> None:
        """Drop a request and free its slot at once; one that has ended is left alone."""
        self._run_until(now)
        if generation.ended is not None:
            return
        self._settle()
        if generation.started is None:
            self._waiting.remove(generation)
        else:
            decodes = generation.first_token is not None
            (self._decoding if decodes else self._prefilling).remove(generation)
            self._free(generation)
            if self._step is not None:
                self._step.cut(self.now)
        self._end(generation, "abort", self.now)

    def next_at(self) -> float | None:
        """When `advance` will have something to tell; None while there is nothing to do."""
        if self._events:
            return self.now
        if (step := self._step) is None:
            return None
        if not self._streaming:
            return step.end
        return step.end_of(min(step.done + 1, step.iterations))

    def advance(self, now: float) -> list[Event]:
        """Let time pass until *now* and tell what happened, in order."""
        self._run_until(now)
        if self._streaming:
            self._settle()
        events, self._events = self._events, []
        return events

    def _run_until(self, now: float) -> None:
        while (step := self._step) is not None and step.end <= now:
            self._complete(step)
        self.now = max(self.now, now)

    def _check(self, work: Work) -> None:
        needed = self._blocks(work.prompt_tokens + work.output_tokens)
        if needed > self.config.num_gpu_blocks or (work.adapter and not self.config.max_loras):
            raise NeverFits
        most = self.config.max_num_queued_reqs
        free = max(0, self.config.max_num_seqs - self.running)
        if most is not None and len(self._waiting) >= most + free:
            self.stats.rejected += 1
            raise QueueFull

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def _unfilled(self, generations: Iterable[Generation]) -> int:
        """Blocks that are held for tokens still to come."""
        size, unfilled = self.config.block_size, 0
        for generation in generations:
            work = generation.work
            filled = -(-(work.prompt_tokens + generation.generated) // size)
            unfilled += -(-(work.prompt_tokens + work.output_tokens) // size) - filled
        return unfilled

    def _settle(self) -> None:
        """Hand out the tokens of the iterations that are over by now."""
        if self._step is not None:
            self._credit(self._step, self._step.ended_by(self.now))

    def _credit(self, step: Step, done: int) -> None:
        first, step.done = step.done, done
        batch = len(self._decoding)
        if done == first or not batch:
            return
        for iteration in range(first, done):
            self.stats.inter_token.observe(step.duration(iteration), batch)
        count = done - first
        self.stats.generated_tokens += count * batch
        for generation in self._decoding:
            generation.generated += count
        if self._streaming:
            at = step.end_of(done)
            streaming = [each for each in self._decoding if each.work.streams]
            self._events += [Tokens(each, count, at) for each in streaming]

    def _complete(self, step: Step) -> None:
        end = step.end
        self.now = max(self.now, end)
        self._credit(step, step.iterations)
        self._iteration = step.index + step.iterations
        for generation, tokens in step.chunks:
            self._compute(generation, tokens, end)
        self._retire(end)
        self._begin_step(end)

    def _begin_step(self, at: float) -> None:
        self._admit(at)
        if not self.running:
            self._step = None
            return
        profile = self.config.profile
        load = profile.load(self.running, self.config.max_num_seqs)
        unit = profile.inter_token_latency * load if self._decoding else 0.0
        step = Step(pace=self._pace, index=self._iteration, start=at, unit=unit)
        if self._prefilling:
            step.chunks = self._chunks()
            step.fixed = self._prefill_time(step.chunks) * load
        else:
            step.iterations = min(
                each.work.output_tokens - each.generated for each in self._decoding
            )
        self._step = step

    def _admit(self, at: float) -> None:
        """Start waiting requests in their order, passing over those without a LoRA slot."""
        passed: list[Generation] = []
        while self._waiting and self.running < self.config.max_num_seqs:
            generation = self._waiting.popleft()
            if not self.adapters.fits(generation.work.adapter):
                passed.append(generation)
            elif not self._start(generation, at):
                passed.append(generation)
                break
        self._waiting.extendleft(reversed(passed))

    def _start(self, generation: Generation, at: float) -> bool:
        """Give the request a slot and all its blocks; False when there are too few."""
        work, size = generation.work, self.config.block_size
        lease = self.cache.reserve(
            work.blocks[: work.prompt_tokens // size],
            total=self._blocks(work.prompt_tokens + work.output_tokens),
            reusable=(work.prompt_tokens - 1) // size,  # the last token is always computed
        )
        if lease is None:
            return False
        generation.lease = lease
        generation.started = at
        generation.cached_tokens = lease.hits * size
        generation.uncomputed = work.prompt_tokens - generation.cached_tokens
        self.stats.queried_tokens += work.prompt_tokens
        self.stats.cached_tokens += generation.cached_tokens
        self._prefilling.append(generation)
        self._streaming += work.streams
        self.adapters.take(work.adapter)
        self._note_adapters(work)
        return True

    def _chunks(self) -> list[tuple[Generation, int]]:
        """What of the prompts an iteration computes, beside one token of each decode."""
        budget = max(1, self.config.max_num_batched_tokens - len(self._decoding))
        chunks: list[tuple[Generation, int]] = []
        for generation in self._prefilling:
            tokens = min(generation.uncomputed, budget)
            chunks.append((generation, tokens))
            budget -= tokens
            if not budget:
                break
        return chunks

    def _prefill_time(self, chunks: list[tuple[Generation, int]]) -> float:
        mean = self.config.profile.prefill(
            tokens=sum(tokens for _, tokens in chunks),
            starts=any(generation.untouched for generation, _ in chunks),
        )
        return jitter(mean, self.config.profile.prefill_std, self._random)

    def _compute(self, generation: Generation, tokens: int, at: float) -> None:
        if generation.ended is not None:  # cancelled while its iteration ran
            return
        generation.uncomputed -= tokens
        if generation.uncomputed:
            return
        generation.first_token = at
        generation.generated = 1
        self.stats.prompt_tokens += generation.work.prompt_tokens
        self.stats.generated_tokens += 1
        self.stats.first_token.observe(at - generation.arrived)
        self._prefilling.remove(generation)
        self._decoding.append(generation)
        self._events.append(FirstToken(generation, at))

    def _retire(self, at: float) -> None:
        done = [each for each in self._decoding if each.done]
        if not done:
            return
        self._decoding = [each for each in self._decoding if not each.done]
        for generation in done:
            self._name_output(generation)
            self._free(generation)
            self._end(generation, generation.work.reason, at)
            self.stats.observe(generation)
            self._events.append(Finished(generation, at))

    def _name_output(self, generation: Generation) -> None:
        """Let later prompts find the output's full blocks; its last token was never computed."""
        work, lease = generation.work, generation.lease
        computed = work.prompt_tokens + generation.generated - 1
        if lease is not None:
            names = work.blocks[len(lease.named) : computed // self.config.block_size]
            self.cache.name(lease, names)

    def _free(self, generation: Generation) -> None:
        if generation.lease is not None:
            self.cache.release(generation.lease)
            generation.lease = None
        self._streaming -= generation.work.streams
        self.adapters.free(generation.work.adapter)

    def _end(self, generation: Generation, reason: str, at: float) -> None:
        generation.ended = at
        generation.reason = reason
        self.stats.finished[reason] += 1
        self._note_adapters(generation.work)

    def _note_adapters(self, work: Work) -> None:
        if work.adapter is not None:
            self.adapters.note((each.work.adapter for each in self._waiting), self.now)
