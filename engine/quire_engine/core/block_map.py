"""Draws the map of the KV blocks from the pool and the requests' block tables.

It takes time in proportion to the blocks that are held or cached, some 0.2 us each, and is done
only while somebody watches.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from quire_engine.kvcache.block import Block
from quire_engine.kvcache.pool import BlockPool
from quire_engine.protocol.block_map import (
    CACHED,
    FIRST_REQUEST,
    FREE,
    MAX_CELLS,
    OTHER,
    PROMISED_FREE,
    SHARED,
    BlockMap,
)

_get_id = attrgetter("block_id")


def draw_block_map(
    pool: BlockPool,
    listed: Sequence[Sequence[Block]],
    others: Sequence[Sequence[Block]] = (),
    *,
    num_promised: int = 0,
    max_cells: int = MAX_CELLS,
) -> BlockMap:
    """Say of each block, or of every so many-th, whose it is.

    Parameters
    ----------
    listed, others
        Blocks of each request that has a code of its own, and of those that have not.
    num_promised
        Blocks that the predicted occupancy counts on beyond those held.
    """
    codes = np.full(pool.num_total + 1, FREE, np.int32)  # block 0, the null block, is no cell
    if pool.num_cached:
        codes[_ids_of(pool.findable(), len(pool.findable()))] = CACHED
    promised = pool.next_free(num_promised)
    codes[_ids_of(promised, len(promised))] += PROMISED_FREE
    sizes = [*map(len, listed), *map(len, others)]
    holders = np.full(len(sizes), OTHER, np.int32)
    holders[: len(listed)] = np.arange(FIRST_REQUEST, FIRST_REQUEST + len(listed))
    held = _ids_of(chain(*listed, *others), sum(sizes))
    codes[held] = np.repeat(holders, sizes)
    num_holders = np.bincount(held, minlength=len(codes))
    codes[num_holders > 1] = SHARED
    stride = -(-pool.num_total // max_cells)
    cells = codes[1::stride]
    return BlockMap(
        stride=stride,
        num_cells=len(cells),
        runs=_encode_runs(cells),
        num_shared=int(np.count_nonzero(num_holders > 1)),
    )


def _ids_of(blocks: Iterable[Block], count: int) -> NDArray[np.int32]:
    return np.fromiter(map(_get_id, blocks), np.int32, count)


def _encode_runs(cells: NDArray[np.int32]) -> list[int]:
    begins = np.concatenate(([0], np.flatnonzero(np.diff(cells)) + 1))
    lengths = np.diff(begins, append=len(cells))
    runs: list[int] = np.column_stack((cells[begins], lengths)).ravel().tolist()
    return runs
