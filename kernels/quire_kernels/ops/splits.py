"""How many ranges a decode context is cut into. Pure arithmetic, no tensors."""

from __future__ import annotations

import functools
import math

MAX_SPLITS = 128
"""The merge holds every range of a head in one program."""

FULL = 0.85
"""A device this full with one split each is not split further."""

GOOD_ENOUGH = 0.95
"""Fraction of the best wave efficiency that the smallest split must reach."""


@functools.cache
def choose_splits(num_programs: int, num_slots: int, max_tiles: int) -> int:
    """The smallest split whose waves are at least 95 % as full as the best split's.

    One split when sequences x heads already fill the slots: more would only add partial results
    to write and merge. The rule is FlashAttention's `num_splits_heuristic`, with 95 % for its 85 %:
    on an H100, 16 splits of one sequence of 8 KV heads beat 14 by the ratio of the two.

    Parameters
    ----------
    num_programs
        Sequences x KV heads: programs with one split.
    num_slots
        Programs resident on the device at a time.
    max_tiles
        Key tiles in the longest context; no split is smaller than two tiles.
    """
    if num_programs >= FULL * num_slots:
        return 1
    limit = max(1, min(MAX_SPLITS, max_tiles // 2, num_slots))
    efficiency = {}
    for splits in range(1, limit + 1):
        if splits > 1 and math.ceil(max_tiles / splits) == math.ceil(max_tiles / (splits - 1)):
            continue
        waves = num_programs * splits / num_slots
        efficiency[splits] = waves / math.ceil(waves)
    best = max(efficiency.values())
    return next(splits for splits, full in efficiency.items() if full >= GOOD_ENOUGH * best)
