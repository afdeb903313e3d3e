"""GPU tests run compiled kernels."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _compiled() -> None:
    """Refuse to call an interpreted run a GPU test."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("kernels are interpreted in this process: run tests/gpu alone, with a device")
