"""Compiling for a device that is not there: any machine with Triton compiles for every one.

Within `compiling_for` each launch makes the compiled kernel that the same launch on the device
would look for in Triton's cache, and runs nothing. Tensors may be torch's `meta` ones, which have
shapes, strides and addresses but no memory.
"""

# ruff: noqa: ANN401 - Triton's driver has no types
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quire_kernels.errors import UnsupportedError
from quire_kernels.ops.device import Device, pretending

DEVICES = {
    "sm80": (Device("sm80", 108),),  # A100
    "sm86": (Device("sm86", 72), Device("sm86", 84)),  # A10; A40, RTX A6000
    "sm89": (Device("sm89", 58), Device("sm89", 142)),  # L4; L40S
    "sm90": (
        Device("sm90", 114),  # H100 PCIe
        Device("sm90", 132),  # H100 SXM
        Device("sm90", 132, reads_fast=True),  # H200
    ),
}
"""Those of an architecture: how far contexts are split and which tiles are best differs."""


def devices_of(arch: str) -> tuple[Device, ...]:
    """The devices of an architecture.

    Raises
    ------
    UnsupportedError
        There are no tiles for it before it was tuned on one.
    """
    if arch not in DEVICES:
        raise UnsupportedError(
            f"kernels cannot be compiled ahead for {arch}: there are tables for "
            f"{', '.join(DEVICES)}"
        )
    return DEVICES[arch]


@contextmanager
def compiling_for(device: Device) -> Iterator[None]:
    """Compile what is launched within the block for `device`, and run nothing."""
    from triton.runtime import driver

    before = driver._active
    driver.set_active(_absent_driver(device.capability))
    try:
        with pretending(device):
            yield
    finally:
        driver._active = before


def _absent_driver(capability: int) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver

    class AbsentDriver(CudaDriver):  # type: ignore[misc]
        """Answers what the compiler asks."""

        def __init__(self) -> None:
            """Leave out what looks for a device."""

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", capability, 32)

        def get_current_device(self) -> int:
            # Triton keeps compiled kernels by this number: no real device has it
            return -capability

        def get_current_stream(self, _device: int) -> int:
            return 0

    return AbsentDriver()
