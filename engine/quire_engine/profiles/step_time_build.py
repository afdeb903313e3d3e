"""From fitted coefficients to a step-time model that says how far it errs."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import mul

from msgspec.structs import replace

from quire_engine.profiles.step_time import ResidualQuantiles, StepLimits, StepTimeModel
from quire_engine.profiles.step_time_evidence import Sample
from quire_engine.profiles.step_time_regression import Coefficients, Terms

_MAX_BIAS = 1.25
"""Medians correct a fit by at most this factor: what is beyond is no bias but a new regime."""

_LEAST = 1e-6
"""A step that is predicted to take no time at all is counted as one of this share."""


def build_model(
    source: str, terms: Terms, fitted: Coefficients, limits: StepLimits
) -> StepTimeModel:
    """A model of these coefficients; its errors are not known yet."""
    knots, curve = list(terms.knots), fitted.curve
    if len(knots) == 1:  # one size was seen: nothing is known about others
        knots, curve = [knots[0], 2 * knots[0]], curve * 2
    rate, context_knots, context_seconds = _context(terms.context_knots, fitted.per_context_token)
    return StepTimeModel(
        source=source,
        compute_tokens=tuple(knots),
        compute_seconds=tuple(curve),
        seconds_per_sequence=fitted.per_sequence,
        seconds_per_context_token=rate,
        context_tokens=context_knots,
        context_seconds=context_seconds,
        seconds_per_pair=fitted.per_pair,
        prompt_seconds=fitted.per_prompt_step,
        mixed_seconds=fitted.per_mixed_step,
        padded_tokens=tuple(terms.padded_tokens),
        floor_seconds=fitted.floor,
        prompt_floor_seconds=fitted.prompt_floor,
        mixed_floor_seconds=fitted.mixed_floor,
        limits=limits,
    )


def correct_model(model: StepTimeModel, samples: Sequence[Sample]) -> StepTimeModel:
    """Move the median of the predictions onto that of the samples, and say how far they err."""
    ratios = sorted(predicted_over_measured(model, samples))
    middle = max(ratios[len(ratios) // 2], 1 / _MAX_BIAS)
    scale = 1 / min(middle, _MAX_BIAS)
    return describe_errors(scale_model(model, scale), samples)


def describe_errors(model: StepTimeModel, samples: Sequence[Sample]) -> StepTimeModel:
    """The model with the errors that it makes over these samples."""
    ratios = sorted(max(each, _LEAST) for each in predicted_over_measured(model, samples))
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    return replace(
        model,
        fit_error=quantile(errors, 0.95),
        typical_error=quantile(errors, 0.5),
        residuals=ResidualQuantiles(
            p5=1 / quantile(ratios, 0.95) - 1,
            p50=1 / quantile(ratios, 0.5) - 1,
            p95=1 / quantile(ratios, 0.05) - 1,
        ),
    )


def scale_model(model: StepTimeModel, scale: float) -> StepTimeModel:
    """The model of a device on which everything takes `scale` times as long."""
    return replace(
        model,
        compute_seconds=tuple(seconds * scale for seconds in model.compute_seconds),
        seconds_per_sequence=model.seconds_per_sequence * scale,
        seconds_per_context_token=model.seconds_per_context_token * scale,
        context_seconds=tuple(seconds * scale for seconds in model.context_seconds),
        seconds_per_pair=model.seconds_per_pair * scale,
        prompt_seconds=model.prompt_seconds * scale,
        mixed_seconds=model.mixed_seconds * scale,
        floor_seconds=model.floor_seconds * scale,
        prompt_floor_seconds=model.prompt_floor_seconds * scale,
        mixed_floor_seconds=model.mixed_floor_seconds * scale,
    )


def predicted_over_measured(model: StepTimeModel, samples: Sequence[Sample]) -> list[float]:
    """One ratio for each sample."""
    return [
        model.predict(decodes, context, prefills, pairs) / seconds
        for seconds, decodes, context, prefills, pairs, _ in samples
    ]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of the others, in order, lie below."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _context(
    knots: Sequence[int], rates: Sequence[float]
) -> tuple[float, tuple[int, ...], tuple[float, ...]]:
    """A rate and the knots and seconds of a curve, of which one says all."""
    if len(knots) == 1:
        return rates[0], (), ()
    widths = [after - before for before, after in pairwise(knots)]
    ends = [*knots, knots[-1] + widths[-1]]
    seconds = accumulate(map(mul, [*widths, widths[-1]], rates), initial=0.0)
    return 0.0, tuple(ends), tuple(seconds)
