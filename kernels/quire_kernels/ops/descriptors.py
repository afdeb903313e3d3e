"""TMA descriptors of matrices, kept by address: making one takes the host longer than a launch."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

SWIZZLED = NVMMASharedLayout(128, 16, 2)
"""Layout of every box in shared memory: 128-byte swizzle, 16-bit values, two dimensions."""


@dataclass(frozen=True, slots=True)
class _Address:
    """Stands for a tensor in a descriptor that is kept, without keeping its memory."""

    address: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        return self.address


@functools.lru_cache(maxsize=4096)
def _known(
    base: _Address, shape: tuple[int, ...], stride: int, box: tuple[int, ...]
) -> TensorDescriptor:
    return TensorDescriptor(base, [*shape], [stride, 1], [*box], SWIZZLED)


def descriptor(rows: torch.Tensor, box: tuple[int, int]) -> TensorDescriptor:
    """Describe a matrix whose last dimension is contiguous, to be copied in such boxes."""
    base = _Address(rows.data_ptr(), rows.dtype)
    return _known(base, tuple(rows.shape), rows.stride(0), box)


def is_addressable(tensor: torch.Tensor) -> bool:
    """Whether TMA can address its rows: 16-bit values on 16 bytes."""
    return tensor.data_ptr() % 16 == 0 and tensor.stride(0) % 8 == 0
