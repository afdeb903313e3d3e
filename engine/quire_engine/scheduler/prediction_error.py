"""How wrong predicted times to the first token were: the margin that deadlines are held with."""

from math import sqrt

DECAY = 0.98
"""Weight of the past at each new observation: about the last 50 count."""

MARGIN_DEVIATIONS = 2.0
"""Standard deviations that are kept free before a deadline."""


class PredictionError:
    """Mean and spread of (actual - predicted) seconds, the newest counting most."""

    __slots__ = ("_mean", "_square", "_weight")

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean = 0.0
        self._square = 0.0

    def observe(self, predicted_seconds: float, actual_seconds: float) -> None:
        """Learn from one request whose first token came."""
        error = actual_seconds - predicted_seconds
        self._weight = DECAY * self._weight + 1.0
        share = 1.0 / self._weight
        self._mean += share * (error - self._mean)
        self._square += share * (error * error - self._square)

    def lower(self, predicted_seconds: float) -> float:
        """Return what a prediction comes to when it is one deviation too long.

        Its usual bias is taken out. A request is refused on arrival only if it would be late even
        then: while it waits, what is ahead becomes certain, and it is looked at again.
        """
        return max(predicted_seconds + self._mean - self._spread, 0.0)

    def margin(self) -> float:
        """Return the seconds to keep free before a deadline: usual error and some deviations.

        A late answer cost all its work; who is refused a little early leaves room for another.
        """
        return max(self._mean + MARGIN_DEVIATIONS * self._spread, 0.0)

    @property
    def _spread(self) -> float:
        return sqrt(max(self._square - self._mean * self._mean, 0.0))
