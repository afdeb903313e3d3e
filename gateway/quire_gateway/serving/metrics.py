"""Metrics `quire_gateway_*`.

Labels have values of fixed sets: services and keys are those of the routing documents.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class GatewayMetrics:
    """All metrics of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter(
            "requests",
            "Requests that were answered, by status; 0: the client left before.",
            "service",
            "status",
        )
        self.refusals = self._counter(
            "refusals", "Requests that the gateway itself refused.", "service", "reason"
        )
        self.retries = self._counter(
            "retries", "Attempts after which another engine was tried.", "service", "reason"
        )
        self.failures = self._counter(
            "engine_failures", "Attempts on which an engine failed.", "service", "reason"
        )
        self.key_requests = self._counter(
            "key_requests", "Requests by the key's name.", "service", "key"
        )
        self.key_tokens = self._counter(
            "key_tokens", "Tokens counted against the key's limit, estimated.", "service", "key"
        )
        self.seconds = self._histogram(
            "request_seconds", "From a request's arrival to the end of its answer."
        )
        self.first_byte_seconds = self._histogram(
            "first_byte_seconds", "From a request's arrival to the first byte of its answer."
        )
        self.routing_stale = Gauge(
            "quire_gateway_routing_stale",
            "1 while the routing documents cannot be used, and older ones are in force.",
            registry=self.registry,
        )

    def watch(self, families: Callable[[], Iterator[Metric]]) -> None:
        """Export what is read at the moment of a scrape."""

        class Reader(Collector):
            def collect(self) -> Iterator[Metric]:
                return families()

        self.registry.register(Reader())

    def page(self) -> bytes:
        """The text for Prometheus."""
        text: bytes = generate_latest(self.registry)
        return text

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"quire_gateway_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(
            f"quire_gateway_{name}", text, ("service",), buckets=_SECONDS, registry=self.registry
        )


def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    """Make a gauge of the gateway, to be filled at a scrape."""
    return GaugeMetricFamily(f"quire_gateway_{name}", text, labels=labels)
