"""Counts of workers, added up: each tells all that it has counted since it started.

So nothing is counted twice or forgotten when a report is late; what a worker had told stays counted
when it dies, and a decider that starts anew gets all of what the workers have counted.
"""

from collections.abc import Mapping

from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.tallies import Distribution, Tally
from quire_gateway.workers.frames import Totals


def totals_of(metrics: GatewayMetrics, inquiry: int) -> Totals:
    """Return what a worker has counted."""
    return Totals(
        {name: tally.values() for name, tally in _tallies(metrics).items()},
        {name: one.values() for name, one in _distributions(metrics).items()},
        inquiry,
    )


class WorkerTotals:
    """What one worker has told, and is counted already."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, tuple[str, ...]], float] = {}
        self._observations: dict[tuple[str, tuple[str, ...]], tuple[list[int], float]] = {}

    def add(self, totals: Totals, metrics: GatewayMetrics) -> None:
        """Count what is new in its report."""
        tallies, distributions = _tallies(metrics), _distributions(metrics)
        for name, counts in totals.counts.items():
            for labels, value in counts:
                before = self._counts.get((name, labels), 0.0)
                self._counts[name, labels] = value
                tallies[name].labels(*labels).inc(value - before)
        for name, observations in totals.observations.items():
            for labels, numbers, total in observations:
                known = self._observations.get((name, labels), ([0] * len(numbers), 0.0))
                self._observations[name, labels] = numbers, total
                more = [new - old for new, old in zip(numbers, known[0], strict=True)]
                distributions[name].labels(*labels).add(more, total - known[1])


def _tallies(metrics: GatewayMetrics) -> Mapping[str, Tally]:
    return {
        "requests": metrics.requests,
        "refusals": metrics.refusals,
        "retries": metrics.retries,
        "failures": metrics.failures,
        "key_requests": metrics.key_requests,
    }


def _distributions(metrics: GatewayMetrics) -> Mapping[str, Distribution]:
    return {"seconds": metrics.seconds, "first_byte_seconds": metrics.first_byte_seconds}
