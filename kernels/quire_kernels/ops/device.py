"""What a kernel launch needs to know about the device, read once per device."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import torch

from quire_kernels.errors import UnsupportedError


@dataclass(frozen=True)
class Device:
    """A device as the tuning tables and the wave arithmetic see it."""

    arch: str
    """`sm90` and the like; `interpreter` under TRITON_INTERPRET=1."""

    num_multiprocessors: int
    """Streaming multiprocessors that one wave of programs can fill."""


@functools.cache
def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1)."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "true", "on"}


@functools.cache
def overlaps_launches(index: int) -> bool:
    """Whether a kernel can be launched while the one before it ends (Hopper's dependent launch)."""
    return torch.cuda.get_device_capability(index) >= (9, 0)


def device_of(tensor: torch.Tensor) -> Device:
    """The device that holds `tensor`.

    Raises
    ------
    UnsupportedError
        On the CPU without the interpreter, or below compute capability 8.0.
    """
    if interpreted():
        return Device("interpreter", 4)
    if not tensor.is_cuda:
        raise UnsupportedError(
            f"kernels run on CUDA devices, not on {tensor.device}; "
            "the CPU engine uses plain torch (quire_kernels.reference for tests)"
        )
    return _cuda_device(tensor.device.index)


@functools.cache
def _cuda_device(index: int) -> Device:
    facts = torch.cuda.get_device_properties(index)
    if facts.major < 8:
        raise UnsupportedError(
            f"{facts.name} has compute capability {facts.major}.{facts.minor}; supported: 8.0 up"
        )
    return Device(f"sm{facts.major}{facts.minor}", facts.multi_processor_count)
