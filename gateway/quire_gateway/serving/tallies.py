"""Counts that cost next to nothing when something is counted: they are made metrics at a scrape.

All is counted on one thread, so that nothing has to be locked.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry


class Count:
    """One count."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Count."""
        self.value += amount


class Tally(Collector):
    """A counter with labels, as `prometheus_client.Counter` is used.

    Parameters
    ----------
    name
        Without `_total`.
    """

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels = name, text, labels
        self._counts: dict[tuple[str, ...], Count] = {}
        registry.register(self)

    def labels(self, *values: str) -> Count:
        """Return the count of these labels' values."""
        count = self._counts.get(values)
        if count is None:
            count = self._counts[values] = Count()
        return count

    def count(self, labels: tuple[str, ...], amount: float = 1.0) -> None:
        """Count; what `labels` and `inc` do, in one call."""
        found = self._counts.get(labels)
        if found is None:
            found = self.labels(*labels)
        found.value += amount

    def values(self) -> list[tuple[tuple[str, ...], float]]:
        """Return all counts, by their labels' values."""
        return [(labels, count.value) for labels, count in self._counts.items()]

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in self._counts.items():
            family.add_metric(values, count.value)
        yield family


class Observations:
    """How many values came, by the bucket that each falls into."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, counts: Sequence[int], total: float) -> None:
        """Count what was observed elsewhere."""
        self.counts = [own + more for own, more in zip(self.counts, counts, strict=True)]
        self.total += total


class Distribution(Collector):
    """A histogram with one label, as `prometheus_client.Histogram` is used."""

    def __init__(
        self,
        name: str,
        text: str,
        label: str,
        *,
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._text, self._label = name, text, label
        self._bounds = tuple(map(float, bounds))
        self._observations: dict[str, Observations] = {}
        registry.register(self)

    def labels(self, value: str) -> Observations:
        """Return what was observed with this label's value."""
        found = self._observations.get(value)
        if found is None:
            found = self._observations[value] = Observations(self._bounds)
        return found

    def observe(self, label: str, value: float) -> None:
        """Count a value; what `labels` and `observe` do, in one call."""
        found = self._observations.get(label)
        if found is None:
            found = self.labels(label)
        found.counts[bisect_left(found.bounds, value)] += 1
        found.total += value

    def values(self) -> list[tuple[tuple[str, ...], list[int], float]]:
        """Return all that was observed, by the label's value."""
        return [((label,), one.counts, one.total) for label, one in self._observations.items()]

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        family = HistogramMetricFamily(self._name, self._text, labels=[self._label])
        names = [*map(str, self._bounds), "+Inf"]
        for value, one in self._observations.items():
            buckets = list(zip(names, accumulate(one.counts), strict=True))
            family.add_metric([value], buckets, sum_value=one.total)
        yield family
