"""Rotary embedding fused with the cache write, and with Qwen3's per-head norms."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quire_kernels.errors import ArgumentError
from quire_kernels.ops.attention_decode import next_power_of_two
from quire_kernels.ops.checks import (
    BLOCK_SIZES,
    HEAD_DIMS,
    check_device,
    check_dtype,
    check_integers,
    check_last_contiguous,
    check_like,
    check_shape,
    check_supported,
)
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.triton.rope import rope_cache_kernel

HEADS_PER_PROGRAM = 8


@dataclass(frozen=True, eq=False)
class HeadNorm:
    """RMS norm of each q and k head before the rotation."""

    q_weight: torch.Tensor
    """[head_dim], device."""

    k_weight: torch.Tensor
    """[head_dim], device."""

    eps: float
    """Added to the mean square."""

    weight_offset: float = 0.0
    """Added to the weights: 1 for models that store them around zero (Gemma)."""


def rope_and_cache(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    norm: HeadNorm | None = None,
    q_out: torch.Tensor | None = None,
    checked: bool = True,
) -> torch.Tensor:
    """Rotate q and k (NeoX pairs), write k and v to their cache slots.

    k is rotated in place, so that `k` and `v` can serve as the fresh keys of `paged_attention`.
    Padding rows take slot 0, in the null block; their concurrent writes there race on purpose.

    Parameters
    ----------
    q, k, v
        [num_tokens, num_heads, head_dim] bf16 or fp16, device; views of one QKV product are fine.
    positions
        [num_tokens] int32, device.
    cos_sin
        [max_position, rotary_dim] fp32, bf16 or fp16: cosines in the first half of a row, sines in
        the second; rotary_dim at most head_dim, the rest of a head passes through.
    key_cache, value_cache
        [num_blocks, num_kv_heads, block_size, head_dim], as q.
    slots
        [num_tokens] int32 or int64, device: block * block_size + offset.
    norm
        Per-head RMS norm before the rotation.
    q_out
        [num_tokens, num_q_heads, head_dim], as q; q itself (in place) when absent.
    checked
        False: shapes, strides and dtypes are those of a call that was checked.

    Returns
    -------
    torch.Tensor
        The rotated queries.

    Raises
    ------
    ArgumentError, UnsupportedError
        As in `paged_attention`.
    """
    q_out = q if q_out is None else q_out
    if checked:
        _check(q, k, v, positions, cos_sin, key_cache, value_cache, slots, q_out)
        _check_norm(q, norm)
        device_of(q)
    num_tokens, num_q_heads, head_dim = q.shape
    if num_tokens == 0:
        return q_out
    num_kv_heads, half = k.shape[1], cos_sin.shape[1] // 2
    block_h = min(HEADS_PER_PROGRAM, next_power_of_two(num_q_heads))
    tiles = -(-num_q_heads // block_h) + -(-num_kv_heads // block_h)
    weights = (norm.q_weight, norm.k_weight) if norm is not None else (cos_sin, cos_sin)
    launch_kernel(
        rope_cache_kernel, (num_tokens, tiles),
        q, k, v, q_out, positions, cos_sin, *weights, key_cache, value_cache, slots,
        norm.eps if norm is not None else 0.0,
        *q.stride()[:2], *k.stride()[:2], *v.stride()[:2], *q_out.stride()[:2],
        cos_sin.stride(0), *key_cache.stride()[:3], *value_cache.stride()[:3],
        NUM_Q_HEADS=num_q_heads, NUM_KV_HEADS=num_kv_heads, BLOCK_H=block_h, HEAD_DIM=head_dim,
        HALF=half, BLOCK_HALF=next_power_of_two(half),
        BLOCK_REST=next_power_of_two(max(1, head_dim - 2 * half)),
        BLOCK_SIZE=key_cache.shape[2], NORM=norm is not None,
        WEIGHT_OFFSET=norm.weight_offset if norm is not None else 0.0,
        dependent=True, num_warps=2,
    )  # fmt: skip
    return q_out


def _check_norm(q: torch.Tensor, norm: HeadNorm | None) -> None:
    if norm is not None:
        check_shape("q_weight", norm.q_weight, (q.shape[2],))
        check_shape("k_weight", norm.k_weight, (q.shape[2],))


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    q_out: torch.Tensor,
) -> None:
    check_dtype("q", q)
    check_shape("q", q, (None, None, None))
    num_tokens, _, head_dim = q.shape
    check_supported("head_dim", head_dim, HEAD_DIMS)
    check_shape("k", k, (num_tokens, None, head_dim))
    check_shape("v", v, tuple(k.shape))
    check_shape("q_out", q_out, tuple(q.shape))
    check_shape("key_cache", key_cache, (None, k.shape[1], None, head_dim))
    check_shape("value_cache", value_cache, tuple(key_cache.shape))
    check_supported("block_size", key_cache.shape[2], BLOCK_SIZES)
    for name, tensor in (("k", k), ("v", v), ("q_out", q_out), ("key_cache", key_cache)):
        check_like(name, tensor, q)
        check_last_contiguous(name, tensor)
    check_like("value_cache", value_cache, q)
    for name, tensor in (("q", q), ("value_cache", value_cache), ("cos_sin", cos_sin)):
        check_last_contiguous(name, tensor)
    check_integers("positions", positions)
    check_shape("positions", positions, (num_tokens,))
    check_shape("slots", slots, (num_tokens,))
    check_supported("slots: dtype", slots.dtype, (torch.int32, torch.int64))
    check_device("slots", slots, q)
    if cos_sin.dim() != 2 or cos_sin.shape[1] % 2 or cos_sin.shape[1] > head_dim:
        raise ArgumentError(
            f"cos_sin: shape {tuple(cos_sin.shape)}, expected (max_position, rotary_dim) with an "
            f"even rotary_dim of at most {head_dim}"
        )
