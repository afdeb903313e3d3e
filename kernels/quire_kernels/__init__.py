"""Triton kernels of quire: paged attention, rotary embedding, norms, sampling.

Importing this package imports neither torch nor triton; the first use of an operation does.
"""

from __future__ import annotations

import importlib
from typing import Any

_OPERATIONS = {
    "AttentionBatch": "attention",
    "AttentionOptions": "attention",
    "HeadNorm": "rope",
    "Penalties": "sampling",
    "SamplingParameters": "sampling",
    "add_rms_norm": "norm",
    "copy_blocks": "blocks",
    "gated": "gated",
    "linear": "linear",
    "paged_attention": "attention",
    "rms_norm": "norm",
    "rope_and_cache": "rope",
    "sample": "sampling",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    module = _OPERATIONS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"quire_kernels.ops.{module}"), name)


def __dir__() -> list[str]:
    return sorted(_OPERATIONS)
