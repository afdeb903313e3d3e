"""The KV cache as the kernels see it."""

from __future__ import annotations

import torch

from quire_kernels.cpu.layout import CCache, Format
from quire_kernels.errors import ArgumentError

CACHE_DTYPES = {
    torch.float32: Format.F32,
    torch.float16: Format.F16,
    torch.bfloat16: Format.BF16,
}


def describe_cache(kv_cache: torch.Tensor, shape: tuple[int | None, ...]) -> CCache:
    """Return the C struct of a cache; it is valid as long as the tensor lives.

    Parameters
    ----------
    kv_cache
        [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim], contiguous, CPU.
    shape
        What the dimensions after the first must be; None: any.

    Raises
    ------
    ArgumentError
        It has another shape, dtype or layout.
    """
    sizes = tuple(kv_cache.shape[1:])
    fits = len(sizes) == len(shape) and all(
        want in (None, got) for want, got in zip(shape, sizes, strict=True)
    )
    if not fits or kv_cache.dtype not in CACHE_DTYPES or not kv_cache.is_contiguous():
        raise ArgumentError(
            f"kv_cache: {tuple(kv_cache.shape)} of {kv_cache.dtype}, expected "
            f"[num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim] = [any, "
            f"{', '.join('any' if size is None else str(size) for size in shape)}], "
            "contiguous, of float32, float16 or bfloat16"
        )
    num_layers, _, num_kv_heads, block_size, head_dim = sizes
    return CCache(
        data=kv_cache.data_ptr(),
        num_blocks=kv_cache.shape[0],
        num_layers=num_layers,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        block_size=block_size,
        dtype=CACHE_DTYPES[kv_cache.dtype],
    )
