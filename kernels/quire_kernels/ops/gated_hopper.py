"""Launch of the Hopper kernel for gated products of many rows, and where it beats cuBLAS.

Beside cuBLAS's product and `gated` it saves writing the product and reading it again; the product
alone takes as long as cuBLAS's where its tiles fill the device, and longer where they don't.
"""

from __future__ import annotations

import torch

from quire_kernels.ops.descriptors import descriptor, is_addressable
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.triton.gated_hopper import hopper_gated_kernel

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64
"""A tile is BLOCK_M rows by BLOCK_N outputs of the gate and as many of up."""
STAGES = 3
MIN_ROWS = 1024
MIN_SHARE = 0.87
"""Of the multiprocessors that have a tile, over all waves, from which it is faster."""
CONSUMER_REGISTERS = 232
PRODUCER_REGISTERS = 40


def is_chosen(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether the kernel takes a product, and is faster; arguments as in `launch`."""
    if x.shape[0] < MIN_ROWS:
        return False
    device = device_of(x)
    return (
        device.arch == "sm90"
        and x.element_size() == 2
        and x.shape[1] % BLOCK_K == 0
        and weight.shape[0] % (2 * BLOCK_N) == 0
        and is_addressable(x)
        and is_addressable(weight)
        and fills(x.shape[0], weight.shape[0], device.num_multiprocessors)
    )


def fills(num_rows: int, num_out: int, num_multiprocessors: int) -> bool:
    """Whether the tiles of so many rows and outputs, gate and up together, fill the device."""
    tiles = -(-num_rows // BLOCK_M) * (num_out // (2 * BLOCK_N))
    waves = -(-tiles // num_multiprocessors)
    return tiles >= MIN_SHARE * waves * num_multiprocessors


def launch(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    """`out = silu(x @ gate.T) * (x @ up.T)`; depth and outputs are multiples of the tile's.

    Parameters
    ----------
    x
        [num_rows, num_in]
    weight
        [2 * size, num_in]: gate, then up.
    out
        [num_rows, size], contiguous.
    """
    num_out, num_in = weight.shape
    num_m, num_n = -(-len(x) // BLOCK_M), num_out // (2 * BLOCK_N)
    programs = min(device_of(x).num_multiprocessors, num_m * num_n)
    half = BLOCK_M // 2
    launch_kernel(
        hopper_gated_kernel, (programs,),
        descriptor(x, (half, BLOCK_K)), descriptor(weight, (BLOCK_N, BLOCK_K)),
        descriptor(out, (half, BLOCK_N)),
        num_m, num_n, num_in // BLOCK_K, num_out // 2,
        BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, STAGES=STAGES,
        CONSUMER_REGISTERS=CONSUMER_REGISTERS, PRODUCER_REGISTERS=PRODUCER_REGISTERS, num_warps=4,
    )  # fmt: skip
