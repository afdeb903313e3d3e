"""RMS norm and SiLU-mul in plain torch."""

from __future__ import annotations

import torch


def rms_norm_reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float = 0.0
) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * (weight + weight_offset)` over the last dimension."""
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * scale * (weight.to(x.dtype) + weight_offset)


def gated_reference(gate_up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """`act(gate) * up` of [..., 2 * size]."""
    gate, up = gate_up.chunk(2, -1)
    if activation == "silu":
        return torch.nn.functional.silu(gate) * up
    return torch.nn.functional.gelu(gate, approximate="tanh") * up
