"""Kernels for CPUs: a decoder's whole step in one call into C++, weights kept packed.

The C++ sources are compiled on the machine that runs them, at first use, and kept in a cache.
Importing this package imports neither torch nor the library; the first use of a name does.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "BuildError": "quire_kernels.cpu.build",
    "Decoder": "quire_kernels.cpu.decoder",
    "DecoderShape": "quire_kernels.cpu.weights",
    "DecoderWeights": "quire_kernels.cpu.weights",
    "LayerWeights": "quire_kernels.cpu.weights",
    "PackedMatrix": "quire_kernels.cpu.packing",
    "StepInputs": "quire_kernels.cpu.decoder",
    "Team": "quire_kernels.cpu.library",
    "load_library": "quire_kernels.cpu.library",
    "must_compile": "quire_kernels.cpu.library",
    "pack_gguf": "quire_kernels.cpu.packing",
    "pack_tensor": "quire_kernels.cpu.packing",
    "unavailable_reason": "quire_kernels.cpu.library",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(_NAMES)
