"""Calibrates an engine with dummy weights, and holds the model against steps it has not seen.

`python -m benchmarks.gpu.calibration --profiles DIR --json DIR/calibration.json`

    start      as an engine does it before it is ready: a few seconds, graphs captured meanwhile
    full       as `quire profile` does it; DIR/<card>-<shape>.json is the profile
    held-out   random steps: batches 1 to 256, contexts, prompts, both together; each timed step
    live       steps of an engine that serves requests of mixed lengths, overlapped as there
    refined    the same, each predicted by what was known before it

Errors are |predicted - measured| / measured of single steps. Steps are in DIR/<shape>-steps.json.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.calibration import (
    Step,
    describe,
    describe_errors,
    quiet,
    run_held_out,
    summarise,
)
from benchmarks.gpu.engine import add_requests
from benchmarks.gpu.engine_models import CONFIG, dummy_weights
from benchmarks.gpu.harness import Results, measured_head
from quire_engine.calibration.profiling import profile_engine
from quire_engine.core.engine import EngineCore
from quire_engine.core.in_flight import EndedStep, StepsInFlight
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.profiles.engine_profile import EngineProfile, save_profile
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.profiles.step_time_fit import StepTimeFitter
from quire_engine.protocol.messages import ModelFacts

START_SECONDS = 5.0
MAX_BATCH = 256
MAX_TOKENS = 8192


class Record(StepTimeFitter):
    """Keeps the work and the seconds of each step, in place of learning from it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def observe(self, *step: *Step) -> None:
        self.steps.append(step)


class RecordedSteps(StepsInFlight):
    """Overlapped steps of an engine, each with the seconds that the engine learns from."""

    def __init__(self, executor: CudaExecutor) -> None:
        super().__init__(executor, overlaps=True, clock=time.perf_counter, step_clock=None)
        self.record = Record()

    def end(self) -> EndedStep:
        ended = super().end()
        if ended.plan.requests:
            ended.plan.measure(self.record, ended.run_seconds)
        return ended


def run_live(executor: CudaExecutor, facts: ModelFacts, seconds: float) -> list[Step]:
    """Serve requests that come a few at a time, so that most steps have prompts and decodes."""
    core = EngineCore(CONFIG, executor, facts, random_source=random.Random(0))
    recorded = core.in_flight = RecordedSteps(executor)
    rng = random.Random(1)
    deadline = time.time() + seconds
    number = 0
    while time.time() < deadline:
        stats = core.stats()
        if stats.num_running + stats.num_waiting < MAX_BATCH - 8 and rng.random() < 0.4:
            number += 1
            lengths = [(rng.randint(16, 2048), rng.randint(32, 1024)) for _ in range(3)]
            add_requests(core, lengths, 1000 + number)
        if core.has_work():
            core.step(time.perf_counter())
    core.abort_client("bench")
    while core.has_work():
        core.step(time.perf_counter())
    core.check_invariants()
    return recorded.record.steps


def refine(model: StepTimeModel, steps: list[Step]) -> tuple[dict[str, Any], StepTimeModel | None]:
    """Predict each live step by what was learnt before it; the second half counts."""
    fitter = StepTimeFitter(model)
    errors = []
    for index, (decodes, context, tokens, pairs, seconds) in enumerate(steps):
        known = fitter.model()
        if known is not None and index >= len(steps) // 2:
            errors.append(abs(known.predict(decodes, context, tokens, pairs) / seconds - 1))
        fitter.observe(decodes, context, tokens, pairs, seconds)
    return describe(errors), fitter.model()


def measure(shape: str, results: Results, folder: Path, share: float) -> None:
    """All rows of one shape; `share` scales how long each takes."""
    executor = CudaExecutor(CONFIG, dummy_weights(shape))
    executor.load(quiet)
    facts = executor.allocate_cache()

    def calibrate(budget: float) -> tuple[EngineProfile, float]:
        begin = time.time()
        profile = profile_engine(
            executor, facts, CONFIG, model=shape, budget_seconds=budget, progress=quiet
        )
        return profile, time.time() - begin

    started, seconds = calibrate(START_SECONDS)
    results.add(f"calibration/{shape}/start", {"seconds": seconds, **summarise(started)})
    executor.capture_rest()
    full, seconds = calibrate(25.0 * share)
    card = torch.cuda.get_device_name().split()[1].lower()  # NVIDIA H100 80GB HBM3
    (folder / f"{card}-{shape}.json").write_bytes(save_profile(full))
    (folder / f"{card}-{shape}-start.json").write_bytes(save_profile(started))
    results.add(f"calibration/{shape}/full", {"seconds": seconds, **summarise(full)})
    runs: dict[str, Callable[[], list[Step]]] = {
        "held-out": lambda: run_held_out(
            executor,
            facts,
            time.perf_counter,
            seconds=20.0 * share,
            max_batch=MAX_BATCH,
            max_context=facts.num_blocks * facts.block_size // 2,
            max_tokens=MAX_TOKENS,
        ),
        "live": lambda: run_live(executor, facts, 20.0 * share),
    }
    kept: dict[str, list[Step]] = {}
    for name, run in runs.items():
        kept[name] = run()
        row = {
            "full": describe_errors(full.step_time, kept[name]),
            "start": describe_errors(started.step_time, kept[name]),
        }
        (folder / f"{shape}-steps.json").write_text(json.dumps(kept) + "\n", "utf-8")
        results.add(f"calibration/{shape}/{name}", row)
    errors, refined = refine(full.step_time, kept["live"])
    results.add(f"calibration/{shape}/refined", errors)
    if refined is not None:
        row = describe_errors(refined, kept["held-out"])
        results.add(f"calibration/{shape}/held-out-after-refining", row)
    executor.close()


def main() -> None:
    """Measure the shapes asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profiles", type=Path, default=Path("build/profiles"))
    parser.add_argument("--share", type=float, default=1.0, help="scales how long each row takes")
    arguments = parser.parse_args()
    arguments.profiles.mkdir(parents=True, exist_ok=True)
    results = Results(arguments.json, measured_head())
    for shape in arguments.shape or ["qwen3-0.6b", "llama3-8b"]:
        measure(shape, results, arguments.profiles, arguments.share)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
