"""A step-time model from steps that were measured on purpose, all kinds of them.

Other than what comes by while serving (`step_time_fit`), every kind is there as often as every
other, and each is a median. So there is evidence for the terms that few engines need: a curve over
the context, and what prompts cost besides. Each is kept only if the errors are clearly less.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from quire_engine.errors import ConfigError
from quire_engine.profiles.engine_profile import MeasuredStep
from quire_engine.profiles.step_time import StepLimits, StepTimeModel, pad_tokens
from quire_engine.profiles.step_time_build import build_model, describe_errors
from quire_engine.profiles.step_time_evidence import Sample
from quire_engine.profiles.step_time_regression import (
    Load,
    Terms,
    choose_knots,
    fit_coefficients,
)

SAMPLES_PER_VISIT = 3
"""Steps that are measured one after the other: something else may disturb all of them."""
MIN_STEPS = 4
"""Kinds of steps without which there is no model."""
_CONTEXT_RATIO = 5
"""Between knots of the context, and the largest: closer ones turn noise into slopes."""
_MIN_PER_STRETCH = 2
_MIN_GAIN = 0.9
"""Mean errors must come down to this for a term more."""
_PROMPTS = ((False, False), (True, False), (True, True))
"""Whether prompts have floors, and constants: floors first, where the host launches them..."""
_PADDED_PROMPTS = ((False, False), (False, True), (True, True))
"""...and constants first, where graphs launch all but the longest."""
_FAR_OFF = 0.06
"""Relative error from which on a step counts less and less."""
_STEADY_RATIO = 1.3
_NUM_ROUNDS = 6


def fit_measured(
    steps: Sequence[MeasuredStep], source: str, padded_tokens: tuple[int, ...] = ()
) -> StepTimeModel:
    """Fit a model; its errors and quantiles are those over all samples.

    Parameters
    ----------
    padded_tokens
        What the executor pads steps with prompts to: see `StepTimeModel`.

    Raises
    ------
    ConfigError
        There are fewer than `MIN_STEPS` kinds.
    """
    if len(steps) < MIN_STEPS:
        raise ConfigError(
            f"{len(steps)} kinds of steps were measured, and a step-time model needs {MIN_STEPS}"
        )
    loads = [_load(step, 1.0, padded_tokens) for step in steps]
    ranges = [(int(load.tokens), int(load.tokens)) for load in loads]
    samples = [sample for step in steps for sample in _samples(step)]
    knots = choose_knots(ranges)
    context_knots = _choose_context_knots(steps)
    best: StepTimeModel | None = None
    least = math.inf
    for terms in (
        Terms(knots, context, tells_prompts, has_constant, padded_tokens)
        for tells_prompts, has_constant in (_PADDED_PROMPTS if padded_tokens else _PROMPTS)
        for context in ([0], context_knots)
    ):
        model = _fit_robustly(steps, loads, terms, source)
        error = _mean_error(model, steps)
        if error < _MIN_GAIN * least:
            best, least = model, error
    if best is None:
        raise ConfigError("no step-time model fits the steps that were measured")
    return describe_errors(best, samples)


def _choose_context_knots(steps: Sequence[MeasuredStep]) -> list[int]:
    """0, and further ones between which there are several contexts."""
    seen = sorted({step.context_tokens for step in steps if step.context_tokens})
    knots = [0]
    for count, (context, following) in enumerate(pairwise(seen), 1):
        is_apart = context >= _CONTEXT_RATIO * max(knots[-1], seen[0])
        since = sum(knots[-1] < other <= context for other in seen[:count])
        if is_apart and since >= _MIN_PER_STRETCH and following > context:
            knots.append(context)
    rest = sum(context > knots[-1] for context in seen)
    return knots[:-1] if len(knots) > 1 and rest < _MIN_PER_STRETCH else knots


def _fit_robustly(
    steps: Sequence[MeasuredStep], loads: Sequence[Load], terms: Terms, source: str
) -> StepTimeModel:
    """Fit, and again with less weight for what is far off and may have been disturbed."""
    limits = _limits(steps)
    for _ in range(_NUM_ROUNDS):
        model = build_model(source, terms, fit_coefficients(loads, terms, idle=set()), limits)
        weights = [
            1.0 if _is_steady(step) else (_FAR_OFF / max(error, _FAR_OFF)) ** 2
            for step, error in zip(steps, _errors(model, steps), strict=True)
        ]
        loads = [load._replace(weight=w) for load, w in zip(loads, weights, strict=True)]
    return model


def _is_steady(step: MeasuredStep) -> bool:
    """Whether it took about as long each time, and at more than one."""
    samples = step.samples
    return len(samples) > SAMPLES_PER_VISIT and max(samples) < _STEADY_RATIO * min(samples)


def _load(step: MeasuredStep, weight: float, padded_tokens: tuple[int, ...]) -> Load:
    tokens = step.num_decodes + step.prefill_tokens
    return Load(
        weight=weight,
        seconds=step.seconds,
        tokens=pad_tokens(tokens, padded_tokens) if step.prefill_tokens else tokens,
        num_decodes=step.num_decodes,
        context_tokens=step.context_tokens,
        pairs=step.prefill_pairs,
    )


def _samples(step: MeasuredStep) -> list[Sample]:
    work = (step.num_decodes, step.context_tokens, step.prefill_tokens, step.prefill_pairs)
    return [(seconds, *work, 0) for seconds in step.samples]


def _limits(steps: Sequence[MeasuredStep]) -> StepLimits:
    return StepLimits(
        num_decodes=max(step.num_decodes for step in steps),
        context_tokens=max(step.context_tokens for step in steps),
        prefill_tokens=max(step.prefill_tokens for step in steps),
    )


def _errors(model: StepTimeModel, steps: Sequence[MeasuredStep]) -> list[float]:
    """Relative errors of the medians."""
    return [
        abs(
            model.predict(
                step.num_decodes, step.context_tokens, step.prefill_tokens, step.prefill_pairs
            )
            / step.seconds
            - 1
        )
        for step in steps
    ]


def _mean_error(model: StepTimeModel, steps: Sequence[MeasuredStep]) -> float:
    """Mean relative error of the medians; what is far off counts no more than that."""
    errors = _errors(model, steps)
    return sum(min(error, 2 * _FAR_OFF) for error in errors) / len(errors)
