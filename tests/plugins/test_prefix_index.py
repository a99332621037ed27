"""The prefix index: what it claims to be held, against a model that remembers everything."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from pointsman.plugins import prefix_index
from pointsman.plugins.prefix_index import BlockHashes, PrefixIndex, root_hash

SIZE = 8  # bytes of a block in these tests
ROOT = root_hash("model", "")


def prompt(text: str, root: int = ROOT) -> BlockHashes:
    """A prompt of one block per letter."""
    return BlockHashes(b"".join(letter.encode() * SIZE for letter in text), SIZE, root)


def index(capacity: int = 100) -> PrefixIndex[str]:
    return PrefixIndex(capacity)


def test_only_leading_blocks_count() -> None:
    made = index()
    made.record("a", prompt("abcd"))
    assert made.match(["a"], prompt("abcx")) == [3]
    assert made.match(["a"], prompt("xbcd")) == [0]


def test_each_endpoint_has_its_own_depth() -> None:
    made = index()
    for name, text in (("a", "abcd"), ("b", "ab"), ("c", "x")):
        made.record(name, prompt(text))
    assert made.match(["c", "b", "a", "new"], prompt("abcdef")) == [0, 2, 4, 0]


def test_x02_unrelated_prompts_of_one_model_match_nothing() -> None:
    made = index()
    made.record("a", prompt("A" * 50))
    assert made.match(["a"], prompt("B" * 50)) == [0]
    assert made.match(["a"], BlockHashes(b"x", SIZE, ROOT)) == [0]


def test_x03_a_tail_that_is_no_whole_block_is_never_held() -> None:
    made = index()
    whole = prompt("abcdefghij")
    for tail in (b"one", b"two"):
        longer = BlockHashes(whole.data + tail, SIZE, ROOT)
        made.record("a", longer)
        assert made.match(["a"], longer) == [10]
        assert longer.total == 11


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("m", "s1"), ("m", "s2")),
        (("m", ""), ("m", "s")),
        (("m", ""), ("n", "")),
        (("ab", "c"), ("a", "bc")),
    ],
)
def test_x06_models_and_salts_are_kept_apart(one: Sequence[str], other: Sequence[str]) -> None:
    made = index()
    made.record("a", prompt("abc", root_hash(*one)))
    assert made.match(["a"], prompt("abc", root_hash(*one))) == [3]
    assert made.match(["a"], prompt("abc", root_hash(*other))) == [0]


def test_x01_a_deleted_endpoint_is_forgotten_at_once() -> None:
    made = index(20_000)
    made.record("b", BlockHashes(Random(1).randbytes(SIZE * 10_000), SIZE, ROOT))
    assert len(made) == 10_000
    made.forget("b")
    assert (len(made), made.size("b"), list(made.endpoints)) == (0, 0, [])


def test_x04_the_capacity_is_a_bound() -> None:
    made = index(100)
    for number in range(1000):
        made.record("a", prompt("p", root_hash(str(number))))
    assert made.size("a") <= 100


def test_a_prompt_longer_than_the_capacity_keeps_its_beginning() -> None:
    made = index(10)
    text = "abcdefghijklmnop"
    made.record("a", prompt(text))
    assert made.size("a") <= 10
    assert made.match(["a"], prompt(text)) == [made.size("a")]


def test_the_deepest_blocks_of_the_oldest_prompt_go_first() -> None:
    made = index(8)
    made.record("a", prompt("abcd"))
    made.record("a", prompt("wxyz"))
    made.record("a", prompt("!"))
    assert made.match(["a"], prompt("wxyz")) == [4]
    assert made.match(["a"], prompt("abcd")) == [3]


def test_using_a_prompt_again_keeps_it() -> None:
    made = index(8)
    made.record("a", prompt("abcd"))
    made.record("a", prompt("wxyz"))
    made.record("a", prompt("abcd"))
    made.record("a", prompt("!?"))
    assert made.match(["a"], prompt("abcd")) == [4]


def test_a_capacity_that_shrinks_drops_what_is_too_much() -> None:
    made = index(100)
    made.record("a", prompt("abcdefgh"))
    made.set_capacity("a", 4)
    assert 0 < made.size("a") <= 4
    assert made.match(["a"], prompt("abcdefgh")) == [made.size("a")]
    made.set_capacity("a", 50)
    made.record("a", prompt("abcdefgh"))
    assert made.size("a") == 8


def test_what_nobody_knows_is_not_hashed() -> None:
    made = index(10_000)
    made.record("a", prompt("a" * 20))
    cold = BlockHashes(Random(1).randbytes(SIZE * 5_000), SIZE, ROOT)
    assert made.match(["a"], cold) == [0]
    assert len(cold.known) <= 16


letters = st.text(alphabet="abc", max_size=12)
steps = st.one_of(
    st.tuples(st.just("record"), st.sampled_from("xyz"), letters),
    st.tuples(st.just("forget"), st.sampled_from("xyz"), st.just("")),
    st.tuples(st.just("capacity"), st.sampled_from("xyz"), st.text("a", min_size=1, max_size=9)),
)


@given(st.lists(steps, max_size=40), letters)
def test_without_eviction_the_index_is_exact(
    script: list[tuple[str, str, str]], asked: str
) -> None:
    made = index(10_000)
    remembered: dict[str, set[str]] = {}
    for step, name, text in script:
        if step == "record":
            made.record(name, prompt(text))
            prefixes = {text[:length] for length in range(1, len(text) + 1)}
            remembered.setdefault(name, set()).update(prefixes)
        elif step == "forget":
            made.forget(name)
            remembered.pop(name, None)
    expected = [
        max((n for n in range(len(asked) + 1) if asked[:n] in remembered.get(name, ())), default=0)
        for name in "xyz"
    ]
    assert made.match("xyz", prompt(asked)) == expected


@given(st.lists(steps, max_size=60))
def test_with_eviction_what_is_held_is_bounded_and_closed(
    script: list[tuple[str, str, str]],
) -> None:
    made = index(6)
    for step, name, text in script:
        if step == "record":
            made.record(name, prompt(text))
        elif step == "forget":
            made.forget(name)
        else:
            made.set_capacity(name, len(text))
    recorded = {text for step, _, text in script if step == "record"}
    for name, holder in made._holders.items():
        assert len(holder.blocks) <= holder.capacity
        held = len(holder.blocks)
        walked: set[int] = set()
        for text in recorded:
            hashes = prompt(text).up_to(len(text))
            depth = made.match([name], prompt(text))[0]
            assert all(one in holder.blocks for one in hashes[:depth])
            assert not any(one in holder.blocks for one in hashes[depth:])
            walked.update(hashes[:depth])
        assert len(walked) == held


class Counting(dict[int, None]):
    """Blocks that count how often one of them is looked for."""

    looked = 0

    def __contains__(self, key: object) -> bool:
        Counting.looked += 1
        return super().__contains__(key)


def cost(pods: int, blocks: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Hashes made and look-ups done for a prompt that every pod holds in part."""
    index = PrefixIndex[str](default_capacity=10 * blocks)
    data = b"".join(n.to_bytes(4, "little") for n in range(blocks))
    names = [f"pod-{number}" for number in range(pods)]
    for number, name in enumerate(names):
        index.record(name, BlockHashes(data[: 4 * (blocks - number % 7)], 4, 1))
        holder = index._holders[name]
        holder.blocks = Counting(holder.blocks)
    made: list[int] = []

    def hashing(part: bytes, seed: int) -> int:
        made.append(1)
        return xxh64_intdigest(part, seed)

    Counting.looked = 0
    with monkeypatch.context() as patch:
        patch.setattr(prefix_index, "xxh64_intdigest", hashing)
        found = index.match(names, BlockHashes(data, 4, 1))
    assert found == [blocks - number % 7 for number in range(pods)]
    return len(made), Counting.looked


@pytest.mark.parametrize("blocks", [16, 160, 1_600])
def test_r_06_the_cost_of_a_pick_is_linear_at_most(
    blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is hashed once for all pods; looking grows with pods, and hardly with length.

    100,000 tokens are 1,600 blocks.
    """
    costs = {pods: cost(pods, blocks, monkeypatch) for pods in (10, 100, 500)}
    assert {hashes for hashes, _ in costs.values()} == {blocks}
    for pods, (_, looks) in costs.items():
        assert looks <= pods * 3 * blocks.bit_length()
