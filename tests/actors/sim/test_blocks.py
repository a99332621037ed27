"""The block cache: what is held, remembered and evicted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pointsman.actors.sim.blocks import BlockCache, Lease


def taken(cache: BlockCache, names: list[int], *, total: int | None = None) -> Lease:
    lease = cache.reserve(names, total=total or len(names), reusable=len(names))
    assert lease is not None
    return lease


def test_the_first_request_of_a_prefix_finds_nothing() -> None:
    assert taken(BlockCache(8), [1, 2, 3]).hits == 0


def test_blocks_are_found_again_after_their_request() -> None:
    cache = BlockCache(8)
    cache.release(taken(cache, [1, 2, 3]))
    assert (cache.held, cache.remembered) == (0, 3)
    assert taken(cache, [1, 2, 9]).hits == 2


def test_running_requests_share_the_blocks_of_a_common_prefix() -> None:
    cache = BlockCache(4)
    taken(cache, [1, 2, 3])
    assert taken(cache, [1, 2, 4]).hits == 2
    assert cache.held == 4


def test_only_a_gapless_prefix_counts_as_found() -> None:
    cache = BlockCache(8)
    taken(cache, [2, 3])
    assert taken(cache, [1, 2, 3]).hits == 0


def test_blocks_beyond_the_reusable_ones_are_shared_but_computed_again() -> None:
    cache = BlockCache(8)
    taken(cache, [1, 2])
    lease = cache.reserve([1, 2], total=2, reusable=1)
    assert lease is not None
    assert (lease.hits, cache.held) == (1, 2)


def test_held_blocks_are_not_evicted_for_anyone() -> None:
    cache = BlockCache(4)
    taken(cache, [1, 2, 3])
    assert cache.reserve([4, 5], total=2, reusable=2) is None
    assert cache.hits([1, 2, 3]) == 3


def test_remembered_blocks_that_are_wanted_again_are_not_evicted_to_make_room() -> None:
    cache = BlockCache(4)
    cache.release(taken(cache, [1, 2]))
    assert taken(cache, [1, 2], total=4).hits == 2
    assert cache.held == 4


def test_the_deepest_block_of_the_oldest_request_goes_first() -> None:
    cache = BlockCache(4)
    cache.release(taken(cache, [1, 2]))
    cache.release(taken(cache, [3, 4]))
    cache.release(taken(cache, [5]))
    assert (cache.hits([1, 2]), cache.hits([3, 4])) == (1, 2)
    cache.release(taken(cache, [6]))
    assert (cache.hits([1, 2]), cache.hits([3, 4])) == (0, 2)


def test_using_a_block_makes_it_young_again() -> None:
    cache = BlockCache(2)
    cache.release(taken(cache, [1]))
    cache.release(taken(cache, [2]))
    cache.release(taken(cache, [1]))
    cache.release(taken(cache, [3]))
    assert (cache.hits([1]), cache.hits([2])) == (1, 0)


def test_named_output_is_found_by_later_prompts() -> None:
    cache = BlockCache(8)
    lease = taken(cache, [1], total=3)
    cache.name(lease, [2])
    assert (lease.anonymous, cache.held) == (1, 3)
    cache.release(lease)
    assert (cache.held, cache.hits([1, 2])) == (0, 2)


def test_forgetting_spares_what_is_held() -> None:
    cache = BlockCache(8)
    cache.release(taken(cache, [1, 2]))
    taken(cache, [3])
    cache.forget()
    assert (cache.hits([1]), cache.hits([3]), cache.remembered) == (0, 1, 1)


prompts = st.lists(st.integers(0, 4), max_size=6).map(
    lambda path: [hash(tuple(path[: depth + 1])) for depth in range(len(path))]
)


@given(st.lists(st.tuples(prompts, st.integers(0, 4), st.integers(0, 3)), max_size=40))
def test_blocks_are_neither_lost_nor_invented(
    requests: list[tuple[list[int], int, int]],
) -> None:
    cache = BlockCache(12)
    held: list[Lease] = []
    for names, more, release in requests:
        lease = cache.reserve(names, total=len(names) + more, reusable=len(names))
        if lease is not None:
            held.append(lease)
        for _ in range(min(release, len(held))):
            cache.release(held.pop(0))
        distinct = {name for lease in held for name in lease.named}
        assert cache.held == len(distinct) + sum(lease.anonymous for lease in held)
        assert cache.held <= cache.remembered + sum(lease.anonymous for lease in held) <= 12
    for lease in held:
        cache.release(lease)
    assert cache.held == 0


@given(st.lists(st.tuples(prompts, st.integers(0, 4), st.booleans()), max_size=40))
def test_a_request_is_refused_exactly_when_the_holders_leave_too_little_room(
    requests: list[tuple[list[int], int, bool]],
) -> None:
    cache = BlockCache(12)
    held: list[Lease] = []
    for names, more, release in requests:
        in_use = {name for lease in held for name in lease.named}
        room = 12 - len(in_use) - sum(lease.anonymous for lease in held)
        found = cache.hits(names)
        lease = cache.reserve(names, total=len(names) + more, reusable=len(names))
        assert (lease is None) == (len(set(names) - in_use) + more > room)
        if lease is not None:
            assert lease.hits == found
            held.append(lease)
        if release and held:
            cache.release(held.pop(0))
