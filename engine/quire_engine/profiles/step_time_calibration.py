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
from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_engine.profiles.step_time_build import build_model, describe_errors
from quire_engine.profiles.step_time_evidence import Sample
from quire_engine.profiles.step_time_regression import (
    Load,
    Terms,
    choose_knots,
    fit_coefficients,
)

MIN_STEPS = 4
"""Kinds of steps without which there is no model."""
_CONTEXT_RATIO = 5
"""Between knots of the context, and the largest: closer ones turn noise into slopes."""
_MIN_PER_STRETCH = 2
_MIN_GAIN = 0.85
"""Mean squared errors must come down to this for a term more."""


def fit_measured(steps: Sequence[MeasuredStep], source: str) -> StepTimeModel:
    """Fit a model; its errors and quantiles are those over all samples.

    Raises
    ------
    ConfigError
        There are fewer than `MIN_STEPS` kinds.
    """
    if len(steps) < MIN_STEPS:
        raise ConfigError(
            f"{len(steps)} kinds of steps were measured, and a step-time model needs {MIN_STEPS}"
        )
    loads = [_load(step) for step in steps]
    ranges = [(int(load.tokens), int(load.tokens)) for load in loads]
    samples = [sample for step in steps for sample in _samples(step)]
    knots = choose_knots(ranges)
    context_knots = _choose_context_knots(steps)
    best: StepTimeModel | None = None
    least = math.inf
    for terms in (
        Terms(knots),
        Terms(knots, context_knots),
        Terms(knots, tells_prompts=True),
        Terms(knots, context_knots, tells_prompts=True),
    ):
        fitted = fit_coefficients(loads, terms, idle=set())
        model = build_model(source, terms, fitted, _limits(steps))
        error = _squared_error(model, steps)
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


def _load(step: MeasuredStep) -> Load:
    return Load(
        weight=1.0,
        seconds=step.seconds,
        tokens=step.num_decodes + step.prefill_tokens,
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


def _squared_error(model: StepTimeModel, steps: Sequence[MeasuredStep]) -> float:
    """Mean squared relative error of the medians."""
    errors = (
        model.predict(
            step.num_decodes, step.context_tokens, step.prefill_tokens, step.prefill_pairs
        )
        / step.seconds
        - 1
        for step in steps
    )
    return sum(error * error for error in errors) / len(steps)
