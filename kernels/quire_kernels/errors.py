"""Errors of this package.

KernelError
├── ArgumentError       an argument that no device could take (shape, dtype, stride)
└── UnsupportedError    a request this build or this device has no kernel for

Both say what would be accepted, because the engine shows them to the user at start.
"""

from __future__ import annotations


class KernelError(Exception):
    """Root of the errors raised by `quire_kernels`."""


class ArgumentError(KernelError, ValueError):
    """An argument has a wrong shape, dtype, device or stride."""


class UnsupportedError(KernelError, NotImplementedError):
    """There is no kernel for this head dim, dtype, block size or device."""
