"""Learns a step-time model from the steps of the engine that it is to predict.

    observe (every step, O(1))   ->  StepEvidence: cells of recent steps
    model   (when one is asked)  ->  a new fit if enough steps have come, else the last one

A profile given at the start counts as if it had been measured at a grid of loads, rescaled by how
much slower or faster this machine turns out to be; one that was only estimated, less and less as
real steps come in. What was never observed keeps that profile, so that the first prompt after hours
of decodes is not predicted by guesswork.

Pure and deterministic: whoever runs the steps measures them.
"""

from collections.abc import Sequence
from statistics import median

from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_engine.profiles.step_time_build import (
    build_model,
    correct_model,
    predicted_over_measured,
)
from quire_engine.profiles.step_time_evidence import Point, StepEvidence
from quire_engine.profiles.step_time_prior import Prior
from quire_engine.profiles.step_time_regression import (
    Load,
    Terms,
    choose_knots,
    fit_coefficients,
)

MIN_OBSERVATIONS = 32
"""Before so many steps there is no model, or the prior as it was given."""
_MIN_FRESHNESS = 0.05
"""A load that is never seen any more still says more than nothing."""
_SAMPLES_OF_HALF_WEIGHT = 2
_FITS_PER_FLOOR = 4
"""A device that had no floor is asked for one in every so many fits."""
_NUM_TO_NOTICE = 32
"""Newest steps whose median tells that the device has become faster or slower..."""
_CLEARLY = 0.1
"""...by more than this share."""


class StepTimeFitter:
    """A step-time model that follows the engine; memory and time per step are bounded.

    Parameters
    ----------
    prior
        What to believe until steps have been observed: a shipped profile, or an estimate.
    half_life
        Observations after which a load that was not seen again counts half.
    refit_every
        Observations between two fits; the first ones come sooner. A fit takes a millisecond or
        two, and `model` is where it happens.
    """

    def __init__(
        self,
        prior: StepTimeModel | None = None,
        *,
        half_life: int = 512,
        refit_every: int = 128,
    ) -> None:
        if half_life < 1 or refit_every < 1:
            raise ValueError(
                f"half_life {half_life} and refit_every {refit_every} must be at least 1"
            )
        self._half_life = half_life
        self._refit_every = refit_every
        self._padded_tokens = () if prior is None else prior.padded_tokens
        self._evidence = StepEvidence(self._padded_tokens)
        self._prior = None if prior is None else Prior(prior)
        self._model = prior
        self._num_fits = 0
        self._idle: set[int] = set()
        self._next_fit = MIN_OBSERVATIONS

    @property
    def num_observed(self) -> int:
        """Steps that counted."""
        return self._evidence.num_observed

    @property
    def num_dropped(self) -> int:
        """Steps without work, or whose seconds are NaN, not positive, or absurd."""
        return self._evidence.num_dropped

    def observe(
        self,
        num_decodes: int,
        context_tokens: int,
        prefill_tokens: int,
        prefill_pairs: int,
        seconds: float,
    ) -> None:
        """Count a step that took `seconds`; the work is that of `StepTimeModel.predict`."""
        self._evidence.add(num_decodes, context_tokens, prefill_tokens, prefill_pairs, seconds)

    def model(self) -> StepTimeModel | None:
        """The newest model; None while too little is known. The same object until the next fit."""
        observed = self._evidence.num_observed
        if observed >= self._next_fit:
            self._next_fit = observed + min(self._refit_every, observed)
            self._forget_another_speed()
            self._model = self._fit() or self._model
        return self._model

    def _forget_another_speed(self) -> None:
        """Outdate older steps if the newest take clearly more or less than predicted."""
        if self._model is None:
            return
        newest = list(self._evidence.recent)[-_NUM_TO_NOTICE:]
        if abs(median(predicted_over_measured(self._model, newest)) - 1) > _CLEARLY:
            self._evidence.outdate(self.num_observed - 2 * _NUM_TO_NOTICE)

    def _fit(self) -> StepTimeModel | None:
        points = self._evidence.points()
        if not points:
            return None
        recent = list(self._evidence.recent)
        loads = [self._load(point) for point in points]
        ranges = [point.tokens_range for point in points]
        limits = _limits(points)
        source = f"{self.num_observed} steps while serving"
        if self._prior is not None:
            believed = self._prior.loads(recent, self.num_observed)
            loads += believed
            ranges += [(int(load.tokens), int(load.tokens)) for load in believed]
            limits = self._prior.widen(limits)
            source += f", begun with: {self._prior.model.source}"
        terms = self._terms(choose_knots(ranges))
        had_floor = self._model is not None and self._model.has_floor
        tries_floor = had_floor or self._num_fits % _FITS_PER_FLOOR == 0
        self._num_fits += 1
        fitted = fit_coefficients(loads, terms, idle=self._idle, tries_floor=tries_floor)
        return correct_model(build_model(source, terms, fitted, limits), recent)

    def _terms(self, knots: list[int]) -> Terms:
        """What is told apart: as much as the profile does, for steps alone rarely tell more."""
        if self._prior is None:
            return Terms(knots)
        prior = self._prior.model
        return Terms(
            knots,
            prior.context_tokens[:-1] or (0,),
            tells_prompts=prior.prompt_floor_seconds > 0 or prior.mixed_floor_seconds > 0,
            has_prompt_constant=prior.prompt_seconds > 0 or prior.mixed_seconds > 0,
            padded_tokens=self._padded_tokens,
        )

    def _load(self, point: Point) -> Load:
        age = self._evidence.num_observed - point.newest
        freshness = max(0.5 ** (age / self._half_life), _MIN_FRESHNESS)
        certainty = point.num_samples / (point.num_samples + _SAMPLES_OF_HALF_WEIGHT)
        return Load(
            weight=freshness * certainty,
            seconds=point.seconds,
            tokens=point.tokens,
            num_decodes=point.num_decodes,
            context_tokens=point.context_tokens,
            pairs=point.pairs,
        )


def _limits(points: Sequence[Point]) -> StepLimits:
    decodes, context, prefills = zip(*(point.most for point in points), strict=True)
    return StepLimits(
        num_decodes=max(decodes), context_tokens=max(context), prefill_tokens=max(prefills)
    )
