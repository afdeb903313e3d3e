"""Prefill and chunked attention over paged and fresh keys, in portable Triton.

All query heads of one KV head share a tile: row r of the tile is token r // GROUP, head r % GROUP,
so K and V are read once for the whole group. The grid has an upper bound of tiles; each program
finds its sequence by binary search over `cu_seqlens_q`, so the host never needs the lengths.
Tiles of a sequence are issued last first: under the causal mask these are the longest, and the
short ones then fill the end of the last wave.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.attention_tile import attend


@triton.jit
def find_sequence(cu_seqlens_q, num_seqs, base, tile, BLOCK_Q: tl.constexpr):
    """The sequence that owns query tile `tile`: the last whose first tile is not after it.

    Sequence i starts at tile `(cu_seqlens_q[i] - base) // BLOCK_Q + i`, an upper bound of the tiles
    before it that needs no prefix sum of tile counts. `base` is the first token after the decodes.
    """
    low = tl.zeros((), tl.int32)
    high = low + num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        if (tl.load(cu_seqlens_q + middle) - base) // BLOCK_Q + middle <= tile:
            low = middle
        else:
            high = middle
    return low


# Batches differ in these from step to step: specializing on them would compile while serving.
@triton.jit(
    do_not_specialize=["num_seqs"],
    do_not_specialize_on_alignment=["cu_seqlens_q", "context_lens", "block_table"],
)
def prefill_attention_kernel(
    q, key_cache, value_cache, key_new, value_new, out,
    cu_seqlens_q, context_lens, block_table,
    num_seqs, scale_log2, soft_cap,
    q_stride_token, q_stride_head, out_stride_token, out_stride_head,
    k_stride_block, k_stride_head, k_stride_slot,
    v_stride_block, v_stride_head, v_stride_slot,
    kn_stride_token, kn_stride_head, vn_stride_token, vn_stride_head,
    table_stride,
    GROUP: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr, FRESH: tl.constexpr,
    FIXED: tl.constexpr,
):  # fmt: skip
    """One program: one query tile of one KV head. Grid (num_kv_heads, upper bound of tiles)."""
    kv_head = tl.program_id(0)
    tile = tl.num_programs(1) - 1 - tl.program_id(1)
    base = tl.load(cu_seqlens_q)
    seq = find_sequence(cu_seqlens_q, num_seqs, base, tile, BLOCK_Q)
    first_token = tl.load(cu_seqlens_q + seq)
    query_len = tl.load(cu_seqlens_q + seq + 1) - first_token
    token_start = (tile - (first_token - base) // BLOCK_Q - seq) * BLOCK_Q
    if token_start >= query_len:
        return
    context_len = tl.load(context_lens + seq)
    computed_len = context_len - query_len
    token_end = tl.minimum(token_start + BLOCK_Q, query_len)

    row = tl.arange(0, BLOCK_M)
    dim = tl.arange(0, BLOCK_D)
    token = token_start + row // GROUP
    head = kv_head * GROUP + row % GROUP
    live_row = (token < query_len) & (row < BLOCK_Q * GROUP)
    live = live_row[:, None] & (dim[None, :] < HEAD_DIM)
    token_row = (first_token + token).to(tl.int64)
    q_at = token_row * q_stride_token + head * q_stride_head
    query = tl.load(q + q_at[:, None] + dim[None, :], mask=live, other=0.0)

    end = computed_len + token_end if CAUSAL else context_len
    start = 0
    if WINDOW > 0:
        start = tl.maximum(0, computed_len + token_start - WINDOW + 1) // BLOCK_N * BLOCK_N
    # Up to `open_end` every key is valid for every row of the tile.
    open_end = computed_len + token_start + 1 if CAUSAL else context_len
    paged_end = tl.minimum(end, computed_len) if FRESH else end
    paged_open = tl.minimum(open_end, paged_end) // BLOCK_N * BLOCK_N
    if WINDOW > 0 or FIXED:
        paged_open = start

    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    keys = key_cache + kv_head * k_stride_head
    values = value_cache + kv_head * v_stride_head
    table = block_table + seq.to(tl.int64) * table_stride
    row_position = computed_len + token
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, query, keys, values, table, 0, row_position, start, paged_open,
        paged_end, scale_log2, soft_cap, k_stride_block, k_stride_slot, v_stride_block,
        v_stride_slot, HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_SIZE, CAUSAL, WINDOW, SOFT_CAP, False,
        False,
    )  # fmt: skip
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, query, keys, values, table, 0, row_position, paged_open, paged_end,
        paged_end, scale_log2, soft_cap, k_stride_block, k_stride_slot, v_stride_block,
        v_stride_slot, HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_SIZE, CAUSAL, WINDOW, SOFT_CAP, True,
        False,
    )  # fmt: skip
    if FRESH:
        keys = key_new + kv_head * kn_stride_head
        values = value_new + kv_head * vn_stride_head
        fresh_start = tl.maximum(0, start - computed_len) // BLOCK_N * BLOCK_N
        fresh_end = end - computed_len
        fresh_open = tl.minimum(open_end - computed_len, fresh_end) // BLOCK_N * BLOCK_N
        if WINDOW > 0:
            fresh_open = fresh_start
        acc, row_max, row_sum = attend(
            acc, row_max, row_sum, query, keys, values, table, first_token, token, fresh_start,
            fresh_open, fresh_end, scale_log2, soft_cap, 0, kn_stride_token, 0, vn_stride_token,
            HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_SIZE, CAUSAL, WINDOW, SOFT_CAP, False, True,
        )  # fmt: skip
        acc, row_max, row_sum = attend(
            acc, row_max, row_sum, query, keys, values, table, first_token, token, fresh_open,
            fresh_end, fresh_end, scale_log2, soft_cap, 0, kn_stride_token, 0, vn_stride_token,
            HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_SIZE, CAUSAL, WINDOW, SOFT_CAP, True, True,
        )  # fmt: skip

    acc = acc / tl.where(row_sum == 0.0, 1.0, row_sum)[:, None]
    out_at = token_row * out_stride_token + head * out_stride_head
    tl.store(out + out_at[:, None] + dim[None, :], acc.to(out.dtype.element_ty), mask=live)
