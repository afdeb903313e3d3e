"""Paged attention at the anchors' shapes, in CUDA graphs, with the device's own peaks.

`python -m benchmarks.gpu.attention --json benchmarks/gpu/results/h100/attention.json`

Peers in the same run: torch's SDPA over contiguous keys (no paging, so a bound rather than a
rival) for the prefill cases.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.attention_cases import CASES, OPTIONS, Case, Inputs, make_inputs
from benchmarks.gpu.harness import (
    Results,
    graph_seconds,
    measured_head,
    num_rotations,
)
from quire_kernels.ops.attention import paged_attention


def attend(x: Inputs, *, fresh: bool) -> None:
    """One call of the operation on one rotation."""
    extra: dict[str, Any] = {"k_new": x.k_new, "v_new": x.v_new} if fresh else {}
    paged_attention(x.q, x.key_cache, x.value_cache, x.batch, OPTIONS, out=x.out, **extra)


def measure(case: Case, inputs: list[Inputs], *, fresh: bool) -> dict[str, float]:
    """Microseconds and the rate the goal is stated in."""
    seconds = graph_seconds([lambda x=x: attend(x, fresh=fresh) for x in inputs])  # type: ignore[misc]
    if case.is_decode:
        return {"us": seconds * 1e6, "tb_per_s": case.num_bytes / seconds / 1e12}
    return {"us": seconds * 1e6, "tflop_per_s": case.num_flops / seconds / 1e12}


def measure_sdpa(case: Case) -> dict[str, float]:
    """Torch's attention over contiguous keys; only where query and context are one length."""
    shape = (case.num_seqs, 32, case.query_len, 128)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def call() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    seconds = graph_seconds([call, call])
    return {"us": seconds * 1e6, "tflop_per_s": case.num_flops / seconds / 1e12}


def run_case(case: Case, results: Results) -> None:
    """Measure one case and its peers, and record them."""
    inputs = make_inputs(case, num_rotations(case.num_bytes))
    row: dict[str, object] = {"goal": case.goal, **measure(case, inputs, fresh=not case.is_decode)}
    if not case.is_decode:
        row["paged_only"] = measure(case, inputs, fresh=False)
    if not case.is_decode and case.query_len == case.context_len:
        row["torch_sdpa_contiguous"] = measure_sdpa(case)
    results.add(case.key, row)


def main() -> None:
    """Measure every case; the file is complete after each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", default="", help="part of a key")
    arguments = parser.parse_args()
    head = measured_head()
    print(head, flush=True)
    results = Results(arguments.json, head)
    for case in CASES:
        if arguments.only in case.key:
            run_case(case, results)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
