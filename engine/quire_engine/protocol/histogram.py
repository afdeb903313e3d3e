"""Histograms as counts: cheap to add to, small to send, exported as Prometheus has them."""

from bisect import bisect_left
from collections.abc import Sequence

import msgspec


class HistogramCounts(msgspec.Struct, array_like=True):
    """How many values fell into each bucket; the bounds are known to both ends."""

    counts: list[int]
    """One more than there are bounds: the last is of what is above them all."""
    sum: float = 0.0

    @classmethod
    def empty(cls, bounds: Sequence[float]) -> "HistogramCounts":
        """Counts of nothing yet."""
        return cls([0] * (len(bounds) + 1))

    def observe(self, bounds: Sequence[float], value: float, times: int = 1) -> None:
        """Count `value` so many times; `bounds` are the buckets' upper ends, ascending."""
        self.counts[bisect_left(bounds, value)] += times
        self.sum += value * times

    def plus(self, other: "HistogramCounts") -> "HistogramCounts":
        """The counts of both."""
        pairs = zip(self.counts, other.counts, strict=True)
        return HistogramCounts([mine + theirs for mine, theirs in pairs], self.sum + other.sum)

    def copy(self) -> "HistogramCounts":
        """Counts that go their own way from here."""
        return HistogramCounts(self.counts.copy(), self.sum)
