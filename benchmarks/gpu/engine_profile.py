"""Where a steady decode step's time goes: kernels by name, and how long the device is idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.engine_loops import run_overlapped
from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.executor import CudaExecutor

AddRequests = Callable[[EngineCore, list[tuple[int, int]], int], None]
NUM_STEPS = 20


def profile_decode(
    core: EngineCore, executor: CudaExecutor, add_requests: AddRequests, batch: int
) -> dict[str, Any]:
    """Trace steps of `batch` decodes at contexts of about 600 tokens, overlapped."""
    add_requests(core, [(512, 300)] * batch, -batch)
    run_overlapped(core, executor, max_steps=100)
    untraced = run_overlapped(core, executor, max_steps=NUM_STEPS)
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        run_overlapped(core, executor, max_steps=NUM_STEPS)
        torch.cuda.synchronize()
    after = run_overlapped(core, executor, max_steps=NUM_STEPS)
    core.abort_client("bench")
    run_overlapped(core, executor, max_steps=1)
    step_us = (untraced.seconds + after.seconds) / (2 * NUM_STEPS) * 1e6
    spans: list[tuple[float, float]] = []
    by_kernel: dict[str, list[float]] = defaultdict(list)
    for event in trace.events() or []:
        if event.device_type.name == "CUDA":
            spans.append((event.time_range.start, event.time_range.end))
            by_kernel[event.name[:70]].append(event.time_range.elapsed_us())
    rows = sorted(by_kernel.items(), key=lambda item: -sum(item[1]))[:24]
    return {
        "step_us": step_us,
        "submit_us": untraced.submit_seconds / untraced.num_steps * 1e6,
        "host_us": untraced.host_seconds / untraced.num_steps * 1e6,
        "idle_share": 1 - busy_us(spans) / NUM_STEPS / step_us,
        "us_per_step": {
            name: [round(sum(us) / NUM_STEPS, 2), round(len(us) / NUM_STEPS, 2)]
            for name, us in rows
        },
    }


def busy_us(spans: list[tuple[float, float]]) -> float:
    """Microseconds that any of the spans covers.

    Set against steps that are not traced: tracing slows the host, and the device then waits for it.
    """
    busy, reach = 0.0, 0.0
    for start, end in sorted(spans):
        busy += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return busy
