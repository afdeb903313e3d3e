"""A given profile, as loads that could have been measured."""

from collections.abc import Iterable, Sequence
from statistics import median

from quire_engine.profiles.step_time import StepLimits, StepTimeModel, count_pairs, pad_tokens
from quire_engine.profiles.step_time_evidence import MAX_SECONDS, MIN_SECONDS, Sample
from quire_engine.profiles.step_time_regression import Load

_MAX_DECODES = 1024
_MAX_PREFILL_TOKENS = 16384
_CONTEXT_PER_DECODE = (128, 2048)
_WEIGHT = 0.3
"""Of one load of the profile at the start; a cell full of real steps weighs nearly 1."""
_NUM_FOR_SPEED = 32
"""Newest steps that tell how much slower this machine is."""
_HALF_WEIGHT_OBSERVATIONS = 50


class Prior:
    """Loads over the range of `model`, for the fit to take with the real ones."""

    def __init__(self, model: StepTimeModel) -> None:
        self.model = model
        self._loads = [load for load in _grid(model) if MIN_SECONDS <= load.seconds <= MAX_SECONDS]

    def loads(self, recent: Sequence[Sample], num_observed: int) -> list[Load]:
        """The profile's loads, at the speed of the newest steps.

        Those of an estimate fade. A measured profile's stay: steps of requests are of one kind for
        hours, and would bend everything else.
        """
        scale = self._slowness(recent)
        weight = _WEIGHT
        if self.model.residuals is None:  # nobody measured it: real steps soon know better
            weight /= 1 + num_observed / _HALF_WEIGHT_OBSERVATIONS
        return [load._replace(weight=weight, seconds=load.seconds * scale) for load in self._loads]

    def widen(self, limits: StepLimits) -> StepLimits:
        """The range of the profile and of `limits` together."""
        known = self.model.limits
        return StepLimits(
            num_decodes=max(known.num_decodes, limits.num_decodes),
            context_tokens=max(known.context_tokens, limits.context_tokens),
            prefill_tokens=max(known.prefill_tokens, limits.prefill_tokens),
        )

    def _slowness(self, recent: Sequence[Sample]) -> float:
        """Measured seconds over the profile's, the median of the newest steps."""
        ratios = []
        for seconds, decodes, context, prefills, pairs, _ in recent[-_NUM_FOR_SPEED:]:
            predicted = self.model.predict(decodes, context, prefills, pairs)
            if MIN_SECONDS <= predicted <= MAX_SECONDS:
                ratios.append(seconds / predicted)
        return median(ratios) if ratios else 1.0


def _grid(model: StepTimeModel) -> Iterable[Load]:
    """Decodes at two contexts at every power of four in the range, prompts at every one of two."""
    limits = model.limits
    for decodes in _powers_of_two(min(limits.num_decodes, _MAX_DECODES), 2):
        for per_decode in _CONTEXT_PER_DECODE:
            context = min(decodes * per_decode, limits.context_tokens)
            yield _load(model, decodes, context, 0, 0)
    for tokens in _powers_of_two(min(limits.prefill_tokens, _MAX_PREFILL_TOKENS)):
        yield _load(model, 0, 0, tokens, count_pairs(0, tokens))
    if model.mixed_floor_seconds or model.mixed_seconds:
        for decodes in _powers_of_two(min(limits.num_decodes, _MAX_DECODES), 4):
            for tokens in _powers_of_two(min(limits.prefill_tokens, _MAX_PREFILL_TOKENS), 3):
                context = min(decodes * _CONTEXT_PER_DECODE[0], limits.context_tokens)
                yield _load(model, decodes, context, tokens, count_pairs(0, tokens))


def _powers_of_two(most: int, stride: int = 1) -> Iterable[int]:
    return (1 << exponent for exponent in range(0, most.bit_length(), stride))


def _load(model: StepTimeModel, decodes: int, context: int, prefills: int, pairs: int) -> Load:
    return Load(
        weight=_WEIGHT,
        seconds=model.predict(decodes, context, prefills, pairs),
        tokens=pad_tokens(decodes + prefills, model.padded_tokens if prefills else ()),
        num_decodes=decodes,
        context_tokens=context,
        pairs=pairs,
    )
