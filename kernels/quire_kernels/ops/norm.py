"""RMS norm, alone and fused with the residual addition."""

from __future__ import annotations

import torch

from quire_kernels.errors import UnsupportedError
from quire_kernels.ops.attention_decode import next_power_of_two
from quire_kernels.ops.checks import check_last_contiguous, check_like, check_shape, check_supported
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.triton.norm import rms_norm_kernel

MAX_SIZE = 32768
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    weight_offset: float = 0.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * (weight + weight_offset)` of each row, computed in fp32.

    Parameters
    ----------
    x
        [num_rows, size] bf16, fp16 or fp32, device; last dimension contiguous, size up to 32768.
    weight
        [size], any of these dtypes.
    eps
        Added to the mean square.
    weight_offset
        1 for models that store weights around zero (Gemma).
    out
        As x; allocated when absent, may be x.

    Raises
    ------
    ArgumentError, UnsupportedError
        Shapes, strides or dtypes that don't fit; a size above 32768.
    """
    out = torch.empty_like(x) if out is None else out
    _check(x, weight, out)
    _launch(x, None, weight, eps, weight_offset, out)
    return out


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    weight_offset: float = 0.0,
    out: torch.Tensor | None = None,
    checked: bool = True,
) -> torch.Tensor:
    """`residual += x` in place, then the RMS norm of `residual`; arguments as in `rms_norm`.

    `residual` is [num_rows, size] of x's dtype; `out` may be x but not `residual`. Without
    `checked`, shapes, strides and dtypes are those of a call that was.
    """
    out = torch.empty_like(x) if out is None else out
    if checked:
        check_like("residual", residual, x)
        check_shape("residual", residual, tuple(x.shape))
        check_last_contiguous("residual", residual)
        _check(x, weight, out)
    _launch(x, residual, weight, eps, weight_offset, out)
    return out


def _check(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    check_supported("x: dtype", x.dtype, DTYPES)
    check_shape("x", x, (None, None))
    check_shape("weight", weight, (x.shape[1],))
    check_shape("out", out, tuple(x.shape))
    check_like("out", out, x)
    for name, tensor in (("x", x), ("weight", weight), ("out", out)):
        check_last_contiguous(name, tensor)
    if x.shape[1] > MAX_SIZE:
        raise UnsupportedError(f"rows of {x.shape[1]} have no kernel; supported: up to {MAX_SIZE}")
    device_of(x)


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    weight_offset: float,
    out: torch.Tensor,
) -> None:
    if x.shape[0] == 0:
        return
    block = next_power_of_two(x.shape[1])
    base = residual if residual is not None else x
    launch_kernel(
        rms_norm_kernel, (x.shape[0],),
        x, base, weight, out, x.shape[1], eps, x.stride(0), base.stride(0), out.stride(0),
        BLOCK=block, ADD=residual is not None, WEIGHT_OFFSET=weight_offset,
        dependent=True, num_warps=min(16, max(1, block // 512)),
    )  # fmt: skip
