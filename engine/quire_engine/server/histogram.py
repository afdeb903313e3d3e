"""Metrics for the path that every token takes: plain numbers, exported when Prometheus asks.

`prometheus_client`'s own take a lock and some calls for each observation; with thousands of tokens
a second on one event loop neither is needed. The numbers are on a `CountBoard`: what is exported
is the sum over all API processes.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.server.count_board import Cells, CountBoard

Labels = Mapping[str, str]


class LoopCounter:
    """A number that only grows; for one event loop's thread."""

    __slots__ = ("_cells",)

    def __init__(self, cells: Cells) -> None:
        self._cells = cells

    @property
    def value(self) -> float:
        """What this process has counted."""
        return self._cells[0]

    def add(self, number: float = 1) -> None:
        """Count so many."""
        self._cells[0] += number


class CounterFamily(Collector):
    """Counters of one name, by labels.

    Parameters
    ----------
    constant
        Labels that all of them have.
    names
        Names of the labels that tell them apart.
    """

    def __init__(
        self, board: CountBoard, name: str, text: str, constant: Labels, *names: str
    ) -> None:
        self._board = board
        self._name = name
        self._text = text
        self._constant = constant
        self._names = names
        self._counters: dict[tuple[str, ...], LoopCounter] = {}
        self._shared: dict[tuple[str, ...], tuple[CounterFamily, tuple[str, ...]]] = {}

    def labels(self, *values: str) -> LoopCounter:
        """The counter with these values of the labels; it is exported from now on."""
        counter = self._counters.get(values)
        if counter is None:
            counter = LoopCounter(self._board.open(self._name, values, 1))
            self._counters[values] = counter
        return counter

    def share(self, family: "CounterFamily", source: tuple[str, ...], *values: str) -> None:
        """Export a counter of another family here too."""
        self._shared[values] = family, source

    def totals(self) -> dict[tuple[str, ...], float]:
        """What all API processes counted, by the values of the labels."""
        totals = {values: cells[0] for values, cells in self._board.totals(self._name).items()}
        for values, (family, source) in self._shared.items():
            totals[values] = family.totals().get(source, 0.0)
        return totals

    def collect(self) -> Iterator[Metric]:
        """All counters."""
        family = CounterMetricFamily(self._name, self._text, labels=(*self._constant, *self._names))
        for values, total in self.totals().items():
            family.add_metric((*self._constant.values(), *values), total)
        yield family


class LoopHistogram:
    """Counts values by bucket; for one event loop's thread."""

    __slots__ = ("_bounds", "_cells", "_sum")

    def __init__(self, bounds: Sequence[float], cells: Cells) -> None:
        self._bounds = tuple(bounds)
        self._cells = cells
        self._sum = len(self._bounds) + 1

    @property
    def counts(self) -> HistogramCounts:
        """What this process has counted."""
        *counts, total = self._cells
        return HistogramCounts([int(number) for number in counts], total)

    def observe(self, value: float, times: int = 1) -> None:
        """Count `value` so many times."""
        cells = self._cells
        cells[bisect_left(self._bounds, value)] += times
        cells[self._sum] += value * times


class HistogramFamily(Collector):
    """Histograms of one name and equal buckets, by labels; see `CounterFamily`."""

    def __init__(
        self,
        board: CountBoard,
        name: str,
        text: str,
        bounds: Sequence[float],
        constant: Labels,
        *names: str,
    ) -> None:
        self._board = board
        self._name = name
        self._text = text
        self._bounds = bounds
        self._constant = constant
        self._names = names
        self._histograms: dict[tuple[str, ...], LoopHistogram] = {}

    def labels(self, *values: str) -> LoopHistogram:
        """The histogram with these values of the labels; it is exported from now on."""
        histogram = self._histograms.get(values)
        if histogram is None:
            cells = self._board.open(self._name, values, len(self._bounds) + 2)
            histogram = self._histograms[values] = LoopHistogram(self._bounds, cells)
        return histogram

    def collect(self) -> Iterator[Metric]:
        """All histograms."""
        labels = (*self._constant, *self._names)
        family = HistogramMetricFamily(self._name, self._text, labels=labels)
        for values, (*counts, total) in self._board.totals(self._name).items():
            label_values = (*self._constant.values(), *values)
            add_histogram(family, label_values, self._bounds, counts, total)
        yield family


def add_histogram(
    family: HistogramMetricFamily,
    label_values: Sequence[str],
    bounds: Sequence[float],
    counts: Sequence[float],
    total: float,
) -> None:
    """Add buckets to a family as Prometheus has them: cumulative; `total` sums the values."""
    ends = [*(str(float(bound)) for bound in bounds), "+Inf"]
    buckets = list(zip(ends, map(float, accumulate(counts)), strict=True))
    family.add_metric(label_values, buckets, total)
