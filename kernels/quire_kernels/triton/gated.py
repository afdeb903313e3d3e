"""Gated activations of a fused gate-up product."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.dependent import wait_for_inputs


@triton.jit
def gated_kernel(
    gate_up, out, size, in_stride, out_stride,
    BLOCK: tl.constexpr, GELU: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (num_rows, tiles of the row). The up half starts `size` after the gate half."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = column < size
    wait_for_inputs(DEPENDENT)
    at = gate_up + row * in_stride + column
    gate = tl.load(at, mask=live, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=live, other=0.0).to(tl.float32)
    if GELU:
        # The tanh form: x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x^3)).
        activated = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    else:
        activated = gate * tl.sigmoid(gate)
    tl.store(out + row * out_stride + column, (activated * up).to(out.dtype.element_ty), mask=live)
