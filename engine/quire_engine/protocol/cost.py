"""What a request costs in KV blocks, now and as far as can be foreseen.

One set of functions for the engine's ledger, the gateway's choice and the simulator. A request
with `n` private tokens that goes on for `h` more holds

    blocks(h) = fixed + num_sequences x ceil((n + h) / block size)

and it goes on for `h` more with probability `survival(generated, h)`. Summed over the requests of
an engine this is a curve over the horizons `h`: its mean, and its variance for requests that end
independently of each other. **Room** is judged on the curve's peak: a request that ends gives all
its blocks back before others have grown, so adding up final sizes would waste cache.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from operator import add, sub

HORIZONS = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Tokens ahead at which occupancy is predicted; the first is now."""

_NUM_HORIZONS = len(HORIZONS)
_ZEROS = (0.0,) * _NUM_HORIZONS

Survival = Callable[[int, int], float]
"""(generated, ahead) to the probability that a request that generated so many goes on so long."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Predicted blocks of one request at each horizon."""

    alive: tuple[float, ...]
    """Probability that it still runs."""
    mean: tuple[float, ...]
    """Alive x size."""
    variance: tuple[float, ...]
    """Alive x (1 - alive) x size squared."""

    @property
    def peak(self) -> float:
        """Largest mean: what the request is expected to need at once."""
        return max(self.mean)


NOTHING = Occupancy(_ZEROS, _ZEROS, _ZEROS)


def predict_occupancy(
    *,
    private_tokens: int,
    block_size: int,
    num_generated: int,
    max_remaining_tokens: int,
    survival: Survival,
    fixed_blocks: float = 0.0,
    num_sequences: int = 1,
) -> Occupancy:
    """Predict one request's blocks.

    Parameters
    ----------
    private_tokens
        Known tokens of each sequence that lie in blocks of its own.
    block_size
        Tokens per block.
    num_generated
        Tokens generated so far, the survival's condition.
    max_remaining_tokens
        Tokens after which the request ends in any case.
    fixed_blocks
        Its share of blocks that it holds together with others, or its sequences with each other.
    num_sequences
        Sequences that grow side by side: n, or the beams.
    """
    alive = [1.0]
    size = fixed_blocks + num_sequences * -(-private_tokens // block_size)
    mean = [size]
    variance = [0.0]
    for ahead in HORIZONS[1:]:
        if ahead >= max_remaining_tokens:
            break
        size = fixed_blocks + num_sequences * -(-(private_tokens + ahead) // block_size)
        probability = survival(num_generated, ahead)
        expected = probability * size
        alive.append(probability)
        mean.append(expected)
        variance.append(expected * (size - expected))
    rest = _ZEROS[len(mean) :]
    return Occupancy((*alive, *rest), (*mean, *rest), (*variance, *rest))


def sum_occupancies(occupancies: Iterable[Occupancy]) -> Occupancy:
    """Return what several sequences take together that end independently of each other."""
    curve = OccupancyCurve(occupancies)
    return Occupancy(tuple(curve.alive), tuple(curve.mean), tuple(curve.variance))


class OccupancyCurve:
    """The sum of many requests' occupancies, kept up to date by adding and removing."""

    __slots__ = ("alive", "mean", "variance")

    def __init__(self, occupancies: Iterable[Occupancy] = ()) -> None:
        self.alive = list(_ZEROS)
        self.mean = list(_ZEROS)
        self.variance = list(_ZEROS)
        for occupancy in occupancies:
            self.replace(NOTHING, occupancy)

    @classmethod
    def of(cls, alive: list[float], mean: list[float], variance: list[float]) -> "OccupancyCurve":
        """Make a curve of sums, one per horizon each."""
        return _curve(alive, mean, variance)

    def replace(self, old: Occupancy, new: Occupancy) -> None:
        """Exchange a request's occupancy for a newer one; NOTHING stands for none."""
        alive, mean, variance = self.alive, self.mean, self.variance
        for index in range(_NUM_HORIZONS):
            alive[index] += new.alive[index] - old.alive[index]
            mean[index] += new.mean[index] - old.mean[index]
            variance[index] += new.variance[index] - old.variance[index]

    def plus(self, other: "OccupancyCurve | Occupancy") -> "OccupancyCurve":
        """Return the sum of both; neither changes."""
        return _curve(
            list(map(add, self.alive, other.alive)),
            list(map(add, self.mean, other.mean)),
            list(map(add, self.variance, other.variance)),
        )

    def minus(self, other: "OccupancyCurve") -> "OccupancyCurve":
        """Return this curve without `other`, a part of it; neither changes."""
        return _curve(
            [max(whole - part, 0.0) for whole, part in zip(self.alive, other.alive, strict=True)],
            [max(whole - part, 0.0) for whole, part in zip(self.mean, other.mean, strict=True)],
            list(map(sub, self.variance, other.variance)),
        )

    def scaled(self, share: float) -> "OccupancyCurve":
        """Return the curve of a share of the requests, as if all were alike."""
        return _curve(
            [share * alive for alive in self.alive],
            [share * mean for mean in self.mean],
            [share * variance for variance in self.variance],
        )

    def shifted(self, num_blocks: float) -> "OccupancyCurve":
        """Return the curve with its first point moved by `num_blocks`, the others in proportion.

        What all requests together hold beyond their predictions is theirs for as long as they run.
        """
        share = num_blocks / self.alive[0] if self.alive[0] > 0.5 else 0.0
        mean = [mean + share * alive for mean, alive in zip(self.mean, self.alive, strict=True)]
        return _curve(self.alive.copy(), mean, self.variance.copy())

    def upper(self, z: float) -> list[float]:
        """Return mean + z sigma at each horizon, in blocks."""
        return [
            mean + z * sqrt(variance) if variance > 0.0 else mean
            for mean, variance in zip(self.mean, self.variance, strict=True)
        ]

    def peak(self, z: float) -> float:
        """Return the largest of mean + z sigma, in blocks.

        Parameters
        ----------
        z
            Standard deviations of safety; 2 leaves about 2 % of risk at the peak.
        """
        return max(self.upper(z))


def _curve(alive: list[float], mean: list[float], variance: list[float]) -> OccupancyCurve:
    """Make a curve of these lists; admission makes several for each answer."""
    curve = OccupancyCurve.__new__(OccupancyCurve)
    curve.alive, curve.mean, curve.variance = alive, mean, variance
    return curve


def tokens_until_below(values: Iterable[float], ceiling: float) -> float | None:
    """Return after how many tokens a predicted curve stays at or below a ceiling, or None.

    Parameters
    ----------
    values
        One per horizon; between two horizons the curve is a straight line.
    """
    curve = list(values)
    for index in range(_NUM_HORIZONS - 1, -1, -1):
        if curve[index] > ceiling:
            if index == _NUM_HORIZONS - 1:
                return None
            drop = (curve[index] - ceiling) / (curve[index] - curve[index + 1])
            return HORIZONS[index] + drop * (HORIZONS[index + 1] - HORIZONS[index])
    return 0.0


def tokens_until_given(values: Sequence[float], needed: float) -> float:
    """Return after how many tokens running requests will have given `needed` of something back.

    The fastest average pace over the horizons is taken for what lies beyond them too: those that
    take the place of requests that end give it back in their turn.

    Parameters
    ----------
    values
        What they hold, at each horizon.
    needed
        Blocks or seats that are missing; at most 0 if none is.

    Returns
    -------
    0 if nothing is missing, infinity if they only ever take more.
    """
    if needed <= 0:
        return 0.0
    pace = max(
        (values[0] - value) / ahead for value, ahead in zip(values[1:], HORIZONS[1:], strict=True)
    )
    return needed / pace if pace > 0 else inf
