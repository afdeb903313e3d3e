"""Measures as many kinds of steps as the time allows, and fits a model to them.

    round 1     every trial that would not take too much of what is left
    rounds 2-   the same ones again: what disturbs the machine for a while spoils one round

Steps are predicted before they are run, from the largest so far: no trial begins of which two steps
would take more than a third of what is left. Only the very first step is run on trust.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from quire_engine.calibration.rig import StepRig
from quire_engine.calibration.trials import MAX_STEPS_PER_VISIT, Trial, choose_trials, decode_trial
from quire_engine.errors import CalibrationError
from quire_engine.execution.base import Executor, Progress
from quire_engine.profiles.engine_profile import MeasuredStep
from quire_engine.profiles.step_time import count_pairs
from quire_engine.profiles.step_time_calibration import MIN_STEPS, SAMPLES_PER_VISIT
from quire_engine.protocol.messages import ModelFacts

Clock = Callable[[], float]

MAX_ROUNDS = 4
_STAGE = "measuring step times"
_WARM_UPS = 1
"""Steps that begin a visit and do not count: of decodes, the first one brings the rows. Another one
at the first visit: it may capture a graph."""
_MAX_SHARE = 1 / 3
"""Of the time that is left: what two steps of a new trial may take of it."""
_VISIT_SHARE = 1 / 12
"""Of all the time: a visit that takes more ends with its first step that counts."""
_MIN_SAMPLES = 2
_HICCUP_FACTOR = 2.0
"""A step that differs by more from the median of its kind counts for nothing."""
_MAX_SECONDS = 86_400.0
_LONGER = (
    "raise --calibration-seconds (of an InferenceService: spec.engine.extraArgs:"
    " [--calibration-seconds=20])"
)


@dataclass(slots=True)
class _Visited:
    """A trial that was run, and what it showed."""

    trial: Trial
    contexts: list[int] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)


def measure_steps(
    executor: Executor,
    facts: ModelFacts,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    budget_seconds: float,
    clock: Clock,
    progress: Progress,
    overlaps: bool = True,
) -> tuple[MeasuredStep, ...]:
    """Run trials on an executor that nobody else uses yet; blocks and rows are given back.

    Parameters
    ----------
    budget_seconds
        What it should take; the first step of all is run in any case.
    overlaps
        Whether the engine's steps will overlap, where the executor can have two of them.

    Raises
    ------
    CalibrationError
        Too few kinds of steps could be measured in that time, or the clock went wrong.
    """
    rig = StepRig(executor, facts, clock, overlaps=overlaps)
    trials = choose_trials(
        facts, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens
    )
    if len(trials) < MIN_STEPS:
        raise CalibrationError("the engine holds too little to tell what its steps depend on")
    begin = clock()
    visited: list[_Visited] = []
    for share in _visit_all(rig, trials, visited, budget_seconds, clock):
        progress(_STAGE, min(share, 1.0))
    rig.check_returned()
    progress(_STAGE, 1.0)
    steps = tuple(step for step in map(_summarise, visited) if step is not None)
    if len(steps) < MIN_STEPS:
        raise CalibrationError(
            f"{len(steps)} of the {MIN_STEPS} kinds of steps that are needed could be measured "
            f"in {clock() - begin:.1f} s: the machine is slow or busy; {_LONGER}"
        )
    if not any(step.prefill_tokens for step in steps):
        raise CalibrationError(f"there was no time to measure prompts: {_LONGER}")
    return steps


def compare_again(
    executor: Executor,
    facts: ModelFacts,
    steps: Sequence[MeasuredStep],
    *,
    clock: Clock,
    overlaps: bool = True,
) -> float:
    """Run a few steps that were measured before; the median of new over old seconds.

    NaN where none of them can be run.
    """
    rig = StepRig(executor, facts, clock, overlaps=overlaps)
    ratios = []
    most = facts.max_model_len - MAX_STEPS_PER_VISIT
    for step, trial in _choose_again(steps, most):
        visited = _Visited(trial)
        _visit(rig, visited, _WARM_UPS + 1, math.inf, clock)
        ratios.append(median(visited.samples) / step.seconds)
    rig.check_returned()
    return median(ratios) if ratios else math.nan


def _choose_again(
    steps: Sequence[MeasuredStep], most_context: int
) -> list[tuple[MeasuredStep, Trial]]:
    """The shortest and the middle one of decodes, and the shortest prompt."""
    ordered = sorted(steps, key=lambda step: step.seconds)
    decodes = [step for step in ordered if not step.prefill_tokens]
    prompts = [
        step
        for step in ordered
        if not step.num_decodes and step.prefill_pairs == count_pairs(0, step.prefill_tokens)
    ]
    chosen = [
        (step, decode_trial(step.num_decodes, _mean_context(step, most_context), most_context))
        for step in dict.fromkeys((*decodes[:1], *decodes[len(decodes) // 2 :][:1]))
    ]
    chosen += [(step, Trial(prompts=((0, step.prefill_tokens),))) for step in prompts[:1]]
    return chosen


def _mean_context(step: MeasuredStep, most: int) -> int:
    return min(step.context_tokens // step.num_decodes, most)


def _visit_all(
    rig: StepRig, trials: list[Trial], visited: list[_Visited], budget: float, clock: Clock
) -> Iterator[float]:
    """Visit the trials round by round; yields the share of the time that is over."""
    begin = clock()
    allowed = budget * _VISIT_SHARE
    longest, work = 0.0, 0.0
    for trial in trials:
        left = budget - (clock() - begin)
        expected = longest * max(trial.work / work, 1.0) if work else 0.0
        if left <= 0 or 2 * expected > left * _MAX_SHARE:
            continue
        visited.append(_Visited(trial))
        shortest = _visit(rig, visited[-1], _WARM_UPS + 1, allowed, clock)
        if trial.work > work:
            longest, work = shortest, trial.work
        yield (clock() - begin) / budget
    for _ in range(MAX_ROUNDS - 1):
        for seen in visited:
            left = budget - (clock() - begin)
            if left >= (_WARM_UPS + 1) * median(seen.samples):
                _visit(rig, seen, _WARM_UPS, allowed, clock)
                yield (clock() - begin) / budget


def _visit(
    rig: StepRig, visited: _Visited, num_warm_ups: int, allowed: float, clock: Clock
) -> float:
    """Run some steps of a trial, fewer if they are long; returns the shortest one's seconds."""
    trial = visited.trial
    begin = clock()
    shortest = math.inf
    num_counted = 0
    num_steps = num_warm_ups + SAMPLES_PER_VISIT
    with rig.visit(trial) as run:
        for index in range(num_steps):
            seconds = run(index + 1 < num_steps)
            shortest = min(shortest, seconds)
            is_long = clock() - begin + seconds > allowed
            # one that takes all the time there is had better count than be repeated
            if index >= num_warm_ups or (index >= _WARM_UPS and is_long):
                visited.samples.append(seconds)
                visited.contexts.append(trial.context_tokens(index))
                num_counted += 1
            if is_long and num_counted:
                break
    return shortest


def _summarise(visited: _Visited) -> MeasuredStep | None:
    """The samples of a trial without hiccups; None where too few are left."""
    samples = [
        (seconds, context)
        for seconds, context in zip(visited.samples, visited.contexts, strict=True)
        if math.isfinite(seconds) and 0 < seconds <= _MAX_SECONDS
    ]
    if len(samples) < _MIN_SAMPLES:
        return None
    middle = median(seconds for seconds, _ in samples)
    kept = [
        (seconds, context)
        for seconds, context in samples
        if middle / _HICCUP_FACTOR <= seconds <= middle * _HICCUP_FACTOR
    ]
    trial = visited.trial
    return MeasuredStep(
        num_decodes=trial.num_decodes,
        context_tokens=round(sum(context for _, context in kept) / len(kept)),
        prefill_tokens=trial.prefill_tokens,
        prefill_pairs=trial.prefill_pairs,
        samples=tuple(seconds for seconds, _ in kept),
    )
