"""Kernels run interpreted here: the variable must be set before triton is imported."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
