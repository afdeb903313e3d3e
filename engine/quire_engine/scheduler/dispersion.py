"""How much more occupancy scatters than that of independent requests.

The variance of a predicted sum assumes that requests end independently of each other. Real ones
come in clusters of their like, and what is usual changes while they run: the sum scatters more
than its variance says, the more so the more requests run at a time. By how much is learnt: now and
then all that run are noted, with the probability that each still runs some tokens later, and the
sum is compared with what became of them.

    factor = mean of (real - predicted)^2 / variance, the newest counting most

It is learnt where about half of them still run. Nearer horizons scatter less beyond their variance:
in proportion to how many will have ended, as measured on a chat trace.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from quire_engine.protocol.cost import OccupancyCurve
from quire_engine.protocol.messages import FinishReason
from quire_engine.scheduler.request import Request

DECAY = 0.95
"""Weight of the past at each new comparison: about the last 20 count."""
FIRST_WEIGHT = 4.0
"""Comparisons that independence is worth at first."""
LARGEST_ERROR = 16.0
"""A squared error counts at most as so many variances: one surprise must not close the door."""
MIN_ALIVE = 4.0
"""Where fewer are expected to run, the sum says little of its variance."""
MIN_VARIANCE = 1.0
"""Blocks squared; less is certainty, or rounding."""

_ENDED_BY_THEMSELVES = (FinishReason.STOP, FinishReason.LENGTH)


@dataclass(slots=True)
class Expectation:
    """What is expected of one request that runs."""

    request: Request
    num_tokens: int
    """Known tokens at the moment that the prediction is for."""
    alive: float
    """Probability that it runs beyond that."""
    size: float
    """Blocks that it then holds."""

    @property
    def variance(self) -> float:
        """Of the blocks that it then holds, or none."""
        return self.alive * (1.0 - self.alive) * self.size * self.size


class Dispersion:
    """Learns the factor from expectations, in the order in which they were noted."""

    def __init__(self) -> None:
        self.factor = 1.0
        """Real variance / variance of independent requests."""
        self._weight = FIRST_WEIGHT
        self._noted: list[_Comparison] = []

    def widened(self, curve: OccupancyCurve) -> OccupancyCurve:
        """Return a curve with the variance that real requests have."""
        excess = 2.0 * (self.factor - 1.0) / max(curve.alive[0], 1.0)
        variance = [
            variance * (1.0 + excess * min(curve.alive[0] - alive, 0.5 * curve.alive[0]))
            for alive, variance in zip(curve.alive, curve.variance, strict=True)
        ]
        return OccupancyCurve.of(curve.alive, curve.mean, variance)

    def note(self, expectations: Iterable[Expectation]) -> None:
        """Remember what is expected of all that run, for when it can be known."""
        comparison = _Comparison(list(expectations))
        if comparison.num_alive >= MIN_ALIVE:
            self._noted.append(comparison)

    def settle(self) -> None:
        """Learn from the expectations whose outcome is known by now."""
        unknown = []
        for comparison in self._noted:
            if not comparison.is_settled():
                unknown.append(comparison)
            elif comparison.variance >= MIN_VARIANCE:
                self._learn(comparison.error * comparison.error / comparison.variance)
        self._noted = unknown

    def _learn(self, squared_error: float) -> None:
        past = DECAY * self._weight
        self._weight = past + 1.0
        self.factor = (past * self.factor + min(squared_error, LARGEST_ERROR)) / self._weight


class _Comparison:
    """The sum over one set of requests; `error` is final once all of them are known."""

    __slots__ = ("_open", "error", "num_alive", "variance")

    def __init__(self, expectations: list[Expectation]) -> None:
        self._open = expectations
        self.error = 0.0
        """Real - predicted blocks of those that are known."""
        self.num_alive = sum(e.alive for e in expectations)
        self.variance = sum(e.variance for e in expectations)
        """Blocks squared; those that are cut off leave it."""

    def is_settled(self) -> bool:
        """Take in what is known by now; return whether that is all."""
        unknown = []
        for expected in self._open:
            if len(expected.request.token_ids) > expected.num_tokens:
                self.error += (1.0 - expected.alive) * expected.size
            elif expected.request.finish_reason is None:
                unknown.append(expected)
            elif expected.request.finish_reason in _ENDED_BY_THEMSELVES:
                self.error -= expected.alive * expected.size
            else:
                self.variance -= expected.variance
        self._open = unknown
        return not unknown
