"""From an executor to its profile: measure, fit, and refuse what makes no sense."""

import time

from quire_engine.calibration.measuring import Clock, measure_steps
from quire_engine.config import EngineConfig
from quire_engine.errors import CalibrationError, ConfigError
from quire_engine.execution.base import Executor, Progress
from quire_engine.profiles.engine_profile import EngineProfile
from quire_engine.profiles.step_time_calibration import fit_measured
from quire_engine.protocol.messages import ModelFacts

MAX_TYPICAL_ERROR, MAX_FIT_ERROR = 0.25, 1.0
"""A model whose median step, or every twentieth one, is off by more says less than steps of
requests soon will."""


def profile_engine(
    executor: Executor,
    facts: ModelFacts,
    config: EngineConfig,
    *,
    model: str,
    budget_seconds: float,
    progress: Progress,
    clock: Clock = time.perf_counter,
) -> EngineProfile:
    """Measure an executor that serves nobody yet.

    Parameters
    ----------
    model
        The model's name, for people.
    budget_seconds
        What it should take.

    Raises
    ------
    CalibrationError
        Too little could be measured in that time, or the steps differ too much from each other.
    """
    scheduler = config.scheduler
    steps = measure_steps(
        executor,
        facts,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        budget_seconds=budget_seconds,
        clock=clock,
        progress=progress,
        overlaps=config.executor.overlap,
    )
    device = executor.describe()
    num_samples = sum(len(step.samples) for step in steps)
    try:
        step_time = fit_measured(
            steps, f"{num_samples} steps of {model} on {device}", executor.padded_tokens
        )
    except ConfigError as error:
        raise CalibrationError(str(error)) from error
    if step_time.typical_error > MAX_TYPICAL_ERROR or step_time.fit_error > MAX_FIT_ERROR:
        raise CalibrationError(
            f"the steps that were measured differ from any model by {step_time.typical_error:.0%} "
            f"in the median, {step_time.fit_error:.0%} for 95 %: is the machine busy with "
            "something else?"
        )
    return EngineProfile(
        device=device,
        model=model,
        max_model_len=facts.max_model_len,
        vocab_size=facts.vocab_size,
        num_blocks=facts.num_blocks,
        block_size=facts.block_size,
        max_num_seqs=scheduler.max_num_seqs,
        max_num_batched_tokens=scheduler.max_num_batched_tokens,
        step_time=step_time,
        steps=steps,
    )
