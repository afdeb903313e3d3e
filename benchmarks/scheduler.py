"""What the scheduler and the block accounting cost, and how little KV they waste.

`python -m benchmarks.scheduler [--json FILE]` measures, on one core and without torch:

    step_256_ms        median time of a step over 256 running decodes with prefix caching: schedule
                       and postprocess in pure Python, a block allocated for every 16th token of
                       each. The executor's time is left out and stated beside it.
    blocks_per_second  blocks taken from the pool and returned to it, one at a time
    kv_waste_share     slots of held blocks that hold no token / all slots of held blocks, each
                       summed over time: as they are after each step, weighted by its duration.
                       Requests of a trace run through the real scheduler and a simulated H100 in
                       virtual time. QUIRE_TRACE names a trace to use instead of a generated one.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire_engine.config import EngineConfig, ExecutorConfig, ModelConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Batch, StepResult
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.kvcache.pool import BlockPool
from quire_engine.profiles.traces import TraceRequest, read_trace, scale_rate
from quire_engine.profiles.traffic import generate_trace
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams

_TARGETS = {"step_256_ms": 1.5, "blocks_per_second": 500_000, "kv_waste_share": 0.01}

_NUM_DECODES = 256
_NUM_MEASURED_STEPS = 480
_DECODE_PROMPT_TOKENS = (300, 900)
_DECODE_OUTPUT_TOKENS = 900
"""Enough for the steps before and while measuring, and all 256 fit the cache to their end."""
_MAX_STARTING_STEPS = 300

_NUM_POOL_BLOCKS = 20_000
_NUM_ROUND_BLOCKS = 200
_NUM_POOL_ROUNDS = 2_000
"""Rounds of half a millisecond: other processes disturb some of them, not their median."""

_MAX_MODEL_LEN = 16_384
_CHAT_REQUESTS_PER_SECOND = 5.5
_RATE_FACTOR = 3.0
"""How much faster than recorded the trace arrives, so that the engine is well filled."""


class TimedExecutor(SimulatedExecutor):
    """Knows how long its last run took by the wall clock."""

    last_run_seconds = 0.0

    def run(self, batch: Batch) -> StepResult:
        began = time.perf_counter()
        result = super().run(batch)
        self.last_run_seconds = time.perf_counter() - began
        return result


@dataclass
class Engine:
    """A core over a simulated H100 in virtual time."""

    core: EngineCore
    executor: TimedExecutor
    clock: VirtualClock
    num_added: int = 0

    def add(self, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """Add a request whose first token is its own, so that nothing is shared."""
        first = self.num_added
        self.num_added += 1
        self.core.add(
            AddRequest(
                client_id="benchmark",
                request_id=str(first),
                prompt_token_ids=list(range(first, first + num_prompt_tokens)),
                sampling=SamplingParams(max_tokens=num_output_tokens),
            ),
            self.clock.now(),
        )


def build_engine() -> Engine:
    config = EngineConfig(
        model=ModelConfig(max_model_len=_MAX_MODEL_LEN),
        executor=ExecutorConfig(simulate="h100", model_shape="llama3.1-8b"),
    )
    clock = VirtualClock()
    executor = TimedExecutor(config, clock=clock)
    core = EngineCore(config, executor, executor.allocate_cache(), random_source=random.Random(0))
    return Engine(core, executor, clock)


def measure_steps() -> dict[str, float]:
    """Time steps over 256 decodes, whose lengths are spread so that blocks are needed evenly."""
    engine, source = build_engine(), random.Random(0)
    for _ in range(_NUM_DECODES):
        engine.add(source.randint(*_DECODE_PROMPT_TOKENS), _DECODE_OUTPUT_TOKENS)
    for _ in range(_MAX_STARTING_STEPS):
        if len(engine.core.step(engine.clock.now())) == _NUM_DECODES:
            break
    steps, runs, cpu = [], [], []
    for _ in range(_NUM_MEASURED_STEPS):
        began, cpu_began = time.perf_counter(), time.thread_time()
        num_tokens = len(engine.core.step(engine.clock.now()))
        elapsed, cpu_elapsed = time.perf_counter() - began, time.thread_time() - cpu_began
        if num_tokens != _NUM_DECODES:
            raise SystemExit(f"a step brought {num_tokens} tokens instead of {_NUM_DECODES}")
        runs.append(engine.executor.last_run_seconds)
        steps.append(elapsed - runs[-1])
        cpu.append(cpu_elapsed)
    return {
        # the clock on the wall, which on a busy machine shows the other processes too
        "step_256_ms": 1e3 * statistics.median(steps),
        "step_256_p99_ms": 1e3 * statistics.quantiles(steps, n=100)[-1],
        "step_256_cpu_ms_with_executor": 1e3 * statistics.median(cpu),
        "simulated_executor_256_ms": 1e3 * statistics.median(runs),
    }


def measure_blocks() -> dict[str, float]:
    """Take blocks and return them; the median of many rounds."""
    pool = BlockPool(_NUM_POOL_BLOCKS)
    singly, in_tables = [], []
    for _ in range(_NUM_POOL_ROUNDS):
        singly.append(_take_and_return(pool, 1))
        in_tables.append(_take_and_return(pool, 100))
    return {
        "blocks_per_second": statistics.median(singly),
        "blocks_per_second_in_tables_of_100": statistics.median(in_tables),
    }


def _take_and_return(pool: BlockPool, blocks_at_once: int) -> float:
    """Blocks per second, each both taken and returned."""
    began = time.perf_counter()
    tables = [pool.take(blocks_at_once) for _ in range(_NUM_ROUND_BLOCKS // blocks_at_once)]
    for table in tables:
        pool.release(table)
    return _NUM_ROUND_BLOCKS / (time.perf_counter() - began)


def measure_waste(trace: list[TraceRequest]) -> dict[str, float]:
    """Replay a trace in virtual time and add up held and filled slots."""
    engine = build_engine()
    block_size = engine.core.facts.block_size
    held_slot_seconds = unfilled_slot_seconds = running_seconds = peak_held_share = 0.0
    began = time.perf_counter()
    for seconds in _replay(engine, trace):
        stats = engine.core.stats()
        held_slots = stats.blocks.held * block_size
        held_slot_seconds += seconds * held_slots
        unfilled_slot_seconds += seconds * (held_slots - stats.num_filled_tokens)
        running_seconds += seconds * stats.num_running
        peak_held_share = max(peak_held_share, stats.blocks.held / stats.blocks.total)
    stats = engine.core.stats()
    return {
        "kv_waste_share": unfilled_slot_seconds / held_slot_seconds,
        "replay_mean_running": running_seconds / engine.clock.now(),
        "replay_peak_held_share": peak_held_share,
        "replay_preemptions": stats.num_preemptions,
        "replay_requests": len(trace),
        "replay_steps": stats.num_steps,
        "replay_virtual_seconds": engine.clock.now(),
        "replay_wall_seconds": time.perf_counter() - began,
    }


def _replay(engine: Engine, trace: list[TraceRequest]) -> Iterator[float]:
    """Run a trace to its end; yields each step's virtual seconds after the step."""
    core, clock = engine.core, engine.clock
    coming = iter(trace)
    following = next(coming, None)
    while following is not None or core.has_work():
        while following is not None and following.arrival_seconds <= clock.now():
            num_prompt_tokens = min(following.num_prompt_tokens, _MAX_MODEL_LEN - 1)
            engine.add(num_prompt_tokens, following.num_output_tokens)
            following = next(coming, None)
        if core.has_work():
            began = clock.now()
            core.step(began)
            yield clock.now() - began
        elif following is not None:
            clock.sleep_until(following.arrival_seconds)


def load_trace(num_requests: int) -> tuple[str, list[TraceRequest]]:
    """The trace that QUIRE_TRACE names or else a generated one, and what to call it."""
    path = os.environ.get("QUIRE_TRACE")
    if path:
        return Path(path).name, scale_rate(read_trace(path)[:num_requests], _RATE_FACTOR)
    trace = generate_trace(
        random.Random(0),
        num_requests=num_requests,
        requests_per_second=_RATE_FACTOR * _CHAT_REQUESTS_PER_SECOND,
    )
    return "generated chat, seed 0", trace


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--requests", type=int, default=2000, help="requests of the trace to replay"
    )
    arguments = parser.parse_args()
    trace_name, trace = load_trace(arguments.requests)
    figures: dict[str, Any] = measure_steps() | measure_blocks() | measure_waste(trace)
    figures |= {"trace": trace_name, "targets": _TARGETS, "num_cores": os.cpu_count()}
    print(_describe(figures))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def _describe(figures: dict[str, Any]) -> str:
    return (
        f"step over 256 decodes: {figures['step_256_ms']:.2f} ms (goal <= 1.5),"
        f" p99 {figures['step_256_p99_ms']:.2f} ms; besides, the simulated executor took"
        f" {figures['simulated_executor_256_ms']:.2f} ms; processor time of both"
        f" {figures['step_256_cpu_ms_with_executor']:.2f} ms\n"
        f"blocks taken and returned: {figures['blocks_per_second']:,.0f}/s one at a time"
        f" (goal >= 500,000), {figures['blocks_per_second_in_tables_of_100']:,.0f}/s by hundreds\n"
        f"KV waste: {figures['kv_waste_share']:.2%} of held slots hold no token (goal < 1 %),"
        f" averaged over {figures['replay_virtual_seconds']:.0f} virtual seconds of"
        f" {figures['replay_requests']} requests, {figures['trace']}:"
        f" {figures['replay_mean_running']:.0f} running on average, at most"
        f" {figures['replay_peak_held_share']:.0%} of the blocks held,"
        f" {figures['replay_preemptions']} preemptions; took"
        f" {figures['replay_wall_seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
