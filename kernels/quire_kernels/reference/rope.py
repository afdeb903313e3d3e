"""Rotary embedding and cache write in plain torch."""

from __future__ import annotations

import torch

from quire_kernels.ops.rope import HeadNorm
from quire_kernels.reference.norm import rms_norm_reference


def rotate(x: torch.Tensor, positions: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    """NeoX rotation of [num_tokens, num_heads, head_dim] in the dtype of `x`."""
    half = cos_sin.shape[1] // 2
    cos, sin = cos_sin[positions.long()].to(x.dtype)[:, None, :].chunk(2, -1)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def rope_reference(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    cos_sin: torch.Tensor,
    norm: HeadNorm | None = None,
    *,
    compute_dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated q and k, [num_tokens, num_heads, head_dim] in `compute_dtype`."""
    q, k = q.to(compute_dtype), k.to(compute_dtype)
    if norm is not None:
        q = rms_norm_reference(q, norm.q_weight, norm.eps, norm.weight_offset)
        k = rms_norm_reference(k, norm.k_weight, norm.eps, norm.weight_offset)
    return rotate(q, positions, cos_sin), rotate(k, positions, cos_sin)
