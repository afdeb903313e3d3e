"""What panels are, and the expressions that they ask Prometheus.

`service` is NAMESPACE/NAME in every series: the gateway says it itself, and monitors make it for
engines and operator. A gauge that each gateway has of the same thing is averaged over them.
"""

from typing import Literal, NamedTuple

Kind = Literal["lines", "stacked"]

HERE = 'service=~"$service"'
WINDOW = "[$__rate_interval]"


BUSY, READY, IDLE = "#3274d9", "#56a64b", "#8e99a8"
"""Colours of what is used, what may be used, and what lies idle."""


class Query(NamedTuple):
    """One expression and the names of its series."""

    expression: str
    legend: str
    colour: str = ""
    """Of which its series are shades; without one, each has the next of a palette."""


class Panel(NamedTuple):
    """One diagram."""

    title: str
    unit: str
    """As Grafana names units."""
    description: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    edge: float | None = None
    """Where a line is drawn that values should stay under."""


class Board(NamedTuple):
    """One dashboard: rows of panels."""

    name: str
    title: str
    series: str
    """A series whose labels are the choice of services."""
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    marks: str = ""
    """An expression; where it gives something, all panels have a mark."""


def rate(series: str, by: str, more: str = "") -> str:
    """Events per second, by labels."""
    return f"sum by ({by}) (rate({series}{{{HERE}{more}}}{WINDOW}))"


def total(series: str, by: str, more: str = "") -> str:
    """A gauge, added up by labels."""
    return f"sum by ({by}) ({series}{{{HERE}{more}}})"


def quantile(share: float, series: str, by: str = "service") -> Query:
    """A quantile of a histogram, by labels."""
    counts = f"sum by (le, {by}) (rate({series}_bucket{{{HERE}}}{WINDOW}))"
    legend = " ".join(f"{{{{{label}}}}}" for label in by.split(", "))
    return Query(f"histogram_quantile({share}, {counts})", f"p{share * 100:g} {legend}")


def tail(series: str, by: str = "service") -> tuple[Query, ...]:
    """What is usual, and what is long."""
    return quantile(0.5, series, by), quantile(0.95, series, by)


def of_gateways(series: str, by: str, more: str = "") -> str:
    """A gauge that every gateway has of the same thing."""
    return f"avg by ({by}) ({series}{{{HERE}{more}}})"
