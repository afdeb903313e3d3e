"""Builders of sampling rows, shared by the interpreter and the GPU tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from quire_kernels.ops.sampling import PROMPT_FLAG, Penalties, SamplingParameters


def make_parameters(
    rows: Sequence[Mapping[str, float]], *, device: str = "cpu", truncates: bool = True
) -> SamplingParameters:
    """One dict per row; what is absent is off, seeds and positions differ from row to row."""

    def column(name: str, default: float, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([row.get(name, default) for row in rows], dtype=dtype, device=device)

    seeds = torch.tensor([int(row.get("seed", 7919 * i + 3)) for i, row in enumerate(rows)])
    positions = torch.tensor([int(row.get("position", 11 + i)) for i, row in enumerate(rows)])
    return SamplingParameters(
        temperature=column("temperature", 1.0, torch.float32),
        top_k=column("top_k", 0, torch.int32),
        top_p=column("top_p", 1.0, torch.float32),
        min_p=column("min_p", 0.0, torch.float32),
        seeds=seeds.to(device),
        positions=positions.int().to(device),
        truncates=truncates,
    )


def make_penalties(num_rows: int, vocab_size: int, device: str = "cpu") -> Penalties:
    """Random counts, in rows of the table that are not those of the logits."""
    generator = torch.Generator().manual_seed(5)
    counts = torch.randint(0, 3, (num_rows + 2, vocab_size), generator=generator).int()
    prompt = torch.rand(counts.shape, generator=generator) < 0.2
    order = torch.randperm(num_rows + 2, generator=generator)[:num_rows].int()
    return Penalties(
        repetition=torch.linspace(1.0, 1.6, num_rows, device=device),
        frequency=torch.linspace(-0.3, 0.9, num_rows, device=device),
        presence=torch.linspace(0.8, 0.0, num_rows, device=device),
        token_counts=(counts | prompt.int() * PROMPT_FLAG).to(device),
        count_rows=order.to(device),
    )
