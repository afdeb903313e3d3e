"""The map of blocks, held against a slow look at every single block."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.core.block_map import draw_block_map
from quire_engine.kvcache.block import Block
from quire_engine.kvcache.manager import BlockManager
from quire_engine.kvcache.table import BlockTable
from quire_engine.protocol.block_map import (
    CACHED,
    FIRST_REQUEST,
    FREE,
    OTHER,
    PROMISED_CACHED,
    PROMISED_FREE,
    SHARED,
    BlockMap,
)

BLOCK_SIZE = 4


def make_manager(num_blocks: int) -> BlockManager:
    return BlockManager(num_blocks=num_blocks, block_size=BLOCK_SIZE, secret=b"secret")


def begin(manager: BlockManager, tokens: list[int]) -> BlockTable:
    """Compute a whole sequence; it goes on holding its blocks."""
    table = manager.open_table({})
    manager.begin(table, manager.match_prefix(table, tokens))
    manager.grow(table, len(tokens))
    manager.remember(table, tokens, len(tokens))
    return table


def cells_of(drawn: BlockMap) -> list[int]:
    runs = zip(drawn.runs[::2], drawn.runs[1::2], strict=True)
    return [code for code, length in runs for _ in range(length)]


def test_blocks_are_told_apart() -> None:
    manager = make_manager(10)
    ended = begin(manager, [1] * 8)
    first = begin(manager, [2] * 6)
    second = begin(manager, [3] * 3)
    manager.release(ended)

    drawn = draw_block_map(manager.pool, [first.blocks], [second.blocks])

    expected = [CACHED] * 2 + [FIRST_REQUEST] * 2 + [OTHER] + [FREE] * 5
    assert cells_of(drawn) == expected
    assert drawn.runs == [CACHED, 2, FIRST_REQUEST, 2, OTHER, 1, FREE, 5]
    assert (drawn.stride, drawn.num_cells, drawn.num_shared) == (1, 10, 0)


def test_a_common_prefix_is_shared() -> None:
    manager = make_manager(10)
    prefix = list(range(8))
    tables = [begin(manager, [*prefix, 50, last]) for last in (60, 61)]

    drawn = draw_block_map(manager.pool, [table.blocks for table in tables])

    assert cells_of(drawn)[:4] == [SHARED, SHARED, FIRST_REQUEST, FIRST_REQUEST + 1]
    assert drawn.num_shared == 2


def test_promised_are_those_that_are_taken_next() -> None:
    manager = make_manager(6)
    manager.release(begin(manager, [1] * 8))
    promised = draw_block_map(manager.pool, [], num_promised=5)
    cells = cells_of(promised)

    assert cells.count(PROMISED_FREE) == 4
    assert cells.count(PROMISED_CACHED) == cells.count(CACHED) == 1
    taken = {block.block_id for block in manager.pool.take(5)}
    shown = {n + 1 for n, code in enumerate(cells) if code in (PROMISED_FREE, PROMISED_CACHED)}
    assert shown == taken


@pytest.mark.parametrize(("num_blocks", "stride", "num_cells"), [(32, 1, 32), (33, 2, 17)])
def test_a_map_never_has_more_cells_than_allowed(
    num_blocks: int, stride: int, num_cells: int
) -> None:
    manager = make_manager(num_blocks)
    table = begin(manager, [1] * (BLOCK_SIZE * num_blocks))

    drawn = draw_block_map(manager.pool, [table.blocks], max_cells=32)

    assert (drawn.stride, drawn.num_cells) == (stride, num_cells)
    assert drawn.runs == [FIRST_REQUEST, num_cells]


@given(
    sequences=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20), st.booleans()), max_size=8),
    num_listed=st.integers(0, 8),
    num_promised=st.integers(0, 60),
)
def test_every_cell_is_what_its_block_is(
    sequences: list[tuple[int, int, bool]], num_listed: int, num_promised: int
) -> None:
    manager = make_manager(48)
    held = []
    for seed, length, stays in sequences:
        table = begin(manager, [seed] * length)
        if stays:
            held.append(table.blocks)
        else:
            manager.release(table)

    drawn = draw_block_map(
        manager.pool, held[:num_listed], held[num_listed:], num_promised=num_promised
    )

    expected = [look_at(manager, held, num_listed, number, num_promised) for number in range(1, 49)]
    assert cells_of(drawn) == expected
    num_held = sum(code not in (FREE, CACHED, PROMISED_FREE, PROMISED_CACHED) for code in expected)
    assert num_held == manager.pool.num_held
    num_cached = sum(code in (CACHED, PROMISED_CACHED) for code in expected)
    assert num_cached == manager.pool.num_cached


def look_at(
    manager: BlockManager,
    held: Sequence[Sequence[Block]],
    num_listed: int,
    block_id: int,
    num_promised: int,
) -> int:
    """The code of one block, found by asking everybody."""
    holders = [n for n, blocks in enumerate(held) if block_id in {b.block_id for b in blocks}]
    if len(holders) > 1:
        return SHARED
    if holders:
        return FIRST_REQUEST + holders[0] if holders[0] < num_listed else OTHER
    is_cached = block_id in {block.block_id for block in manager.pool.findable()}
    is_next = block_id in {block.block_id for block in manager.pool.next_free(num_promised)}
    return (CACHED if is_cached else FREE) + (PROMISED_FREE if is_next else 0)
