"""What a kernel launch needs to know about the device, read once per device."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from quire_kernels.errors import UnsupportedError

_OVERLAPS_FROM = 90
"""Compute capability of Hopper, which launches a kernel while the one before it ends."""


@dataclass(frozen=True)
class Device:
    """A device as the tuning tables and the wave arithmetic see it."""

    arch: str
    """`sm90` and the like; `interpreter` under TRITON_INTERPRET=1."""

    num_multiprocessors: int
    """Streaming multiprocessors that one wave of programs can fill."""

    reads_fast: bool = False
    """Whether its memory is an H200's, 4.8 TB/s, where others of the architecture read 3.4: other
    products of a few rows are the fastest."""

    @property
    def capability(self) -> int:
        """90 of sm90."""
        return int(self.arch.removeprefix("sm"))

    @property
    def overlaps_launches(self) -> bool:
        """Whether a kernel can be launched while the one before it ends."""
        return self.capability >= _OVERLAPS_FROM


_PRETENDED: list[Device] = []


def pretended() -> Device | None:
    """The device that launches compile for without running; None: they run."""
    return _PRETENDED[-1] if _PRETENDED else None


@contextmanager
def pretending(device: Device) -> Iterator[None]:
    """Take every tensor for one on `device`: see `quire_kernels.compiled.absent`."""
    _PRETENDED.append(device)
    try:
        yield
    finally:
        _PRETENDED.pop()


@functools.cache
def interpreted() -> bool:
    """Whether Triton interprets kernels on the CPU (TRITON_INTERPRET=1)."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "true", "on"}


def device_of(tensor: torch.Tensor) -> Device:
    """The device that holds `tensor`.

    Raises
    ------
    UnsupportedError
        On the CPU without the interpreter, or below compute capability 8.0.
    """
    if _PRETENDED:
        return _PRETENDED[-1]
    if interpreted():
        return Device("interpreter", 4)
    if not tensor.is_cuda:
        raise UnsupportedError(
            f"kernels run on CUDA devices, not on {tensor.device}; "
            "the CPU engine uses plain torch (quire_kernels.reference for tests)"
        )
    return cuda_device(tensor.device.index)


@functools.cache
def cuda_device(index: int) -> Device:
    """A CUDA device by its number; raises UnsupportedError below compute capability 8.0."""
    facts = torch.cuda.get_device_properties(index)
    if facts.major < 8:
        raise UnsupportedError(
            f"{facts.name} has compute capability {facts.major}.{facts.minor}; supported: 8.0 up"
        )
    arch = f"sm{facts.major}{facts.minor}"
    return Device(arch, facts.multi_processor_count, reads_fast="H200" in facts.name)
