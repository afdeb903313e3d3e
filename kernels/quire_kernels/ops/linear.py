"""Linear layers of a few rows: Triton where it was measured faster, cuBLAS elsewhere."""

from __future__ import annotations

import torch

from quire_kernels.errors import ArgumentError
from quire_kernels.ops import gated_hopper
from quire_kernels.ops.attention_decode import next_power_of_two
from quire_kernels.ops.checks import check_dtype, check_last_contiguous, check_like, check_shape
from quire_kernels.ops.device import device_of
from quire_kernels.ops.gated import gated
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.triton.linear import (
    fixed_linear_kernel,
    narrow_linear_kernel,
    vector_linear_kernel,
)
from quire_kernels.tuning.tables import LaunchConfig, find

MAX_ROWS = 64
MAX_TILES = 1 << 16
DEEP, DEEP_ROWS = 8192, (24, 240)
"""Depth and rows of products that cuBLASLt cuts better than cuBLAS: by 5 to 15 % on an H100."""
WIDE, WIDE_ROWS = 1 << 16, (9, 33)
"""Outputs and rows of those that it does on an H200: by 11 %."""
FIXED_TILE = 64
"""Rows, outputs and depth of a batch-invariant product's tiles, on every architecture."""

_ARRIVALS: dict[torch.device, torch.Tensor] = {}


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    checked: bool = True,
) -> torch.Tensor:
    """`x @ weight.T` by the fastest kernel known for the shape.

    The choice is data: `linear` entries of the architecture's table, measured against cuBLAS. A
    shape without an entry is cuBLAS's. Safe to capture in a CUDA graph after one call outside;
    calls on one device must follow one another, as a model's layers do.

    Parameters
    ----------
    x
        [num_rows, num_in] bf16 or fp16, device; last dimension contiguous.
    weight
        [num_out, num_in], as x.
    out
        [num_rows, num_out], as x; allocated when absent.
    checked
        False: shapes, strides and dtypes are those of a call that was checked.

    Raises
    ------
    ArgumentError, UnsupportedError
        Shapes, strides or dtypes that don't fit.
    """
    out = x.new_empty(x.shape[0], weight.shape[0]) if out is None else out
    if checked:
        _check(x, weight, out)
    config = config_for(x, weight)
    if config is None:
        return _library_product(x, weight, out)
    launch(x, weight, out, config)
    return out


def _library_product(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """By cuBLAS, or by cuBLASLt where that is faster."""
    is_deep = DEEP_ROWS[0] <= len(x) < DEEP_ROWS[1] and x.shape[1] >= max(DEEP, 3 * len(weight))
    is_wide = WIDE_ROWS[0] <= len(x) < WIDE_ROWS[1] and len(weight) >= WIDE
    if is_deep or (is_wide and device_of(x).reads_fast):
        usual = torch._C._get_blas_preferred_backend()
        torch._C._set_blas_preferred_backend(torch._C._BlasBackend.Cublaslt)
        try:
            return torch.mm(x, weight.t(), out=out)
        finally:
            torch._C._set_blas_preferred_backend(usual)
    return torch.mm(x, weight.t(), out=out)


def gated_linear(x: torch.Tensor, weight: torch.Tensor, *, checked: bool = True) -> torch.Tensor:
    """SiLU-mul of the two halves of `x @ weight.T`: [num_rows, num_out / 2].

    Arguments as in `linear`; gate's rows are the first half of `weight`. One kernel where that was
    measured faster, `linear` and `gated` elsewhere.
    """
    if not gated_hopper.is_chosen(x, weight):
        return gated(linear(x, weight, checked=checked), checked=checked)
    if checked:
        _check_factors(x, weight)
    out = x.new_empty(x.shape[0], weight.shape[0] // 2)
    gated_hopper.launch(x, weight, out)
    return out


def fixed_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    checked: bool = True,
) -> torch.Tensor:
    """`x @ weight.T` whose rows have the same bits whatever rows are beside them.

    Arguments as in `linear`, which is faster: it chooses by the number of rows.
    """
    out = x.new_empty(x.shape[0], weight.shape[0]) if out is None else out
    if checked:
        _check(x, weight, out)
        device_of(x)
    num_rows, num_out = out.shape
    if num_rows:
        launch_kernel(
            fixed_linear_kernel, (-(-num_out // FIXED_TILE), -(-num_rows // FIXED_TILE)),
            x, weight, out, num_rows, num_out, x.shape[1],
            x.stride(0), weight.stride(0), out.stride(0),
            BLOCK_M=FIXED_TILE, BLOCK_N=FIXED_TILE, BLOCK_K=FIXED_TILE,
            dependent=True, num_warps=4, num_stages=4,
        )  # fmt: skip
    return out


def fixed_gated_linear(
    x: torch.Tensor, weight: torch.Tensor, *, checked: bool = True
) -> torch.Tensor:
    """`gated_linear` whose rows have the same bits whatever rows are beside them."""
    return gated(fixed_linear(x, weight, checked=checked), checked=checked)


def _check(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> None:
    _check_factors(x, weight)
    check_like("out", out, x)
    check_shape("out", out, (x.shape[0], weight.shape[0]))
    check_last_contiguous("out", out)


def _check_factors(x: torch.Tensor, weight: torch.Tensor) -> None:
    check_dtype("x", x)
    check_shape("x", x, (None, None))
    check_shape("weight", weight, (None, x.shape[1]))
    check_like("weight", weight, x)
    check_last_contiguous("x", x)
    check_last_contiguous("weight", weight)


def config_for(x: torch.Tensor, weight: torch.Tensor) -> LaunchConfig | None:
    """The table's entry for this shape, with rows rounded up to a power of two; None: cuBLAS."""
    num_rows = x.shape[0]
    if not 0 < num_rows <= MAX_ROWS:
        return None
    device = device_of(x)
    shape = {
        "num_rows": next_power_of_two(num_rows),
        "num_out": weight.shape[0],
        "num_in": weight.shape[1],
        "reads_fast": int(device.reads_fast),
    }
    return find(device.arch, "linear", tuple(sorted(shape.items())))


def launch(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, config: LaunchConfig) -> None:
    """Multiply with a given configuration: `block_m` 1 is the vector kernel; `splits` cuts K."""
    num_rows, num_in = x.shape
    num_out = weight.shape[0]
    tiles = -(-num_out // config.block_n)
    even = num_in % config.block_k == 0
    if config.block_m == 1 and num_rows == 1:
        launch_kernel(
            vector_linear_kernel, (tiles,),
            x, weight, out, num_out, num_in, weight.stride(0),
            BLOCK_N=config.block_n, BLOCK_K=config.block_k, EVEN_K=even,
            dependent=True, num_warps=config.num_warps, num_stages=config.num_stages,
        )  # fmt: skip
        return
    if num_rows > MAX_ROWS or tiles > MAX_TILES:
        raise ArgumentError(f"{num_rows} rows, {tiles} tiles; at most {MAX_ROWS} and {MAX_TILES}")
    splits = config.splits
    size = splits * num_rows * num_out if splits > 1 else 0
    partial = torch.empty(size, dtype=torch.float32, device=x.device)
    launch_kernel(
        narrow_linear_kernel, (tiles, splits),
        x, weight, out, partial, arrivals_of(x), num_rows, num_out, num_in,
        x.stride(0), weight.stride(0), out.stride(0),
        BLOCK_M=max(16, next_power_of_two(num_rows)), BLOCK_N=config.block_n,
        BLOCK_K=config.block_k, SPLITS=splits, EVEN_K=even,
        dependent=True, num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip


def arrivals_of(x: torch.Tensor) -> torch.Tensor:
    """Zeroed counters of the device: every launch leaves them zero again.

    Raises
    ------
    ArgumentError
        The first call on a device falls into a graph capture: the counters would then live in the
        graph's pool. Run the layer once before.
    """
    known = _ARRIVALS.get(x.device)
    if known is None:
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            raise ArgumentError("linear: run it once on this device before capturing a graph")
        known = torch.zeros(MAX_TILES, dtype=torch.int32, device=x.device)
        _ARRIVALS[x.device] = known
    return known
