"""Three ways to drive an engine to the end of its requests.

step by step   `EngineCore.step` without overlap: the device waits for the host
core           `EngineCore.step` as a server runs it: k + 1 is planned while k runs
overlapped     the same by the least that can be done: tokens that k will sample are placeholders
               until they come, nobody is told of them, and ends by length alone can be planned
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import StepResult
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.scheduler.plan import Plan

PLACEHOLDER = 0


@dataclass
class LoopTimes:
    """What a run took."""

    seconds: float = 0.0
    first_token_seconds: float = 0.0
    num_steps: int = 0
    num_tokens: int = 0
    submit_seconds: float = 0.0
    """Host time in `submit`, overlapped runs alone."""
    host_seconds: float = 0.0
    """Host time outside `collect`, overlapped runs alone."""


def run_steps(core: EngineCore, *, overlaps: bool) -> LoopTimes:
    """Step until no request is left."""
    times = LoopTimes()
    core.in_flight.overlaps = overlaps
    begin = time.perf_counter()
    while core.has_work():
        deltas = core.step(time.perf_counter())
        times.num_steps += 1
        times.num_tokens += sum(len(delta.token_ids) for _, delta in deltas)
        if times.num_tokens and not times.first_token_seconds:
            times.first_token_seconds = time.perf_counter() - begin
    times.seconds = time.perf_counter() - begin
    return times


def run_overlapped(
    core: EngineCore, executor: CudaExecutor, max_steps: int | None = None
) -> LoopTimes:
    """Keep one step submitted ahead until no request is left, or for so many steps."""
    times = LoopTimes()
    scheduler = core.scheduler
    ahead: tuple[Plan, list[tuple[int, int]]] | None = None
    begin = time.perf_counter()
    while scheduler.has_work() and times.num_steps != max_steps:
        started = time.perf_counter()
        plan = scheduler.schedule(started)
        submitting = time.perf_counter()
        executor.submit(plan.batch)
        submitted = time.perf_counter()
        times.submit_seconds += submitted - submitting
        places = [
            (index, len(request.token_ids))
            for index, request in enumerate(plan.requests)
            if plan.batch.chunks.samples[index]
        ]
        scheduler.postprocess(plan, StepResult([PLACEHOLDER] * len(places)))
        times.num_steps += 1
        times.num_tokens += len(places)
        times.host_seconds += time.perf_counter() - started
        if ahead is not None:
            _fill(*ahead, executor.collect())
        ahead = (plan, places)
    if ahead is not None:
        _fill(*ahead, executor.collect())
    times.seconds = time.perf_counter() - begin
    return times


def _fill(plan: Plan, places: list[tuple[int, int]], result: StepResult) -> None:
    """Put the sampled tokens where their placeholders are."""
    for (index, position), token_id in zip(places, result.token_ids, strict=True):
        plan.requests[index].token_ids[position] = token_id
