"""The tokenizer, the chat template, block hashes and made-up text."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.tokens import (
    VOCABULARY,
    babble,
    block_hashes,
    render_chat,
    seed_of,
    tokenize,
)

tokens = st.lists(st.integers(0, VOCABULARY - 1), max_size=100)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("the quick brown fox", 4),
        ("Hello, world!", 4),
        ("don't", 3),
        ("a  b\n\nc", 5),
        ("1234567", 3),
        ("snake_case", 3),
        ("漢字", 1),
        ("internationalisation", 2),
        ("", 0),
    ],
)
def test_words_and_marks_are_tokens(text: str, count: int) -> None:
    assert len(tokenize(text)) == count


@given(st.text())
def test_any_text_has_tokens_of_the_vocabulary(text: str) -> None:
    assert all(0 <= token < VOCABULARY for token in tokenize(text))
    assert bool(tokenize(text)) == bool(text)


def test_tokens_do_not_depend_on_the_process() -> None:
    assert tokenize("the fox") == [111078, 76246]


@given(st.integers(0, 200), st.integers())
def test_made_up_text_has_the_tokens_it_was_made_of(count: int, seed: int) -> None:
    pieces = babble(count, Random(seed))
    assert len(pieces) == count
    assert len(tokenize("".join(pieces))) == count


def test_a_longer_conversation_begins_with_the_shorter_and_its_answer() -> None:
    messages = [("system", "Be brief."), ("user", "Where to?")]
    answer = "".join(babble(20, Random(1)))
    before = render_chat(messages) + tokenize(answer)
    after = render_chat([*messages, ("assistant", answer), ("user", "And then?")])
    assert after[: len(before)] == before


@given(tokens, tokens, st.integers(1, 8))
def test_block_hashes_agree_exactly_as_far_as_whole_blocks_do(
    first: list[int], second: list[int], size: int
) -> None:
    common = next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if len({*pair}) > 1),
        min(len(first), len(second)),
    )
    hashes = [block_hashes(each, size) for each in (first, second)]
    agreeing = sum(a == b for a, b in zip(*hashes, strict=False))
    assert agreeing == common // size


def test_only_full_blocks_have_a_hash() -> None:
    assert [len(block_hashes(range(count), 16)) for count in (0, 15, 16, 47)] == [0, 0, 1, 2]


def test_salt_separates_equal_tokens() -> None:
    assert block_hashes(range(16), 16, "a") != block_hashes(range(16), 16, "b")
    assert seed_of(range(16), "a") != seed_of(range(16), "b")
