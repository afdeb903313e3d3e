"""How long one step takes, from the work in it.

    device = compute(decodes + prefill tokens)     piecewise linear: weights first, then FLOPs;
                                                   with prompts, of the tokens they are padded to
           + decodes x seconds_per_sequence        sampling and bookkeeping
           + context x seconds_per_context_token   KV read by decodes: a rate, a curve, or both;
           + attend(context)                       few tokens do not fill a device
           + pairs x seconds_per_pair              attention of prompts
           + prompt_seconds, mixed_seconds         where there are prompts; and decodes as well
    step   = max(device, floor)                    the host's own time, which the device hides;
                                                   longer where there are prompts, unless a graph
                                                   launches them, padded

Every term grows with its work, so that more work never takes less time: coefficients that say
otherwise are refused. A model knows the range of the samples behind it; planners must not ask
beyond (`covers`), while `predict` answers there too, along the last slope.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from quire_engine.errors import ConfigError

SCHEMA_VERSION = 1


class StepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The largest work that a model was made from."""

    num_decodes: int
    context_tokens: int
    """Context tokens of all decodes together."""
    prefill_tokens: int


class ResidualQuantiles(msgspec.Struct, frozen=True, kw_only=True):
    """How measured steps lie around their predictions: measured / predicted - 1."""

    p5: float
    p50: float
    p95: float


class StepTimeError(ConfigError, ValueError):
    """A model is impossible. Decoders take a `ValueError` for what is wrong with their input."""


class StepTimeModel(msgspec.Struct, frozen=True, kw_only=True):
    """Predicts the seconds of a step; immutable, checked when made, saved as JSON.

    Raises
    ------
    StepTimeError
        A coefficient is NaN, infinite, negative, or the curve falls.
    """

    source: str
    """Where the figures come from, for people: a measurement or an estimate."""
    compute_tokens: tuple[int, ...]
    """Knots of the compute curve: tokens in a step, rising from 1."""
    compute_seconds: tuple[float, ...]
    """Seconds at each knot, never falling."""
    seconds_per_sequence: float = 0.0
    seconds_per_context_token: float = 0.0
    seconds_per_pair: float = 0.0
    """For each (query, key) pair of prompt tokens under the causal mask."""
    floor_seconds: float = 0.0
    """No step is shorter."""
    context_tokens: tuple[int, ...] = ()
    """Knots of a curve over the context of all decodes together; none where the rate says all."""
    context_seconds: tuple[float, ...] = ()
    """Seconds at each of these, besides the rate, never falling."""
    prompt_seconds: float = 0.0
    """What prompts add to a step, however small they are."""
    mixed_seconds: float = 0.0
    """What prompts beside decodes add to that."""
    padded_tokens: tuple[int, ...] = ()
    """Rising: what the tokens of a step with prompts are padded to, up to the last; beyond it, and
    where there is none, nothing is padded."""
    prompt_floor_seconds: float = 0.0
    """No step with prompts in it is shorter, unless it is padded: the host launches it."""
    mixed_floor_seconds: float = 0.0
    """No such step with decodes in it is shorter."""
    residuals: ResidualQuantiles | None = None
    """Of the samples behind the model; None where nothing was measured."""
    fit_error: float = 0.0
    """95th percentile of |predicted - measured| / measured over the samples."""
    typical_error: float = 0.0
    """Their median."""
    limits: StepLimits
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        _check_curve("compute", self.compute_tokens, self.compute_seconds, fewest=1)
        if self.context_tokens or self.context_seconds:
            _check_curve("context", self.context_tokens, self.context_seconds, fewest=0)
        for name in (
            "seconds_per_sequence",
            "seconds_per_context_token",
            "seconds_per_pair",
            "floor_seconds",
            "prompt_seconds",
            "mixed_seconds",
            "prompt_floor_seconds",
            "mixed_floor_seconds",
            "fit_error",
            "typical_error",
        ):
            _check_number(name, getattr(self, name))
        padded = (0, *self.padded_tokens)
        if any(after <= before for before, after in pairwise(padded)):
            raise StepTimeError("step-time model: padded_tokens must rise from at least 1")
        if self.residuals and not all(map(math.isfinite, msgspec.structs.astuple(self.residuals))):
            raise StepTimeError("step-time model: residuals must be finite")
        if min(msgspec.structs.astuple(self.limits)) < 0:
            raise StepTimeError("step-time model: limits must not be negative")

    def predict(
        self,
        num_decodes: int,
        context_tokens: int,
        prefill_tokens: int = 0,
        prefill_pairs: int = 0,
    ) -> float:
        """Seconds of one step.

        Parameters
        ----------
        num_decodes
            Sequences that compute one token each.
        context_tokens
            Tokens whose KV those decodes read, their own included.
        prefill_tokens
            Prompt tokens computed in all chunks.
        prefill_pairs
            Pairs of a prompt token in a chunk and a token it attends to; see `count_pairs`.
        """
        tokens = num_decodes + prefill_tokens
        if prefill_tokens and self.padded_tokens:
            tokens = pad_tokens(tokens, self.padded_tokens)
        # without `_attend` and `_compute`, for planners ask a million times
        attended = context_tokens * self.seconds_per_context_token
        if self.context_tokens:
            attended += _interpolate(self.context_tokens, self.context_seconds, context_tokens)
        device = (
            _interpolate(self.compute_tokens, self.compute_seconds, tokens)
            + num_decodes * self.seconds_per_sequence
            + attended
            + prefill_pairs * self.seconds_per_pair
        )
        floor = self.floor_seconds
        if prefill_tokens:
            device += self.prompt_seconds + (self.mixed_seconds if num_decodes else 0.0)
            if device < self.prompt_floor_seconds or device < self.mixed_floor_seconds:
                floor = max(floor, self._launch_seconds(tokens, num_decodes))
        return device if device > floor else floor

    def predict_decodes(self, num_decodes: int, context_tokens: int) -> Iterator[float]:
        """Yield the seconds of one step after the other in which the same sequences decode.

        Each step adds a token to each; equal to `predict`, to the last bit.

        Parameters
        ----------
        context_tokens
            Of the first step.
        """
        fixed = self._compute(num_decodes) + num_decodes * self.seconds_per_sequence
        while True:
            device = fixed + self._attend(context_tokens)
            yield device if device > self.floor_seconds else self.floor_seconds
            context_tokens += num_decodes

    @property
    def has_floor(self) -> bool:
        """Whether some steps are as short as the host lets them be."""
        return max(self.floor_seconds, self.prompt_floor_seconds, self.mixed_floor_seconds) > 0

    def covers(self, num_decodes: int, context_tokens: int, prefill_tokens: int = 0) -> bool:
        """Whether this work lies within the samples that the model was made from."""
        return (
            num_decodes <= self.limits.num_decodes
            and context_tokens <= self.limits.context_tokens
            and prefill_tokens <= self.limits.prefill_tokens
        )

    def _compute(self, num_tokens: int) -> float:
        return _interpolate(self.compute_tokens, self.compute_seconds, num_tokens)

    def _launch_seconds(self, tokens: int, num_decodes: int) -> float:
        """The host's own time for a step with prompts, already padded."""
        if is_padded(tokens, self.padded_tokens):
            return 0.0
        floor = self.prompt_floor_seconds
        return max(floor, self.mixed_floor_seconds) if num_decodes else floor

    def _attend(self, context_tokens: int) -> float:
        seconds = context_tokens * self.seconds_per_context_token
        if self.context_tokens:
            seconds += _interpolate(self.context_tokens, self.context_seconds, context_tokens)
        return seconds


def _interpolate(knots: tuple[int, ...], seconds: tuple[float, ...], num_tokens: int) -> float:
    """Read a curve: flat before its first knot, along the last slope beyond its last one."""
    right = bisect_right(knots, num_tokens, 1, len(knots) - 1)
    left = right - 1
    if num_tokens <= knots[left]:
        return seconds[left]
    slope = (seconds[right] - seconds[left]) / (knots[right] - knots[left])
    return seconds[left] + slope * (num_tokens - knots[left])


def pad_tokens(num_tokens: int, padded_tokens: tuple[int, ...]) -> int:
    """What so many tokens of a step with prompts are padded to; see `StepTimeModel`."""
    index = bisect_left(padded_tokens, num_tokens)
    return padded_tokens[index] if index < len(padded_tokens) else num_tokens


def is_padded(num_tokens: float, padded_tokens: Sequence[int]) -> bool:
    """Whether a step of so many tokens, already padded, runs from a graph."""
    return bool(padded_tokens) and num_tokens <= padded_tokens[-1]


def count_pairs(start: int, num_tokens: int) -> int:
    """(query, key) pairs of a chunk of `num_tokens` whose first position is `start`."""
    return num_tokens * start + num_tokens * (num_tokens + 1) // 2


def constant_step_time(seconds: float) -> StepTimeModel:
    """Every step takes `seconds`, whatever is in it; covers any work."""
    _check_number("seconds of a step", seconds)
    anything = 1 << 62
    return StepTimeModel(
        source=f"{seconds} s for every step",
        compute_tokens=(1, 2),
        compute_seconds=(seconds, seconds),
        limits=StepLimits(num_decodes=anything, context_tokens=anything, prefill_tokens=anything),
    )


def save_step_time(model: StepTimeModel) -> bytes:
    """Encode a model as JSON."""
    return msgspec.json.format(msgspec.json.encode(model))


def load_step_time(data: bytes | str) -> StepTimeModel:
    """Decode a model saved by this or an earlier version; unknown fields are ignored.

    Raises
    ------
    ConfigError
        It is not a step-time model, of a newer schema, or its coefficients are impossible.
    """
    try:
        msgspec.json.decode(data, type=VersionedModel).check()
        return msgspec.json.decode(data, type=StepTimeModel)
    except msgspec.DecodeError as error:
        if isinstance(error.__cause__, StepTimeError):
            raise error.__cause__ from error
        raise ConfigError(f"step-time model: {error}") from error


class VersionedModel(msgspec.Struct):
    """Read first, for a schema of the future may look otherwise in everything else."""

    schema_version: int

    def check(self) -> None:
        """Raise ConfigError if this version of quire cannot read such a model."""
        if self.schema_version != SCHEMA_VERSION:
            raise ConfigError(
                f"step-time model: schema_version {self.schema_version} is not supported, only "
                f"{SCHEMA_VERSION}"
            )


def _check_number(name: str, value: float) -> None:
    if not math.isfinite(value) or value < 0:
        raise StepTimeError(f"step-time model: {name} must be finite and not negative, not {value}")


def _check_curve(
    name: str, tokens: tuple[int, ...], seconds: tuple[float, ...], *, fewest: int
) -> None:
    if len(tokens) != len(seconds) or len(tokens) < 2:
        raise StepTimeError(
            f"step-time model: {name}_tokens and {name}_seconds need the same number of knots, "
            f"at least 2, not {len(tokens)} and {len(seconds)}"
        )
    for value in seconds:
        _check_number(f"{name}_seconds", value)
    if tokens[0] < fewest or any(b <= a for a, b in pairwise(tokens)):
        raise StepTimeError(f"step-time model: {name}_tokens must rise from at least {fewest}")
    if any(b < a for a, b in pairwise(seconds)):
        raise StepTimeError(
            f"step-time model: {name}_seconds must not fall: more work takes longer"
        )
