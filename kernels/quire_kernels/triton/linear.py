"""Products of a few rows with a weight matrix: bound by reading the weights once.

`vector_linear_kernel` takes one row with plain multiply-adds. `narrow_linear_kernel` takes up to 64
rows with tensor cores and may cut K over programs: the last program of a tile to finish adds the
partial sums in a fixed order, so the result doesn't depend on which one that is.
`fixed_linear_kernel` takes any number of rows, and a row's result doesn't depend on the others.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.dependent import wait_for_inputs


@triton.jit
def vector_linear_kernel(
    x, weight, out, num_out, num_in, weight_stride,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of the output,)."""
    feature = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    live_feature = feature < num_out
    rows = weight + feature.to(tl.int64)[:, None] * weight_stride
    # The first weights come while the kernel before this one ends.
    inside = depth < num_in
    live = live_feature[:, None] & inside[None, :]
    w = tl.load(rows + depth[None, :], mask=live, other=0.0)
    wait_for_inputs(DEPENDENT)
    vector = tl.load(x + depth, mask=inside, other=0.0)
    acc = w.to(tl.float32) * vector.to(tl.float32)[None, :]
    for start in tl.range(BLOCK_K, num_in, BLOCK_K):
        at = start + depth
        if EVEN_K:
            w = tl.load(rows + at[None, :], mask=live_feature[:, None], other=0.0)
            vector = tl.load(x + at)
        else:
            inside = at < num_in
            w = tl.load(rows + at[None, :], mask=live_feature[:, None] & inside[None, :], other=0.0)
            vector = tl.load(x + at, mask=inside, other=0.0)
        acc += w.to(tl.float32) * vector.to(tl.float32)[None, :]
    tl.store(out + feature, tl.sum(acc, 1).to(out.dtype.element_ty), mask=live_feature)


@triton.jit(do_not_specialize=["num_rows"])
def narrow_linear_kernel(
    x, weight, out, partial, arrivals, num_rows, num_out, num_in, x_stride, weight_stride,
    out_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr,
    EVEN_K: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of the output, SPLITS). `arrivals` is zero before and after."""
    wait_for_inputs(DEPENDENT)
    tile = tl.program_id(0)
    split = tl.program_id(1)
    row = tl.arange(0, BLOCK_M)
    feature = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    live_row = row < num_rows
    live_feature = feature < num_out
    w_rows = weight + feature.to(tl.int64)[:, None] * weight_stride
    x_rows = x + row[:, None] * x_stride
    steps = tl.cdiv(tl.cdiv(num_in, BLOCK_K), SPLITS)
    first = split * steps * BLOCK_K
    last = tl.minimum(first + steps * BLOCK_K, num_in)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(first, last, BLOCK_K):
        at = start + depth
        if EVEN_K:
            w = tl.load(w_rows + at[None, :], mask=live_feature[:, None], other=0.0)
            part = tl.load(x_rows + at[None, :], mask=live_row[:, None], other=0.0)
        else:
            inside = (at < num_in)[None, :]
            w = tl.load(w_rows + at[None, :], mask=live_feature[:, None] & inside, other=0.0)
            part = tl.load(x_rows + at[None, :], mask=live_row[:, None] & inside, other=0.0)
        acc = tl.dot(part, tl.trans(w), acc, input_precision="ieee")
    live = live_row[:, None] & live_feature[None, :]
    target = out + row[:, None] * out_stride + feature[None, :]
    if SPLITS == 1:
        tl.store(target, acc.to(out.dtype.element_ty), mask=live)
    else:
        cell = row[:, None] * num_out + feature[None, :]
        size = num_rows * num_out
        tl.store(partial + split * size + cell, acc, mask=live)
        # Every thread's partial sums must be visible before the arrival is counted.
        tl.debug_barrier()
        before = tl.atomic_add(arrivals + tile, 1, sem="acq_rel")
        if before == SPLITS - 1:
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for other in range(SPLITS):
                total += tl.load(
                    partial + other * size + cell, mask=live, other=0.0, cache_modifier=".cg"
                )
            tl.store(target, total.to(out.dtype.element_ty), mask=live)
            tl.store(arrivals + tile, 0)


@triton.jit(do_not_specialize=["num_rows"])
def fixed_linear_kernel(
    x, weight, out, num_rows, num_out, num_in, x_stride, weight_stride, out_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of the output, tiles of the rows). One tile shape, K in one order."""
    wait_for_inputs(DEPENDENT)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    feature = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    live_row = row < num_rows
    live_feature = feature < num_out
    w_rows = weight + feature.to(tl.int64)[:, None] * weight_stride
    x_rows = x + row.to(tl.int64)[:, None] * x_stride
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, num_in, BLOCK_K):
        at = start + depth
        inside = (at < num_in)[None, :]
        w = tl.load(w_rows + at[None, :], mask=live_feature[:, None] & inside, other=0.0)
        part = tl.load(x_rows + at[None, :], mask=live_row[:, None] & inside, other=0.0)
        acc = tl.dot(part, tl.trans(w), acc, input_precision="ieee")
    target = out + row.to(tl.int64)[:, None] * out_stride + feature[None, :]
    live = live_row[:, None] & live_feature[None, :]
    tl.store(target, acc.to(out.dtype.element_ty), mask=live)
