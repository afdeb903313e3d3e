"""The inner loop shared by prefill and decode attention: one query tile against a range of keys.

Keys come from one of two places:

    paged   [num_blocks, num_kv_heads, block_size, head_dim], gathered through the block table
    fresh   [num_tokens, num_kv_heads, head_dim], the prompt's own keys before they are written

A tile of keys never depends on the block size: each row looks its block up by itself. Logits are
kept in units of log2, so that the exponential is a single `exp2`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-any-return, misc"
from __future__ import annotations

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def source_rows(
    position, limit, table, first_token, stride_block, stride_row,
    BLOCK_SIZE: tl.constexpr, FRESH: tl.constexpr,
):  # fmt: skip
    """Offsets in elements of the rows at `position`; rows at or past `limit` fall on row 0."""
    if FRESH:
        return (first_token + position).to(tl.int64) * stride_row
    # Unsigned, so that dividing by a power of two is a shift.
    at = position.to(tl.uint32)
    block = tl.load(table + at // BLOCK_SIZE, mask=position < limit, other=0)
    return block.to(tl.int64) * stride_block + (at % BLOCK_SIZE).to(tl.int32) * stride_row


@triton.jit
def capped_logits(query, keys, scale_log2, soft_cap, SOFT_CAP: tl.constexpr):
    """Query-key products, and with SOFT_CAP `soft_cap * tanh(x / soft_cap)` in log2 units."""
    logits = tl.dot(query, tl.trans(keys), input_precision="ieee")
    if not SOFT_CAP:
        return logits
    # tanh(x) = 1 - 2 / (1 + e^2x), and scale_log2 already holds one log2(e).
    grown = tl.exp2(logits * (2.0 * scale_log2 / soft_cap))
    return soft_cap * LOG2_E * (1.0 - 2.0 / (1.0 + grown))


@triton.jit
def attend(
    acc, row_max, row_sum, query, keys, values, table, first_token, row_position, start, end, limit,
    scale_log2, soft_cap, k_stride_block, k_stride_row, v_stride_block, v_stride_row,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, MASKED: tl.constexpr,
    FRESH: tl.constexpr,
):  # fmt: skip
    """Fold the keys of [start, end) into the running softmax of one query tile.

    `keys` and `values` point at the head; positions count from the source's first row. Without
    MASKED every key of the range is valid for every row. Invalid rows of V are loaded as zero:
    a block's unwritten tail may hold anything, and 0 x NaN would spread it.
    """
    column = tl.arange(0, BLOCK_N)
    dim = tl.arange(0, BLOCK_D)
    in_head = dim[None, :] < HEAD_DIM
    for tile in tl.range(start, end, BLOCK_N):
        position = tile + column
        reach = limit if MASKED else end
        k_row = source_rows(
            position, reach, table, first_token, k_stride_block, k_stride_row, BLOCK_SIZE, FRESH
        )
        v_row = source_rows(
            position, reach, table, first_token, v_stride_block, v_stride_row, BLOCK_SIZE, FRESH
        )
        if MASKED:
            live = (position[:, None] < limit) & in_head
            k = tl.load(keys + k_row[:, None] + dim[None, :], mask=live, other=0.0)
        elif HEAD_DIM == BLOCK_D:
            k = tl.load(keys + k_row[:, None] + dim[None, :])
        else:
            k = tl.load(keys + k_row[:, None] + dim[None, :], mask=in_head, other=0.0)
        logits = capped_logits(query, k, scale_log2, soft_cap, SOFT_CAP)
        if MASKED:
            valid = position[None, :] < limit
            if CAUSAL:
                valid = valid & (position[None, :] <= row_position[:, None])
            if WINDOW > 0:
                valid = valid & (position[None, :] > row_position[:, None] - WINDOW)
            logits = tl.where(valid, logits, float("-inf"))
        # The scale is folded into the exponent's argument: one multiply-add per logit.
        factor = 1.0 if SOFT_CAP else scale_log2
        new_max = tl.maximum(row_max, tl.max(logits, 1) * factor)
        # A row that has seen no valid key yet must not compute inf - inf.
        shift = tl.where(new_max == float("-inf"), 0.0, new_max) if MASKED else new_max
        weights = tl.exp2(logits * factor - shift[:, None])
        fade = tl.exp2(row_max - shift)
        row_sum = row_sum * fade + tl.sum(weights, 1)
        acc = acc * fade[:, None]
        if MASKED:
            v = tl.load(values + v_row[:, None] + dim[None, :], mask=live, other=0.0)
        elif HEAD_DIM == BLOCK_D:
            v = tl.load(values + v_row[:, None] + dim[None, :])
        else:
            v = tl.load(values + v_row[:, None] + dim[None, :], mask=in_head, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
        row_max = new_max
    return acc, row_max, row_sum
