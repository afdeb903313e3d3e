"""Rotary embedding, optional per-head RMS norm, and the write into the paged cache, in one pass.

Each element pair (i, i + rotary_dim / 2) is loaded, rotated and stored by one thread, so rotating
in place has no race. A program takes one token and up to BLOCK_H heads of q, or of k and v.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.dependent import wait_for_inputs


@triton.jit
def inverse_rms(first, second, rest, eps, HEAD_DIM: tl.constexpr):
    """1 / sqrt(mean(x^2) + eps) of each head."""
    squares = tl.sum(first * first, 1) + tl.sum(second * second, 1) + tl.sum(rest * rest, 1)
    return tl.rsqrt(squares / HEAD_DIM + eps)


@triton.jit
def rope_cache_kernel(
    q, k, v, q_out, positions, cos_sin, q_weight, k_weight, key_cache, value_cache, slots, eps,
    q_stride_token, q_stride_head, k_stride_token, k_stride_head, v_stride_token, v_stride_head,
    out_stride_token, out_stride_head, table_stride,
    kc_stride_block, kc_stride_head, kc_stride_slot, vc_stride_block, vc_stride_head,
    vc_stride_slot,
    NUM_Q_HEADS: tl.constexpr, NUM_KV_HEADS: tl.constexpr, BLOCK_H: tl.constexpr,
    HEAD_DIM: tl.constexpr, HALF: tl.constexpr, BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr, BLOCK_SIZE: tl.constexpr, NORM: tl.constexpr,
    WEIGHT_OFFSET: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (num_tokens, head tiles of q + head tiles of k)."""
    wait_for_inputs(DEPENDENT)
    token = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    q_tiles: tl.constexpr = (NUM_Q_HEADS + BLOCK_H - 1) // BLOCK_H
    is_query = tile < q_tiles
    head = (tile if is_query else tile - q_tiles) * BLOCK_H + tl.arange(0, BLOCK_H)
    live_head = head < (NUM_Q_HEADS if is_query else NUM_KV_HEADS)
    half = tl.arange(0, BLOCK_HALF)
    rest = 2 * HALF + tl.arange(0, BLOCK_REST)
    in_half = live_head[:, None] & (half < HALF)[None, :]
    in_rest = live_head[:, None] & (rest < HEAD_DIM)[None, :]
    if is_query:
        source = q + token * q_stride_token + head[:, None] * q_stride_head
        target = q_out + token * out_stride_token + head[:, None] * out_stride_head
    else:
        source = k + token * k_stride_token + head[:, None] * k_stride_head
        target = source
    first = tl.load(source + half[None, :], mask=in_half, other=0.0).to(tl.float32)
    second = tl.load(source + HALF + half[None, :], mask=in_half, other=0.0).to(tl.float32)
    tail = tl.load(source + rest[None, :], mask=in_rest, other=0.0).to(tl.float32)
    if NORM:
        weight = q_weight if is_query else k_weight
        factor = inverse_rms(first, second, tail, eps, HEAD_DIM)[:, None]
        w_first = tl.load(weight + half, mask=half < HALF, other=0.0).to(tl.float32)
        w_second = tl.load(weight + HALF + half, mask=half < HALF, other=0.0).to(tl.float32)
        w_tail = tl.load(weight + rest, mask=rest < HEAD_DIM, other=0.0).to(tl.float32)
        first = first * factor * (w_first + WEIGHT_OFFSET)[None, :]
        second = second * factor * (w_second + WEIGHT_OFFSET)[None, :]
        tail = tail * factor * (w_tail + WEIGHT_OFFSET)[None, :]
    angle = cos_sin + tl.load(positions + token).to(tl.int64) * table_stride
    cos = tl.load(angle + half, mask=half < HALF, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(angle + HALF + half, mask=half < HALF, other=0.0).to(tl.float32)[None, :]
    dtype = q.dtype.element_ty
    turned_first = (first * cos - second * sin).to(dtype)
    turned_second = (second * cos + first * sin).to(dtype)
    tl.store(target + half[None, :], turned_first, mask=in_half)
    tl.store(target + HALF + half[None, :], turned_second, mask=in_half)
    tl.store(target + rest[None, :], tail.to(dtype), mask=in_rest)
    if not is_query:
        slot = tl.load(slots + token).to(tl.int64)
        block = slot // BLOCK_SIZE
        at = slot % BLOCK_SIZE
        row = key_cache + block * kc_stride_block + at * kc_stride_slot
        row += head[:, None] * kc_stride_head
        tl.store(row + half[None, :], turned_first, mask=in_half)
        tl.store(row + HALF + half[None, :], turned_second, mask=in_half)
        tl.store(row + rest[None, :], tail.to(dtype), mask=in_rest)
        source = v + token * v_stride_token + head[:, None] * v_stride_head
        row = value_cache + block * vc_stride_block + at * vc_stride_slot
        row += head[:, None] * vc_stride_head
        for part in tl.static_range(2):
            value = tl.load(source + part * HALF + half[None, :], mask=in_half, other=0.0)
            tl.store(row + part * HALF + half[None, :], value, mask=in_half)
        value = tl.load(source + rest[None, :], mask=in_rest, other=0.0)
        tl.store(row + rest[None, :], value, mask=in_rest)
