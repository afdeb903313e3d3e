"""Decode attention: one query token per sequence, keys split over programs, then merged.

Memory-bound: K and V are read once, so what counts is bytes in flight. The context of a sequence is
cut into `num_splits` equal ranges of whole tiles, computed from the length on the device: the grid
depends on the batch size only and can be captured in a CUDA graph. Ranges past a short sequence's
end write nothing but a log-sum of -inf, and the merge skips them.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.attention_tile import attend
from quire_kernels.triton.dependent import wait_for_inputs


@triton.jit(do_not_specialize=["num_splits"])
def decode_attention_kernel(
    q, key_cache, value_cache, out, partial_out, partial_lse,
    context_lens, block_table, scale_log2, soft_cap,
    q_stride_token, q_stride_head, out_stride_token, out_stride_head,
    k_stride_block, k_stride_head, k_stride_slot,
    v_stride_block, v_stride_head, v_stride_slot, table_stride, num_splits,
    GROUP: tl.constexpr, NUM_KV_HEADS: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, SOFT_CAP: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One program: one range of one KV head. Grid (num_kv_heads, num_splits, num_seqs)."""
    wait_for_inputs(DEPENDENT)
    kv_head = tl.program_id(0)
    split = tl.program_id(1)
    seq = tl.program_id(2)
    context_len = tl.load(context_lens + seq)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(0, context_len - WINDOW) // BLOCK_N * BLOCK_N
    num_tiles = tl.cdiv(context_len - first, BLOCK_N)
    split_len = tl.cdiv(num_tiles, num_splits) * BLOCK_N
    start = first + split * split_len
    end = tl.minimum(start + split_len, context_len)

    row = tl.arange(0, BLOCK_M)
    dim = tl.arange(0, BLOCK_D)
    head = kv_head * GROUP + row
    live_row = row < GROUP
    live = live_row[:, None] & (dim[None, :] < HEAD_DIM)
    seq64 = seq.to(tl.int64)
    num_heads = NUM_KV_HEADS * GROUP
    partial_row = (seq64 * num_heads + head) * num_splits + split
    if SPLIT:  # noqa: SIM102 - `and` would not drop the branch at compile time
        if start >= end:
            nothing = tl.full((BLOCK_M,), float("-inf"), tl.float32)
            tl.store(partial_lse + partial_row, nothing, mask=live_row)
            return

    q_at = seq64 * q_stride_token + head * q_stride_head
    query = tl.load(q + q_at[:, None] + dim[None, :], mask=live, other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    row_sum = tl.zeros((BLOCK_M,), tl.float32)
    keys = key_cache + kv_head * k_stride_head
    values = value_cache + kv_head * v_stride_head
    table = block_table + seq64 * table_stride
    row_position = row * 0 + context_len - 1
    # Every tile is masked, which costs little here: a second loop for the last tile would drain
    # the load pipeline.
    acc, row_max, row_sum = attend(
        acc, row_max, row_sum, query, keys, values, table, 0, row_position, start, end, end,
        scale_log2, soft_cap, k_stride_block, k_stride_slot, v_stride_block, v_stride_slot,
        HEAD_DIM, BLOCK_D, BLOCK_N, BLOCK_SIZE, False, WINDOW, SOFT_CAP, True, False,
    )  # fmt: skip

    whole = tl.where(row_sum == 0.0, 1.0, row_sum)
    acc = acc / whole[:, None]
    if not SPLIT:
        out_at = seq64 * out_stride_token + head * out_stride_head
        tl.store(out + out_at[:, None] + dim[None, :], acc.to(out.dtype.element_ty), mask=live)
    else:
        tl.store(partial_lse + partial_row, row_max + tl.log2(whole), mask=live_row)
        tl.store(partial_out + partial_row[:, None] * HEAD_DIM + dim[None, :], acc, mask=live)


@triton.jit(do_not_specialize=["num_splits"])
def merge_splits_kernel(
    partial_out, partial_lse, out, out_stride_token, out_stride_head, num_splits,
    NUM_HEADS: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Weigh the ranges of one head by their log-sums. Grid (num_heads, num_seqs)."""
    wait_for_inputs(DEPENDENT)
    head = tl.program_id(0)
    seq = tl.program_id(1).to(tl.int64)
    split = tl.arange(0, BLOCK_SPLITS)
    dim = tl.arange(0, BLOCK_D)
    row = (seq * NUM_HEADS + head) * num_splits + split
    lse = tl.load(partial_lse + row, mask=split < num_splits, other=float("-inf"))
    weight = tl.exp2(lse - tl.max(lse, 0))
    used = (lse > float("-inf"))[:, None] & (dim[None, :] < HEAD_DIM)
    part = tl.load(partial_out + row[:, None] * HEAD_DIM + dim[None, :], mask=used, other=0.0)
    merged = tl.sum(part * weight[:, None], 0) / tl.sum(weight, 0)
    out_at = seq * out_stride_token + head * out_stride_head
    tl.store(out + out_at + dim, merged.to(out.dtype.element_ty), mask=dim < HEAD_DIM)
