"""How long it takes until prompts ahead are few again: when a long prompt finds its lull.

A prompt that needs most of its deadline for itself must meet an engine with little ahead. What is
ahead may be through in a second, and yet it waits for a minute: shorter prompts arrive meanwhile,
and fit. How long such times last is seen, for each of some levels: with D the lengths of the times
in which more was ahead than the level, one who comes at some moment of one of them waits

    mean = sum of D^2 / (2 x sum of D)        median = mean x ln 2, if ends come by chance

Long times count more than their number says, for more arrive in them. Where in such a time one
comes is not looked at: how much is ahead at the moment says little of when it ends, as measured.
"""

from bisect import bisect_left, bisect_right
from math import log

LEVELS_SECONDS = tuple(0.05 * 1.25**step for step in range(32))
"""From 50 ms to 50 s of prompts ahead."""
DECAY = 0.95
"""Weight of the past at the end of each busy time: about the last 20 count."""
_MEDIAN_OF_MEAN = log(2.0)


class Lulls:
    """Learns from what is ahead of a newcomer, told as often as it may have changed."""

    __slots__ = ("_num_busy", "_seconds", "_since", "_squares")

    def __init__(self) -> None:
        self._num_busy = 0
        """So many levels, the lowest, have more ahead now."""
        self._since = [0.0] * len(LEVELS_SECONDS)
        """When the busy time of each of them began."""
        self._seconds = [0.0] * len(LEVELS_SECONDS)
        self._squares = [0.0] * len(LEVELS_SECONDS)

    @property
    def are_awaited(self) -> bool:
        """Whether more than the lowest level is ahead, so that it is worth telling what is."""
        return self._num_busy > 0

    def observe(self, now: float, seconds_ahead: float) -> None:
        """Take in how long the prompts ahead take now."""
        num_busy = bisect_left(LEVELS_SECONDS, seconds_ahead)
        for level in range(self._num_busy, num_busy):
            self._since[level] = now
        for level in range(num_busy, self._num_busy):
            self._seconds[level], self._squares[level] = self._sums(level, now)
        self._num_busy = num_busy

    def seconds_until(self, seconds_ahead: float, now: float) -> float:
        """Predict how long it takes until no more than this is ahead; 0 if it is so now."""
        level = max(bisect_right(LEVELS_SECONDS, seconds_ahead) - 1, 0)
        if level >= self._num_busy:
            return 0.0
        seconds, squares = self._sums(level, now)
        return _MEDIAN_OF_MEAN * squares / (2.0 * seconds) if seconds > 0.0 else 0.0

    def _sums(self, level: int, now: float) -> tuple[float, float]:
        """Return the sums over busy times, as if the one that goes on ended now."""
        length = now - self._since[level]
        return (
            DECAY * self._seconds[level] + length,
            DECAY * self._squares[level] + length * length,
        )
