"""Timing in CUDA graphs, device peaks, and results written as each case finishes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

L2_BYTES = 60 * 2**20
"""The largest L2 of the devices measured, an H200's; rotated inputs together exceed it twice."""


def graph_seconds(
    calls: Sequence[Callable[[], object]], *, replays: int = 20, budget_seconds: float = 2.0
) -> float:
    """Median seconds of one call, replayed in a CUDA graph that makes each of `calls` once.

    The calls should work on different inputs, together larger than twice the L2.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    graph.replay()
    torch.cuda.synchronize()
    times: list[float] = []
    deadline = time.monotonic() + budget_seconds
    while len(times) < replays and (len(times) < 5 or time.monotonic() < deadline):
        begin, end = (torch.Event("cuda", enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / len(calls))
    return statistics.median(times)


def num_rotations(bytes_per_call: int, limit: int = 16) -> int:
    """Input sets needed so that the L2 holds none of them until its next turn."""
    return max(2, min(limit, -(-2 * L2_BYTES // max(1, bytes_per_call)) + 1))


def memory_peaks() -> tuple[float, float]:
    """Copy and read TB/s over 1 GiB of random data."""
    size = 2**30
    source = torch.randn(size // 2, device="cuda").to(torch.bfloat16)
    target = torch.empty_like(source)
    wide = source.view(torch.float32)
    # A kernel, not a memcpy node: the node takes the copy engine's path and is slower.
    copy = graph_seconds([lambda: torch.neg(source, out=target)] * 4)
    read = graph_seconds([lambda: torch.amax(wide)] * 4)
    return 2 * size / copy / 1e12, size / read / 1e12


def device_peaks() -> dict[str, float]:
    """Copy and read TB/s and bf16 matmul TFLOP/s of this device, on random data."""
    copy, read = memory_peaks()
    torch.cuda.empty_cache()
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    matmul = graph_seconds([lambda: torch.mm(a, b, out=out)] * 8)
    return {
        "copy_tb_per_s": copy,
        "read_tb_per_s": read,
        "bf16_matmul_tflop_per_s": 2 * 8192**3 / matmul / 1e12,
    }


def environment() -> dict[str, Any]:
    """Card, driver, clocks and versions, for the head of a result file."""
    import triton

    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit"
    smi = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    ).stdout.strip()  # fmt: skip
    return {
        "card": torch.cuda.get_device_name(),
        "smi": dict(zip(query.split(","), [part.strip() for part in smi.split(",")], strict=False)),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
    }


def measured_head() -> dict[str, Any]:
    """The head of a result file: the card, and what it can do at its best right now."""
    peaks = device_peaks()
    torch.cuda.empty_cache()
    return {"peaks": peaks, **environment()}


@dataclass
class Results:
    """A result file that is valid JSON after every case."""

    path: Path | None
    head: dict[str, Any]
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Cases that the same card measured before and does not again stay in the file."""

    def add(self, key: str, row: dict[str, Any]) -> None:
        """Record one case and write the file."""
        self.cases[key] = row
        print(key, json.dumps(row)[:1000], flush=True)
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            whole = {**self.head, "results": {**self._kept(), **self.cases}}
            self.path.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")

    def _kept(self) -> dict[str, dict[str, Any]]:
        if self.path is None or not self.path.exists():
            return {}
        whole = json.loads(self.path.read_text("utf-8"))
        if whole.get("card") != self.head.get("card"):
            return {}
        found: dict[str, dict[str, Any]] = whole["results"]
        return found
