"""Launches of Triton kernels without binding their arguments anew each time.

`kernel[grid](...)` inspects every argument to find the compiled kernel: in a step of hundreds of
launches that takes the host longer than the device computes. Here the numbers themselves are the
key, and which addresses are multiples of 16 bytes: strides and sizes of a model hardly ever change.
A launch whose key was seen before goes straight to the driver.

Kernels of a decode step take microseconds each, and the gap between two of them is as long. A
`dependent` kernel is launched while the one before still runs, and waits on the device until that
is done (`wait_for_inputs` in `triton.dependent`); what it loads before must be constant.
"""

# ruff: noqa: ANN401 - kernels, their arguments and what Triton makes of them have no types
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from quire_kernels.ops.device import cuda_device, interpreted, pretended

MAX_KNOWN = 1 << 14
"""Keys kept; then it begins anew: numbers that differ in every step must not fill memory."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What the driver needs of a kernel beside its arguments."""

    run: Callable[..., object]
    function: object
    metadata: object
    constants: tuple[object, ...]
    """Values of the constexpr parameters, in the signature's order."""


_EARLY: dict[bool, dict[str, bool]] = {
    False: {"DEPENDENT": False},
    True: {"DEPENDENT": True, "launch_pdl": True},
}
_KNOWN: dict[tuple[object, ...], _Compiled] = {}


def launch(
    kernel: Any, grid: tuple[int, ...], *args: Any, dependent: bool = False, **meta: Any
) -> None:
    """Do what `kernel[grid](*args, **meta)` does; for a pretended device, compile alone.

    Parameters
    ----------
    kernel
        A jitted function whose constexpr parameters come last.
    args
        Its other arguments, in order: tensors, numbers, TMA descriptors.
    dependent
        It has a constexpr DEPENDENT, and waits by itself for the kernel before it.
    meta
        Its constexpr parameters by name, and `num_warps` and the like.
    """
    if (absent := pretended()) is not None:
        early = _EARLY[absent.overlaps_launches] if dependent else {}
        kernel.warmup(*args, grid=grid, **(meta | early))
        return
    if interpreted():
        kernel[grid](*args, **(meta | _EARLY[False] if dependent else meta))
        return
    device = torch.cuda.current_device()
    if dependent:
        meta |= _EARLY[cuda_device(device).overlaps_launches]
    key: list[object] = [id(kernel), device, *meta.values()]
    values: list[Any] = []
    bits = 0
    for arg in args:
        if isinstance(arg, torch.Tensor):
            address = arg.data_ptr()
            bits |= address
            key.append(arg.dtype)
            values.append(address)
        else:
            # of a descriptor, all but its address follows from the rest of the key
            key.append(arg if isinstance(arg, int | float) else arg.base.dtype)
            values.append(arg)
    if bits & 15:
        key.append(tuple(value & 15 for value in values if isinstance(value, int)))
    whole = tuple(key)
    known = _KNOWN.get(whole)
    if known is None:
        _remember(whole, kernel, kernel[grid](*args, **meta), meta)
        return
    known.run(
        *(*grid, 1, 1)[:3],
        torch._C._cuda_getCurrentRawStream(device),
        known.function, known.metadata, None, None, None, *values, *known.constants,
    )  # fmt: skip


def _remember(key: tuple[object, ...], kernel: Any, compiled: Any, meta: dict[str, Any]) -> None:
    if len(_KNOWN) >= MAX_KNOWN:
        _KNOWN.clear()
    constants = tuple(meta[name] for name in kernel.arg_names if name in meta)
    _KNOWN[key] = _Compiled(compiled.run, compiled.function, compiled.packed_metadata, constants)
