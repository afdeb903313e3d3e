"""RMS norm, alone and fused with the residual addition: one row per program, one read of it."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.dependent import wait_for_inputs


@triton.jit
def rms_norm_kernel(
    x, residual, weight, out, size, eps, x_stride, residual_stride, out_stride,
    BLOCK: tl.constexpr, ADD: tl.constexpr, WEIGHT_OFFSET: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (num_rows,). With ADD, `residual += x` first, and the sum is what is normalized."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    live = column < size
    gain = tl.load(weight + column, mask=live, other=0.0).to(tl.float32) + WEIGHT_OFFSET
    wait_for_inputs(DEPENDENT)
    values = tl.load(x + row * x_stride + column, mask=live, other=0.0).to(tl.float32)
    if ADD:
        at = residual + row * residual_stride + column
        total = values + tl.load(at, mask=live, other=0.0).to(tl.float32)
        rounded = total.to(residual.dtype.element_ty)
        tl.store(at, rounded, mask=live)
        # What later layers will read, not the unrounded sum: eager torch normalizes this too.
        values = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, 0) / size + eps)
    tl.store(
        out + row * out_stride + column, (values * scale * gain).to(out.dtype.element_ty), mask=live
    )
