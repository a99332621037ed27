"""What the simulated clients ask."""

from __future__ import annotations

from random import Random

import pytest

from .workloads import Kv73, Segment, Stage, poisson, prompt_of

pytestmark = pytest.mark.long


def test_a_segment_may_end_inside_a_block_only_at_the_end() -> None:
    assert prompt_of([Segment(1, 32), Segment(2, 20)]).length == 52
    with pytest.raises(ValueError, match="only a prompt's last segment"):
        prompt_of([Segment(1, 20), Segment(2, 32)])


def test_only_whole_blocks_have_names() -> None:
    prompt = prompt_of([Segment(1, 32), Segment(2, 20)])
    assert len(prompt.blocks) == len(set(prompt.blocks)) == 3


def test_arrivals_keep_the_rate_of_each_stage() -> None:
    times = list(poisson([Stage(10, 100), Stage(50, 100)], Random(1)))
    assert times == sorted(times)
    assert sum(at < 100 for at in times) == pytest.approx(1000, rel=0.1)
    assert sum(at >= 100 for at in times) == pytest.approx(5000, rel=0.1)
    assert times[-1] < 200


def test_kv73_has_the_published_size() -> None:
    whole = Kv73()
    prompts = [arrival.prompt for arrival in whole.shortened(0.5).arrivals(seed=1)]
    blocks = {name for prompt in prompts for name in prompt.blocks}
    assert {prompt.length for prompt in prompts} == {7200}
    assert len({prompt.tokens for prompt in prompts}) == 750
    assert len(blocks) * 16 == 1_800_000
    assert len(whole) == 17_084


def test_the_same_seed_asks_the_same() -> None:
    short = Kv73().shortened(0.02)
    assert list(short.arrivals(3)) == list(short.arrivals(3))
    assert list(short.arrivals(3)) != list(short.arrivals(4))
