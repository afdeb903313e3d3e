"""Argument checks shared by the wrappers: each refusal names what would be accepted."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from quire_kernels.errors import ArgumentError, UnsupportedError
from quire_kernels.ops.device import interpreted

DTYPES = (torch.bfloat16, torch.float16)
HEAD_DIMS = (64, 80, 96, 128, 256)
BLOCK_SIZES = (16, 32, 64)


def check_supported(name: str, value: object, accepted: Sequence[object]) -> None:
    """Raise UnsupportedError unless `value` is one of `accepted`."""
    if value not in accepted:
        choices = ", ".join(str(choice) for choice in accepted)
        raise UnsupportedError(f"{name} {value} has no kernel; supported: {choices}")


def check_dtype(name: str, tensor: torch.Tensor) -> None:
    """Raise unless the dtype is bf16 or fp16; under the interpreter fp16 or fp32.

    The interpreter keeps bf16 as integers and multiplies those: silently wrong, so refused.
    """
    accepted = (torch.float16, torch.float32) if interpreted() else DTYPES
    check_supported(f"{name}: dtype", tensor.dtype, accepted)


def check_shape(name: str, tensor: torch.Tensor, shape: Sequence[int | None]) -> None:
    """Raise unless the shape matches; None matches any size."""
    actual = tuple(tensor.shape)
    matches = len(actual) == len(shape) and all(
        want is None or want == got for want, got in zip(shape, actual, strict=True)
    )
    if not matches:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ArgumentError(f"{name}: shape {actual}, expected ({wanted})")


def check_like(name: str, tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Raise unless dtype and device are those of `other`."""
    if tensor.dtype != other.dtype:
        raise ArgumentError(f"{name}: dtype {tensor.dtype}, expected {other.dtype}")
    check_device(name, tensor, other)


def check_device(name: str, tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Raise unless both tensors are on one device."""
    if tensor.device != other.device:
        raise ArgumentError(f"{name}: on {tensor.device}, expected {other.device}")


def check_last_contiguous(name: str, tensor: torch.Tensor) -> None:
    """Raise unless the last dimension has stride 1."""
    if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ArgumentError(
            f"{name}: the last dimension has stride {tensor.stride(-1)}, expected 1 "
            "(call .contiguous())"
        )


def check_integers(name: str, tensor: torch.Tensor, dtype: torch.dtype = torch.int32) -> None:
    """Raise unless the tensor is of the integer dtype and its last dimension is contiguous."""
    if tensor.dtype != dtype:
        raise ArgumentError(f"{name}: dtype {tensor.dtype}, expected {dtype}")
    check_last_contiguous(name, tensor)
