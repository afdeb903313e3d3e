"""Metrics `quire_gateway_*`.

Labels have values of fixed sets: services and keys are those of the routing documents. The
reference page is made of the table below.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from quire_gateway.serving.tallies import Distribution, Tally

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PREFIX = "quire_gateway_"


class Description(NamedTuple):
    """One metric."""

    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ("service",)

    def full_name(self, name: str) -> str:
        """Return the name that Prometheus shows."""
        return _PREFIX + name + ("_total" if self.kind == "counter" else "")


METRICS = {
    "requests": Description(
        "counter",
        "Requests that were answered, by status; 0: the client left before.",
        ("service", "status"),
    ),
    "refusals": Description(
        "counter", "Requests that the gateway itself refused.", ("service", "reason")
    ),
    "retries": Description(
        "counter", "Attempts after which another engine was tried.", ("service", "reason")
    ),
    "engine_failures": Description(
        "counter", "Attempts on which an engine failed.", ("service", "reason")
    ),
    "key_requests": Description("counter", "Requests by the key's name.", ("service", "key")),
    "key_tokens": Description(
        "counter",
        "Tokens by the key's name; kind is prompt or completion, or estimated where the engine did"
        " not say how many.",
        ("service", "key", "kind"),
    ),
    "request_seconds": Description(
        "histogram", "From a request's arrival to the end of its answer."
    ),
    "first_byte_seconds": Description(
        "histogram", "From a request's arrival to the first byte of its answer."
    ),
    "arrivals": Description(
        "counter", "Requests that keys allow, without those that clients' libraries sent again."
    ),
    "client_retries": Description(
        "counter", "Requests that clients' libraries sent again by themselves."
    ),
    "promises": Description(
        "counter",
        "Interactive streams by whether the first token (first_token) and the pace (output_token)"
        " were as the SLO promises.",
        ("service", "promise", "kept"),
    ),
    "queued_requests": Description("gauge", "Requests that wait here.", ("service", "priority")),
    "queued_blocks": Description("gauge", "KV blocks that waiting requests are expected to take."),
    "engines": Description(
        "gauge", "Engines, by whether requests go there.", ("service", "eligible")
    ),
    "bad_states": Description(
        "counter",
        "What engines told of themselves and cannot be so: refused, with the engine left alone, or"
        " corrected.",
        ("service", "taken"),
    ),
    "in_flight_requests": Description("gauge", "Requests at engines."),
    "gateways": Description("gauge", "Gateways that share the limits of keys."),
    "routing_stale": Description(
        "gauge", "1 while a routing document cannot be used, and an older one is in force.", ()
    ),
    "routing_source_up": Description(
        "gauge", "1 while services and engines can be followed; 0 while they stay as they were.", ()
    ),
    "tls_certificate_expiry_timestamp_seconds": Description(
        "gauge",
        "When the certificate that clients are shown expires, in Unix seconds; absent without TLS.",
        (),
    ),
}
"""All of them, by their names without prefix and ending."""


class GatewayMetrics:
    """All metrics of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests")
        self.refusals = self._counter("refusals")
        self.retries = self._counter("retries")
        self.failures = self._counter("engine_failures")
        self.key_requests = self._counter("key_requests")
        self.key_tokens = self._counter("key_tokens")
        self.seconds = self._histogram("request_seconds")
        self.first_byte_seconds = self._histogram("first_byte_seconds")
        self.routing_stale = self._gauge("routing_stale")
        self.routing_source_up = self._gauge("routing_source_up")

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

    def _counter(self, name: str) -> Tally:
        found = METRICS[name]
        return Tally(_PREFIX + name, found.text, found.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        found = METRICS[name]
        return Gauge(_PREFIX + name, found.text, found.labels, registry=self.registry)

    def _histogram(self, name: str) -> Distribution:
        found = METRICS[name]
        (label,) = found.labels
        return Distribution(
            _PREFIX + name, found.text, label, bounds=_SECONDS, registry=self.registry
        )


def family(name: str) -> GaugeMetricFamily | CounterMetricFamily:
    """Make a metric that is filled at a scrape."""
    found = METRICS[name]
    kind = GaugeMetricFamily if found.kind == "gauge" else CounterMetricFamily
    return kind(_PREFIX + name, found.text, labels=found.labels)
