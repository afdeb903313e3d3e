"""How long requests run on: a survival estimate over the lengths of outputs.

Kaplan-Meier over buckets of lengths. With d requests that ended of their own in a bucket, and n
that reached it (ended there or later, or were cut off there or later):

    S(x) = P(length > x) = product over the buckets up to x of  1 - d / (n + prior_weight)

A request that was cut off (aborted, failed, or out of max_tokens) says only that its length is
larger: it counts in n as far as it came. So do requests that still run, without which the first
minutes would know short outputs alone. The prior stands for requests that never end before their
max_tokens: where nothing is known, a request is expected to use all it may.

Lengths up to 31 have a bucket each, then 16 buckets an octave: 272 buckets, within 6 %.

Old requests fade: after `half_life` more began, one counts half. It weighs by when it began, not
by when it ended, as those that still run do: else the long ones among those that began together
would weigh more than the short ones, and answers would look longer than they are.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from quire_engine.errors import ConfigError

SCHEMA_VERSION = 1
MAX_LENGTH = (1 << 20) - 1
"""Longer outputs count as this long."""
_OCTAVE_BITS = 4
_LARGEST_UNIT = 1e200
"""Weights are scaled back beyond this, long before a float overflows."""
_MOST_HALF_LIVES = 300.0
"""After so many nothing is left of a request's weight."""

Running = tuple[int, int]
"""(tokens generated so far, number) of a request that still runs."""


def bucket_of(num_tokens: int) -> int:
    """The bucket of a length; lengths beyond MAX_LENGTH are in the last one."""
    num_tokens = min(num_tokens, MAX_LENGTH)
    shift = max(num_tokens.bit_length() - _OCTAVE_BITS - 1, 0)
    return (shift << _OCTAVE_BITS) + (num_tokens >> shift)


def bucket_start(bucket: int) -> int:
    """The smallest length in a bucket."""
    shift = max((bucket >> _OCTAVE_BITS) - 1, 0)
    return (bucket - (shift << _OCTAVE_BITS)) << shift


NUM_BUCKETS = bucket_of(MAX_LENGTH) + 1
_STARTS = [bucket_start(bucket) for bucket in range(NUM_BUCKETS + 1)]


class SketchState(msgspec.Struct, frozen=True, kw_only=True):
    """A sketch on the wire; the newest request weighs 1."""

    half_life: float
    prior_weight: float
    buckets: list[tuple[int, float, float]]
    """(bucket, weight that ended in it, weight cut off in it), without empty ones."""
    schema_version: int = SCHEMA_VERSION


class SurvivalCurve:
    """P(still running) as it was when `OutputLengthSketch.curve` made it.

    Parameters
    ----------
    hazards
        P(ends in the bucket | reached it), below 1, for the first buckets; 0 in all others.
    """

    __slots__ = ("_intercepts", "_slopes")

    def __init__(self, hazards: Sequence[float]) -> None:
        # ends are spread evenly over the lengths of a bucket
        self._intercepts: list[float] = []
        self._slopes: list[float] = []
        survival = 1.0
        for bucket, hazard in enumerate(hazards):
            start = _STARTS[bucket]
            slope = survival * hazard / (_STARTS[bucket + 1] - start)
            self._intercepts.append(survival + slope * (start - 1))
            self._slopes.append(slope)
            survival *= 1.0 - hazard
        num_others = NUM_BUCKETS - len(hazards)
        self._intercepts += [survival] * num_others
        self._slopes += [0.0] * num_others

    @property
    def coefficients(self) -> tuple[Sequence[float], Sequence[float]]:
        """Intercept and slope of each bucket: within it, P(length > x) = intercept - slope x."""
        return self._intercepts, self._slopes

    def longer_than(self, num_tokens: int) -> float:
        """P(length > num_tokens); never 0, so that it can be divided by."""
        if num_tokens > MAX_LENGTH:
            num_tokens = MAX_LENGTH
        # `bucket_of`, written out: admission asks this for every running request
        shift = num_tokens.bit_length() - _OCTAVE_BITS - 1
        bucket = (shift << _OCTAVE_BITS) + (num_tokens >> shift) if shift > 0 else num_tokens
        return self._intercepts[bucket] - self._slopes[bucket] * num_tokens

    def survival(self, given: int, ahead: int, *, max_tokens: int | None = None) -> float:
        """P(still running after `ahead` more tokens | generated `given` and still running).

        A request ends at `max_tokens` whatever others did.
        """
        if max_tokens is not None and given + ahead >= max_tokens:
            return 0.0
        return self.longer_than(given + ahead) / self.longer_than(given)

    def table(self, max_length: int) -> list[float]:
        """`longer_than` of 0 to `max_length`, for hot loops: one index instead of a call."""
        values: list[float] = []
        for bucket in range(bucket_of(max_length) + 1):
            intercept, slope = self._intercepts[bucket], self._slopes[bucket]
            lengths = range(_STARTS[bucket], _STARTS[bucket + 1])
            values += [intercept - slope * length for length in lengths]
        return values[: max_length + 1]


class OutputLengthSketch:
    """Lengths of outputs seen so far, in bounded memory.

    Parameters
    ----------
    half_life
        After so many more requests, a request counts half; above 0.
    prior_weight
        Requests that the prior is worth: more is slower to believe in short outputs; above 0.
    """

    def __init__(self, *, half_life: float = 2000.0, prior_weight: float = 2.0) -> None:
        _check_positive("half_life", half_life)
        _check_positive("prior_weight", prior_weight)
        self.half_life = half_life
        self.prior_weight = prior_weight
        self.num_begun = 0
        """Requests that began so far: the clock by which old ones fade."""
        # instead of fading all old weights, every new one is larger: O(1)
        self._unit = 1.0
        self._ended = [0.0] * NUM_BUCKETS
        self._cut = [0.0] * NUM_BUCKETS
        self._num_used = 0
        """Buckets from this one on are empty."""

    @property
    def num_requests(self) -> float:
        """Weight of all requests together, the newest weighing 1."""
        return (sum(self._ended) + sum(self._cut)) / self._unit

    def begin(self) -> int:
        """Note that a request begins, and return its number: it says how much it will weigh."""
        self.advance(self.num_begun + 1)
        return self.num_begun

    def advance(self, num_begun: int) -> None:
        """Fade to the moment at which so many requests have begun, here or elsewhere."""
        num_half_lives = (num_begun - self.num_begun) / self.half_life
        self._unit *= math.exp2(min(num_half_lives, _MOST_HALF_LIVES))
        self.num_begun = num_begun
        if self._unit > _LARGEST_UNIT:
            self._scale(1.0 / self._unit)

    def add(self, num_tokens: int, *, ended: bool, number: int | None = None) -> None:
        """Count a request of `num_tokens` output tokens.

        Parameters
        ----------
        ended
            Whether it stopped of its own accord at that length; False if it was cut off.
        number
            What `begin` returned; None for one that begins only now.
        """
        if num_tokens < 0:
            raise ValueError(f"an output cannot have {num_tokens} tokens")
        weight = self._weight(self.begin() if number is None else number)
        bucket = bucket_of(num_tokens)
        (self._ended if ended else self._cut)[bucket] += self._unit * weight
        self._num_used = max(self._num_used, bucket + 1)

    def curve(self, running: Iterable[Running] = ()) -> SurvivalCurve:
        """Return the estimate now; see `hazards`."""
        return SurvivalCurve(self.hazards(running))

    def hazards(
        self, running: Iterable[Running] = (), *, prior: Sequence[float] = ()
    ) -> list[float]:
        """Estimate P(ends in the bucket | reached it) for the first buckets; 0 in all others.

        Parameters
        ----------
        running
            (tokens generated so far, number) of each request that still runs.
        prior
            What is believed where nothing is known: that none ever ends, unless hazards are given.
        """
        running_weights: dict[int, float] = {}
        for num_tokens, number in running:
            bucket = bucket_of(num_tokens)
            running_weights[bucket] = running_weights.get(bucket, 0.0) + self._weight(number)
        num_buckets = max(self._num_used, len(prior))
        hazards = [*prior, *[0.0] * (num_buckets - len(prior))]
        prior_weight, ended, cut = self.prior_weight, self._ended, self._cut
        at_risk = prior_weight
        at_risk += sum(w for bucket, w in running_weights.items() if bucket >= num_buckets)
        scale = 1.0 / self._unit
        for bucket in range(num_buckets - 1, -1, -1):
            ends = ended[bucket] * scale
            at_risk += ends + cut[bucket] * scale + running_weights.get(bucket, 0.0)
            hazards[bucket] = (ends + prior_weight * hazards[bucket]) / at_risk
        return hazards

    def merge(self, other: "OutputLengthSketch") -> None:
        """Add another engine's requests; the newest of each weighs the same."""
        scale = self._unit / other._unit
        for bucket in range(NUM_BUCKETS):
            self._ended[bucket] += other._ended[bucket] * scale
            self._cut[bucket] += other._cut[bucket] * scale
        self._num_used = max(self._num_used, other._num_used)

    def to_state(self) -> SketchState:
        """What to send or save; `from_state` restores it."""
        pairs = zip(self._ended, self._cut, strict=True)
        return SketchState(
            half_life=self.half_life,
            prior_weight=self.prior_weight,
            buckets=[
                (bucket, ended / self._unit, cut / self._unit)
                for bucket, (ended, cut) in enumerate(pairs)
                if ended or cut
            ],
        )

    @classmethod
    def from_state(cls, state: SketchState) -> "OutputLengthSketch":
        """Restore a sketch.

        Raises
        ------
        ConfigError
            The state is of another schema or holds impossible figures.
        """
        if state.schema_version != SCHEMA_VERSION:
            raise ConfigError(
                f"output sketch: schema_version {state.schema_version} is not supported, "
                f"only {SCHEMA_VERSION}"
            )
        sketch = cls(half_life=state.half_life, prior_weight=state.prior_weight)
        for bucket, ended, cut in state.buckets:
            if not 0 <= bucket < NUM_BUCKETS or not _is_weight(ended) or not _is_weight(cut):
                raise ConfigError(f"output sketch: impossible entry {(bucket, ended, cut)}")
            sketch._ended[bucket] += ended
            sketch._cut[bucket] += cut
            sketch._num_used = max(sketch._num_used, bucket + 1)
        return sketch

    def _weight(self, number: int) -> float:
        """Return what a request weighs now, the newest weighing 1."""
        return math.exp2((number - self.num_begun) / self.half_life)

    def _scale(self, factor: float) -> None:
        self._unit *= factor
        self._ended = [weight * factor for weight in self._ended]
        self._cut = [weight * factor for weight in self._cut]


def _is_weight(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _check_positive(name: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"output sketch: {name} must be finite and above 0, not {value}")
