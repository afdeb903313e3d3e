"""Calibrates an engine on a CPU, and holds the model against steps that it has not seen.

`python -m benchmarks.calibration --cpu-time --json benchmarks/results/calibration.json`

    calibrated   what `quire profile` measures, and the errors over its own samples
    held-out     random steps within the range that was measured: batches, contexts, prompts, mixed

Errors are |predicted - measured| / measured of single steps. With `--cpu-time`, seconds are those
that the one computing thread was given: on a machine that runs other things, seconds that pass are
mostly those of others.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quire_engine.calibration.profiling import profile_engine
from quire_engine.calibration.rig import StepRig
from quire_engine.calibration.trials import MAX_STEPS_PER_VISIT, Trial, decode_trial
from quire_engine.config import EngineConfig, ExecutorConfig, ModelConfig
from quire_engine.execution.base import Executor
from quire_engine.execution.factory import create_executor
from quire_engine.profiles.engine_profile import EngineProfile, measure_prefill_rate
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.messages import ModelFacts
from quire_engine.sources.factory import resolve

Step = tuple[int, int, int, int, float]
"""Decodes, their context tokens, prompt tokens, pairs, seconds."""
Clock = Callable[[], float]
TIMED_STEPS = 4


def quiet(_stage: str, _fraction: float) -> None:
    """Progress that nobody watches."""


def describe_errors(model: StepTimeModel, steps: list[Step]) -> dict[str, Any]:
    """Errors of single steps, of all and by kind."""
    kinds: dict[str, list[float]] = {"all": [], "decode": [], "prompt": [], "mixed": []}
    for decodes, context, tokens, pairs, seconds in steps:
        error = abs(model.predict(decodes, context, tokens, pairs) / seconds - 1)
        kinds["all"].append(error)
        kinds["mixed" if decodes and tokens else "prompt" if tokens else "decode"].append(error)
    return {name: describe(errors) for name, errors in kinds.items() if errors}


def describe(errors: list[float]) -> dict[str, float]:
    """How many, their median, their 95th percentile, the largest."""
    ordered = sorted(errors)
    count = len(ordered)
    p95 = ordered[min(count * 95 // 100, count - 1)]
    return {"steps": count, "median": ordered[count // 2], "p95": p95, "max": ordered[-1]}


def draw_trial(
    rng: random.Random, facts: ModelFacts, *, max_batch: int, max_context: int, max_tokens: int
) -> Trial:
    """A step of any kind: sizes evenly over their logarithms.

    Parameters
    ----------
    max_context
        Of all decodes together.
    max_tokens
        Of prompts and decodes together.
    """
    kind = rng.choice(("decode", "decode", "prompt", "mixed"))
    if kind == "prompt":
        return Trial(prompts=_draw_prompts(rng, max_tokens, facts.max_model_len))
    num_decodes = _draw(rng, 1, min(max_batch, max_tokens))
    longest = facts.max_model_len - MAX_STEPS_PER_VISIT
    longest = min(longest, max_context // num_decodes - MAX_STEPS_PER_VISIT)
    context = _draw(rng, 16, max(longest, 16))
    room = max_tokens - num_decodes
    if kind == "decode" or room < 1:
        return decode_trial(num_decodes, context, max(longest, 16))
    prompts = _draw_prompts(rng, room, facts.max_model_len)[: max(max_batch // 2, 1)]
    num_decodes = max(min(num_decodes, max_batch - len(prompts)), 0)
    return decode_trial(num_decodes, context, max(longest, 16), prompts)


def _draw(rng: random.Random, fewest: int, most: int) -> int:
    drawn: float = fewest * (most / fewest) ** rng.random()
    return round(drawn)


def _draw_prompts(rng: random.Random, max_tokens: int, longest: int) -> tuple[tuple[int, int], ...]:
    tokens = _draw(rng, min(16, max_tokens), max_tokens)
    count = max(rng.choice((1, 1, 2, 4)) if tokens > 64 else 1, -(-tokens // (longest - 1)))
    each = max(tokens // count, 1)
    start = rng.choice((0, 0, 512)) if each + 512 < longest else 0
    return ((start, each),) * count


def run_held_out(
    executor: Executor,
    facts: ModelFacts,
    clock: Clock,
    *,
    seconds: float,
    max_batch: int,
    max_context: int,
    max_tokens: int,
) -> list[Step]:
    """Random steps, those of each trial after one that does not count."""
    rng = random.Random(20)
    rig = StepRig(executor, facts, clock)
    steps: list[Step] = []
    begin = clock()
    while clock() - begin < seconds:
        trial = draw_trial(
            rng, facts, max_batch=max_batch, max_context=max_context, max_tokens=max_tokens
        )
        if trial.num_blocks(facts.block_size) > facts.num_blocks:
            continue
        with rig.visit(trial) as run:
            run(True)
            for index in range(1, 1 + TIMED_STEPS):
                context = trial.context_tokens(index)
                work = (trial.num_decodes, context, trial.prefill_tokens, trial.prefill_pairs)
                steps.append((*work, run(index < TIMED_STEPS)))
    rig.check_returned()
    return steps


def summarise(profile: EngineProfile) -> dict[str, Any]:
    """What a profile says, in a row."""
    model = profile.step_time
    return {
        "device": profile.device,
        "kinds": len(profile.steps),
        "samples": sum(len(step.samples) for step in profile.steps),
        "prefill_tokens_per_s": measure_prefill_rate(profile.steps),
        "typical_error": model.typical_error,
        "fit_error": model.fit_error,
        "batch1_seconds": model.predict(1, 256),
        "limits": [
            model.limits.num_decodes,
            model.limits.context_tokens,
            model.limits.prefill_tokens,
        ],
    }


def measure(seconds: float, clock: Clock) -> dict[str, Any]:
    """The default model on one thread."""
    config = EngineConfig(
        model=ModelConfig(max_model_len=2048),
        executor=ExecutorConfig(num_threads=1, device="cpu"),
    )
    executor = create_executor(config, resolve(config.model.source).path)
    executor.load(quiet)
    facts = executor.allocate_cache()
    profile = profile_engine(
        executor,
        facts,
        config,
        model="smollm2-135m",
        budget_seconds=seconds,
        progress=quiet,
        clock=clock,
    )
    limits = profile.step_time.limits
    steps = run_held_out(
        executor,
        facts,
        clock,
        seconds=seconds,
        max_batch=limits.num_decodes,
        max_context=limits.context_tokens,
        max_tokens=max(limits.prefill_tokens, 1),
    )
    executor.close()
    return {
        "calibrated": summarise(profile),
        "held-out": describe_errors(profile.step_time, steps),
    }


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30.0, help="of each of the two parts")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    results = {
        "clock": clock.__name__,
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        **measure(arguments.seconds, clock),
    }
    print(json.dumps(results, indent=1))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
