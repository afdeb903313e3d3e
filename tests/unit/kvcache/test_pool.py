"""The block pool and the prefix index by example."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.kvcache.manager import BlockManager
from quire_engine.kvcache.pool import BlockPool


def make_manager(num_blocks: int = 8, *, secret: bytes = b"secret") -> BlockManager:
    return BlockManager(num_blocks=num_blocks, block_size=4, secret=secret)


def run_sequence(manager: BlockManager, tokens: list[int], **extras: str) -> int:
    """Compute a whole sequence and end it; return the tokens found in the cache."""
    table = manager.open_table(extras)
    match = manager.match_prefix(table, tokens)
    manager.begin(table, match)
    manager.grow(table, len(tokens))
    manager.remember(table, tokens, len(tokens))
    manager.release(table)
    return match.num_tokens


def test_block_0_is_never_handed_out() -> None:
    pool = BlockPool(5)
    assert sorted(block.block_id for block in pool.take(5)) == [1, 2, 3, 4, 5]


def test_taking_more_than_is_free_is_a_bug_and_changes_nothing() -> None:
    pool = BlockPool(2)
    with pytest.raises(RuntimeError, match="3 blocks asked for, 2 free"):
        pool.take(3)
    assert pool.num_free == 2


def test_releasing_twice_is_a_bug() -> None:
    pool = BlockPool(2)
    blocks = pool.take(1)
    pool.release(blocks)
    with pytest.raises(RuntimeError, match="released more often"):
        pool.release(blocks)


def test_a_second_equal_sequence_finds_all_full_blocks() -> None:
    manager = make_manager()
    tokens = list(range(10))
    assert run_sequence(manager, tokens) == 0
    assert run_sequence(manager, tokens) == 8


def test_the_last_token_is_always_left_to_compute() -> None:
    manager = make_manager()
    run_sequence(manager, list(range(8)))
    assert run_sequence(manager, list(range(8))) == 4


def test_other_salts_share_nothing() -> None:
    manager = make_manager()
    run_sequence(manager, list(range(10)), salt="one")
    assert run_sequence(manager, list(range(10)), salt="two") == 0
    assert run_sequence(manager, list(range(10)), salt="one") == 8


def test_extras_are_tagged_so_that_names_and_values_cannot_be_mistaken() -> None:
    manager = make_manager(num_blocks=16)
    run_sequence(manager, list(range(10)), salt="a", adapter="b")
    assert run_sequence(manager, list(range(10)), salt="b", adapter="a") == 0


def test_a_hash_collision_is_no_hit() -> None:
    manager = make_manager()
    table = manager.open_table({})
    manager.grow(table, 8)
    manager.remember(table, list(range(8)), 8)
    assert manager.pool.find(table.hashes[0], b"other tokens") is None


def test_a_chain_is_evicted_from_its_tail() -> None:
    manager = make_manager(num_blocks=4)
    tokens = list(range(16))
    run_sequence(manager, tokens)
    assert manager.pool.num_cached == 4
    manager.pool.take(2)
    assert manager.pool.num_evictions == 2
    table = manager.open_table({})
    assert manager.match_prefix(table, tokens).num_tokens == 8


def test_worthless_blocks_are_reused_before_cached_ones() -> None:
    manager = make_manager(num_blocks=4)
    run_sequence(manager, list(range(8)))
    other = manager.open_table({})
    manager.grow(other, 5)
    manager.release(other)
    manager.pool.take(2)
    assert manager.pool.num_cached == 2


def test_shared_blocks_count_once() -> None:
    manager = make_manager()
    table = manager.open_table({})
    manager.grow(table, 16)
    twin = manager.fork(table, 16)
    assert manager.pool.num_held == 4
    manager.release(table)
    assert manager.pool.num_held == 4
    manager.release(twin)
    assert manager.pool.num_held == 0


def test_an_evictable_hit_is_told_apart_from_a_shared_one() -> None:
    manager = make_manager()
    tokens = list(range(10))
    run_sequence(manager, tokens)
    assert manager.match_prefix(manager.open_table({}), tokens).num_evictable == 2
    holder = manager.open_table({})
    manager.begin(holder, manager.match_prefix(holder, tokens))
    assert manager.match_prefix(manager.open_table({}), tokens).num_evictable == 0


def test_without_prefix_caching_nothing_is_found() -> None:
    manager = BlockManager(num_blocks=8, block_size=4, secret=b"s", enable_prefix_caching=False)
    run_sequence(manager, list(range(10)))
    assert run_sequence(manager, list(range(10))) == 0
    assert manager.pool.num_cached == 0


@settings(deadline=None)  # a busy machine may stop anywhere
@given(st.integers(0, 90), st.integers(0, 90), st.integers(1, 5))
def test_of_a_long_prompt_what_others_filled_is_found_up_to_where_it_differs(
    num_filled: int, num_equal: int, block_size: int
) -> None:
    manager = BlockManager(num_blocks=200, block_size=block_size, secret=b"test")
    first, second = manager.open_table({}), manager.open_table({})
    tokens = [number % 7 for number in range(90 * block_size + 1)]
    manager.grow(first, len(tokens))
    for num_computed in range(0, num_filled * block_size + 1, 3):
        manager.remember(first, tokens, num_computed)
    manager.remember(first, tokens, num_filled * block_size)
    others = [*tokens[: num_equal * block_size], *[9] * (len(tokens) - num_equal * block_size)]
    match = manager.match_prefix(second, others)
    assert match.num_tokens == min(num_filled, num_equal) * block_size
    assert list(match.blocks) == first.blocks[: len(match.blocks)]
