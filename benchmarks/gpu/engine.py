"""The whole engine with dummy weights: the anchor workloads, in one process, without HTTP.

`python -m benchmarks.gpu.engine --shape llama3-8b --json benchmarks/gpu/results/h100/engine.json`

Temperature 0.6, ends by length alone, prefix caching off, 256 sequences, 8,192 tokens a step.
Every graph is captured before the throughput rows. `engine/<shape>/<workload>` has the rate of a
bare overlapped loop, and beside it the core's: as a server runs it, and stepping one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.closed_loop import measure_closed_loop
from benchmarks.gpu.engine_loops import LoopTimes, run_overlapped, run_steps
from benchmarks.gpu.engine_models import start_engine
from benchmarks.gpu.engine_profile import profile_decode, profile_prompts, time_widths
from benchmarks.gpu.harness import Results, environment, measured_head
from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.startup_heap import freeze_startup_heap

Lengths = list[tuple[int, int]]
"""(prompt tokens, output tokens) of each request."""
SHORT_SECONDS = 3.0


def nano256() -> Lengths:
    rng = random.Random(0)
    inputs = [rng.randint(100, 1024) for _ in range(256)]
    return [(length, rng.randint(100, 1024)) for length in inputs]


WORKLOADS: dict[str, Callable[[], Lengths]] = {
    "batch1-in128-out256": lambda: [(128, 256)],
    "nano256": nano256,
    "256x512-128": lambda: [(512, 128)] * 256,
    "64x1024-256": lambda: [(1024, 256)] * 64,
}


def add_requests(core: EngineCore, lengths: Lengths, seed: int) -> None:
    """Queue requests of random tokens; raises if the engine refuses one."""
    rng = random.Random(seed)
    for index, (num_prompt, num_output) in enumerate(lengths):
        request = AddRequest(
            client_id="bench",
            request_id=f"{seed}-{index}",
            prompt_token_ids=[rng.randrange(10000) for _ in range(num_prompt)],
            sampling=SamplingParams(max_tokens=num_output, temperature=0.6),
        )
        refusal = core.add(request, time.perf_counter())
        if refusal is not None:
            raise RuntimeError(f"refused: {refusal}")


class Bench:
    """Runs workloads on one engine."""

    def __init__(self, shape: str, core: EngineCore, executor: CudaExecutor) -> None:
        self.shape = shape
        self.core = core
        self.executor = executor
        self._num_runs = 0

    def run(self, lengths: Lengths, how: str = "stepped") -> LoopTimes:
        """Run requests to their end; checks that all tokens came.

        Parameters
        ----------
        how
            "bare", "core" or "stepped": see `engine_loops`.
        """
        self._num_runs += 1
        add_requests(self.core, lengths, self._num_runs)
        torch.cuda.synchronize()
        if how == "bare":
            times = run_overlapped(self.core, self.executor)
        else:
            times = run_steps(self.core, overlaps=how == "core")
        if times.num_tokens != sum(output for _, output in lengths):
            raise RuntimeError(f"{times.num_tokens} tokens came, not all that were asked for")
        return times

    def throughput(self, lengths: Lengths) -> dict[str, Any]:
        """Output tokens per second all three ways; short workloads are the median of three runs."""
        overlapped = self._median(lengths, "bare")
        core = self._median(lengths, "core")
        stepped = self._median(lengths, "stepped")
        steps = overlapped.num_steps
        return {
            "out_tokens_per_s": overlapped.num_tokens / overlapped.seconds,
            "out_tokens_per_s_core": core.num_tokens / core.seconds,
            "core_share_of_overlapped": overlapped.seconds / core.seconds,
            "core_gain_over_stepped": stepped.seconds / core.seconds,
            "out_tokens_per_s_stepped": stepped.num_tokens / stepped.seconds,
            "seconds": overlapped.seconds,
            "steps": steps,
            "submit_us": overlapped.submit_seconds / steps * 1e6,
            "host_us": overlapped.host_seconds / steps * 1e6,
        }

    def _median(self, lengths: Lengths, how: str) -> LoopTimes:
        runs = [self.run(lengths, how)]
        if runs[0].seconds < SHORT_SECONDS:
            runs += [self.run(lengths, how) for _ in range(2)]
        return sorted(runs, key=lambda times: times.seconds)[len(runs) // 2]

    def prefill(self) -> dict[str, Any]:
        """Seconds to the first token of a prompt of 2,048 tokens: median of 7."""
        times = [self.run([(2048, 1)]).seconds for _ in range(9)][2:]
        return {"seconds": statistics.median(times), "all": times}


def process_age_seconds() -> float:
    """How long ago this process began."""
    started = float(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - started / os.sysconf("SC_CLK_TCK")


def measure(shape: str, results: Results, deadline: float, rows: list[str]) -> None:
    """All rows of one shape that the deadline leaves time for."""
    begin = time.time()
    imported = process_age_seconds()
    core, executor = start_engine(shape)
    ready = time.time()
    bench = Bench(shape, core, executor)
    bench.run([(16, 1)])
    first_token = time.time()
    facts = {
        "imports_s": imported,
        "ready_s": ready - begin,
        "first_token_s": first_token - begin,
        "num_blocks": core.facts.num_blocks,
    }
    results.add(f"engine/{shape}/start", facts)
    if rows == ["start"]:
        return
    executor.capture_rest()
    freeze_startup_heap()  # as the server's core does
    results.add(f"engine/{shape}/capture_rest", {"seconds": time.time() - first_token})
    bench.run([(2048, 3), (300, 3)], "bare")
    jobs: dict[str, Callable[[], dict[str, Any]]] = {
        "batch1-prefill2048": bench.prefill,
        **{n: lambda make=make: bench.throughput(make()) for n, make in WORKLOADS.items()},  # type: ignore[misc]
        "closed256": lambda: measure_closed_loop(core, executor),
        "widths": lambda: time_widths(core, executor, add_requests),
        "profile/batch1": lambda: profile_decode(bench.core, executor, add_requests, 1),
        "profile/batch256": lambda: profile_decode(bench.core, executor, add_requests, 256),
        "profile/prefill2048": lambda: profile_prompts(core, executor, add_requests, [(2048, 1)]),
        "profile/prompts16x512": lambda: profile_prompts(
            core, executor, add_requests, [(512, 1)] * 16
        ),
        "profile/prefill128": lambda: profile_prompts(core, executor, add_requests, [(128, 1)]),
    }
    for name, job in jobs.items():
        if time.time() > deadline:
            print(f"no time left for {name}", flush=True)
        elif not rows or name in rows:
            results.add(f"engine/{shape}/{name}", job())
            core.check_invariants()
    executor.close()


def main() -> None:
    """Measure the shapes asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--no-peaks", action="store_true")
    arguments = parser.parse_args()
    deadline = time.time() + arguments.seconds
    head = {"peaks": {}, **environment()} if arguments.no_peaks else measured_head()
    results = Results(arguments.json, head)
    print(json.dumps(results.head), flush=True)
    for shape in arguments.shape or ["qwen3-0.6b", "llama3-8b"]:
        measure(shape, results, deadline, arguments.row)


if __name__ == "__main__":
    main()
