"""Copy cache blocks on the device, all layers of a block at once."""

from __future__ import annotations

import torch

from quire_kernels.errors import ArgumentError
from quire_kernels.ops.checks import check_device, check_integers, check_shape
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch
from quire_kernels.triton.blocks import copy_blocks_kernel

BLOCK = 2048


def copy_blocks(cache: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copy `cache[source]` to `cache[target]` for every pair, in one launch.

    Pairs run at the same time: a block may be the source of many, but the target of one only, and
    no target may be a source.

    Parameters
    ----------
    cache
        [num_blocks, ...] any dtype, device, contiguous: the block-major allocation of all layers.
    pairs
        [num_pairs, 2] int32, device: (source, target) block ids.

    Raises
    ------
    ArgumentError
        A cache that is not contiguous, blocks that are no multiple of 4 bytes, wrong pairs.
    """
    if not cache.is_contiguous():
        raise ArgumentError("cache: not contiguous; pass the whole block-major allocation")
    check_integers("pairs", pairs)
    check_shape("pairs", pairs, (None, 2))
    check_device("pairs", pairs, cache)
    num_bytes = cache[0].numel() * cache.element_size()
    if num_bytes % 4:
        raise ArgumentError(f"cache: blocks of {num_bytes} bytes, expected a multiple of 4")
    device_of(cache)
    if len(pairs) == 0:
        return
    words = cache.view(cache.shape[0], -1).view(torch.int32)
    grid = (len(pairs), -(-words.shape[1] // BLOCK))
    launch(
        copy_blocks_kernel, grid, words, pairs.contiguous(), words.shape[1],
        BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
