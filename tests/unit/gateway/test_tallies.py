"""Counts become metrics as those of prometheus_client do."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from quire_gateway.serving.tallies import Distribution, Tally

BOUNDS = (0.005, 0.01, 1, 2.5, 600)


def page(registry: CollectorRegistry) -> list[bytes]:
    lines: list[bytes] = generate_latest(registry).splitlines()
    return [line for line in lines if b"_created" not in line]


def test_the_page_is_that_of_the_usual_counter_and_histogram() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    their_counter = Counter("x_requests", "Text.", ("service", "status"), registry=theirs)
    our_counter = Tally("x_requests", "Text.", ("service", "status"), registry=ours)
    for counter in (their_counter, our_counter):
        counter.labels("a", "200").inc()
        counter.labels("a", "200").inc(2.5)
        counter.labels("b", "429").inc()
    their_histogram = Histogram("x_seconds", "Text.", ("service",), buckets=BOUNDS, registry=theirs)
    our_histogram = Distribution("x_seconds", "Text.", "service", bounds=BOUNDS, registry=ours)
    for histogram in (their_histogram, our_histogram):
        for value in (0.0, 0.005, 0.0051, 1.0, 3.0, 1e6):
            histogram.labels("a").observe(value)
    assert page(ours) == page(theirs)


def test_what_was_never_counted_is_named_without_values() -> None:
    registry = CollectorRegistry()
    Tally("x_requests", "Text.", ("service",), registry=registry)
    Distribution("x_seconds", "Text.", "service", bounds=BOUNDS, registry=registry)
    text = b"\n".join(page(registry))
    assert b"# TYPE x_requests_total counter" in text
    assert b"# TYPE x_seconds histogram" in text
    assert b"{" not in text
