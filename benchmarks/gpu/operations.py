"""The operations around attention, at the anchor models' decode and prefill sizes.

`python -m benchmarks.gpu.operations --json benchmarks/gpu/results/h100/operations.json`

Rates count each input once and each output once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.gpu.harness import Results, graph_seconds, measured_head
from quire_kernels.ops.gated import gated
from quire_kernels.ops.norm import add_rms_norm
from quire_kernels.ops.rope import rope_and_cache
from quire_kernels.ops.sampling import SamplingParameters, sample


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(torch.bfloat16)


def norm_call(rows: int, size: int) -> tuple[Callable[[], object], int]:
    x, residual, weight = noise(rows, size), noise(rows, size), noise(size)
    out = torch.empty_like(x)
    return lambda: add_rms_norm(x, residual, weight, 1e-5, out=out), 2 * 4 * rows * size


def gated_call(rows: int, size: int) -> tuple[Callable[[], object], int]:
    gate_up, out = noise(rows, 2 * size), noise(rows, size)
    return lambda: gated(gate_up, out=out), 2 * 3 * rows * size


def rope_call(rows: int) -> tuple[Callable[[], object], int]:
    q, k, v = torch.split(noise(rows, 48, 128), [32, 8, 8], 1)
    positions = torch.arange(rows, device="cuda", dtype=torch.int32)
    table = torch.randn(rows, 128, device="cuda")
    cache = torch.zeros(rows // 16 + 2, 1, 2, 8, 16, 128, device="cuda", dtype=torch.bfloat16)
    slots = positions + 16

    def call() -> object:
        return rope_and_cache(q, k, v, positions, table, cache[:, 0, 0], cache[:, 0, 1], slots)

    return call, 2 * rows * 128 * (2 * 40 + 8 + 16)


def sampling_call(rows: int, vocab_size: int, kind: str) -> tuple[Callable[[], object], int]:
    """Dummy weights give nearly flat logits: the hard case; a spread of 3 stands for a model's."""
    spread = 0.5 if kind.endswith("-flat") else 3.0
    logits = torch.randn(rows, vocab_size, device="cuda", dtype=torch.float32) * spread
    full = torch.ones(rows, device="cuda")
    ints = torch.arange(rows, device="cuda", dtype=torch.int32)
    truncates = kind not in ("greedy", "temperature")
    parameters = SamplingParameters(
        temperature=full * (0.0 if kind == "greedy" else 0.8),
        top_k=torch.full_like(ints, 20 if kind.startswith("top-k") else 0),
        top_p=full * (0.95 if truncates else 1.0),
        min_p=full * 0,
        seeds=ints.long(),
        positions=ints,
        truncates=truncates,
    )
    out = torch.empty_like(ints)
    return lambda: sample(logits, parameters, out=out), 4 * rows * vocab_size


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = Results(arguments.json, measured_head())
    cases = {}
    for rows in (1, 256, 8192):
        cases[f"add_rms_norm/{rows}x4096"] = norm_call(rows, 4096)
        cases[f"gated/{rows}x14336"] = gated_call(rows, 14336)
        cases[f"rope_and_cache/{rows}"] = rope_call(rows)
    for rows in (1, 64, 256):
        for kind in (
            "greedy",
            "temperature",
            "top-p",
            "top-k-top-p",
            "top-p-flat",
            "top-k-top-p-flat",
        ):
            cases[f"sample/{kind}/{rows}x151936"] = sampling_call(rows, 151936, kind)
    for key, (call, num_bytes) in cases.items():
        seconds = graph_seconds([call] * 4, budget_seconds=0.5)
        results.add(key, {"us": seconds * 1e6, "tb_per_s": num_bytes / seconds / 1e12})


if __name__ == "__main__":
    main()
