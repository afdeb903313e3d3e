"""Where a step's time goes: kernels by name, and how long the device is idle."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.engine_loops import LoopTimes, run_overlapped
from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.executor import CudaExecutor

AddRequests = Callable[[EngineCore, list[tuple[int, int]], int], None]
NUM_STEPS, NUM_LONG = 20, 60
WIDTHS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256)


def profile_decode(
    core: EngineCore, executor: CudaExecutor, add_requests: AddRequests, batch: int
) -> dict[str, Any]:
    """Trace steps of `batch` decodes at contexts of about 600 tokens, overlapped.

    A run begins and ends with a device that waits for the host. Long runs less short ones, the same
    around the traced steps, are steps in between: at the traced ones' contexts in the mean.
    """
    add_requests(core, [(512, 400)] * batch, -batch)
    run_overlapped(core, executor, max_steps=100)
    long = run_overlapped(core, executor, max_steps=NUM_LONG).seconds
    untraced = run_overlapped(core, executor, max_steps=NUM_STEPS)
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        run_overlapped(core, executor, max_steps=NUM_STEPS)
        torch.cuda.synchronize()
    short = untraced.seconds + run_overlapped(core, executor, max_steps=NUM_STEPS).seconds
    long += run_overlapped(core, executor, max_steps=NUM_LONG).seconds
    core.abort_client("bench")
    run_overlapped(core, executor, max_steps=1)
    step_us = (long - short) / (2 * (NUM_LONG - NUM_STEPS)) * 1e6
    spans, by_kernel = device_spans(trace)
    return {
        "step_us": step_us,
        "submit_us": untraced.submit_seconds / untraced.num_steps * 1e6,
        "host_us": untraced.host_seconds / untraced.num_steps * 1e6,
        "idle_share": 1 - busy_us(spans) / NUM_STEPS / step_us,
        "us_per_step": by_time(by_kernel, NUM_STEPS),
    }


def time_widths(
    core: EngineCore, executor: CudaExecutor, add_requests: AddRequests
) -> dict[str, float]:
    """Microseconds of an overlapped step, by its decodes: at contexts of about 100 tokens."""
    found = {}
    for width in WIDTHS:
        add_requests(core, [(64, 200)] * width, -20000 - width)
        run_overlapped(core, executor, max_steps=NUM_STEPS)
        short = run_overlapped(core, executor, max_steps=NUM_STEPS).seconds
        long = run_overlapped(core, executor, max_steps=NUM_LONG).seconds
        core.abort_client("bench")
        run_overlapped(core, executor, max_steps=1)
        found[str(width)] = (long - short) / (NUM_LONG - NUM_STEPS) * 1e6
    return found


def profile_prompts(
    core: EngineCore,
    executor: CudaExecutor,
    add_requests: AddRequests,
    lengths: list[tuple[int, int]],
) -> dict[str, Any]:
    """Trace steps of prompts alone: each request of `lengths` ends with its first token."""
    num_runs = 0

    def run() -> LoopTimes:
        nonlocal num_runs
        num_runs += 1
        add_requests(core, lengths, -10000 - num_runs)
        torch.cuda.synchronize()
        return run_overlapped(core, executor)

    runs = [run() for _ in range(7)][2:]
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        traced = run()
        torch.cuda.synchronize()
    spans, by_kernel = device_spans(trace)
    named = sorted(
        (event.time_range.start, event.time_range.end, event.name[:40])
        for event in trace.events() or []
        if event.device_type.name == "CUDA"
    )
    gaps = [
        (round(after[0] - before[1], 1), before[2], after[2])
        for before, after in pairwise(named)
        if after[0] > before[1]
    ]
    return {
        "us": statistics.median(times.seconds for times in runs) * 1e6,
        "submit_us": statistics.median(times.submit_seconds for times in runs) * 1e6,
        "host_us": statistics.median(times.host_seconds for times in runs) * 1e6,
        "traced_us": traced.seconds * 1e6,
        "device_us": spans[-1][1] - spans[0][0],
        "busy_us": busy_us(spans),
        "longest_gaps": sorted(gaps, reverse=True)[:8],
        "us_of_kernels": by_time(by_kernel, 1),
    }


def device_spans(trace: profile) -> tuple[list[tuple[float, float]], dict[str, list[float]]]:
    """Return when something ran on the device, in order, and how long, by kernel."""
    spans: list[tuple[float, float]] = []
    by_kernel: dict[str, list[float]] = defaultdict(list)
    for event in trace.events() or []:  # type: ignore[no-untyped-call]
        if event.device_type.name == "CUDA":
            spans.append((event.time_range.start, event.time_range.end))
            by_kernel[event.name[:70]].append(event.time_range.elapsed_us())
    return sorted(spans), by_kernel


def by_time(by_kernel: dict[str, list[float]], num_steps: int) -> dict[str, list[float]]:
    """Return (microseconds, calls) a step of the kernels that take most."""
    rows = sorted(by_kernel.items(), key=lambda item: -sum(item[1]))[:24]
    return {
        name: [round(sum(us) / num_steps, 2), round(len(us) / num_steps, 2)] for name, us in rows
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
