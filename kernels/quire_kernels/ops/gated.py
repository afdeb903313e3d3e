"""SiLU-mul and GELU-mul: the activation between an MLP's two products."""

from __future__ import annotations

import torch

from quire_kernels.errors import ArgumentError
from quire_kernels.ops.checks import check_last_contiguous, check_like, check_shape, check_supported
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.ops.norm import DTYPES
from quire_kernels.triton.gated import gated_kernel

ACTIVATIONS = ("silu", "gelu_tanh")
BLOCK = 1024


def gated(
    gate_up: torch.Tensor,
    *,
    activation: str = "silu",
    out: torch.Tensor | None = None,
    checked: bool = True,
) -> torch.Tensor:
    """`act(gate) * up`, computed in fp32.

    Parameters
    ----------
    gate_up
        [num_rows, 2 * size] bf16, fp16 or fp32, device: gate in the first half of a row, up in the
        second; last dimension contiguous.
    activation
        `silu` or `gelu_tanh`.
    out
        [num_rows, size], as gate_up; allocated when absent.
    checked
        False: shapes, strides and dtypes are those of a call that was checked.

    Raises
    ------
    ArgumentError, UnsupportedError
        Shapes, strides, dtypes or activations that don't fit.
    """
    if checked:
        _check(gate_up, activation)
    num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(num_rows, size) if out is None else out
    if checked:
        check_like("out", out, gate_up)
        check_shape("out", out, (num_rows, size))
        check_last_contiguous("out", out)
        device_of(gate_up)
    if num_rows:
        launch_kernel(
            gated_kernel, (num_rows, -(-size // BLOCK)),
            gate_up, out, size, gate_up.stride(0), out.stride(0),
            BLOCK=BLOCK, GELU=activation == "gelu_tanh", dependent=True, num_warps=4,
        )  # fmt: skip
    return out


def _check(gate_up: torch.Tensor, activation: str) -> None:
    check_supported("gate_up: dtype", gate_up.dtype, DTYPES)
    check_supported("activation", activation, ACTIVATIONS)
    check_shape("gate_up", gate_up, (None, None))
    check_last_contiguous("gate_up", gate_up)
    if gate_up.shape[1] % 2:
        raise ArgumentError(f"gate_up: rows of {gate_up.shape[1]} have no two halves")
